"""Plans for tests, built by hand: small, complete, the same every time."""

from __future__ import annotations

from typing import Any

from tuner.domain.engine import EngineConfig, LaunchSpec, Setting, StartupFacts
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.plan import Arm, Change, Plan, Sizing, TrialRow, Verdict
from tuner.domain.slo import parse_slo
from tuner.domain.space import SearchSpace, SpaceSetting
from tuner.domain.study import Budget, EngineInstall, StudySpec
from tuner.domain.trial import Estimate, FailureKind, LatencySummary, Measurement, MeasureWarning, Warn
from tuner.domain.workload import ClosedLoop, Fixed, Lognormal, OpenLoop, Workload
from tuner.engines import ENGINES

VERSION = "0.32.0"
NASTY = "it's \"$(touch pwned)\" `x` \\ | \N{SNOWMAN} ${HOME}\ton\n# yes: - off\u202e"


def config(*settings: tuple[str, Any], version: str = VERSION) -> EngineConfig:
    return EngineConfig(
        engine="vllm", version=version,
        settings=tuple(Setting(flag=flag, value=value, source="trial") for flag, value in settings),
    )


def estimate(value: float, spread: float = 0.05, n: int = 3) -> Estimate:
    return Estimate(value=value, low=value * (1 - spread), high=value * (1 + spread), n=n)


def latency(ms: float) -> LatencySummary:
    return LatencySummary(mean=estimate(ms, n=64), p50=estimate(ms * 0.9, n=64), p90=estimate(ms * 1.4, n=64),
                          p95=estimate(ms * 1.6, n=64), p99=estimate(ms * 2.2, n=64))


def measurement(tokens_per_s: float, ttft_ms: float = 120.0, **changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "requests": 64, "completed": 64, "failed": 0, "duration_s": 12.5, "window_s": 11.0,
        "input_tokens": 4096, "output_tokens": 2048,
        "output_tokens_per_s": estimate(tokens_per_s, n=11), "total_tokens_per_s": estimate(tokens_per_s * 3, n=11),
        "requests_per_s": estimate(tokens_per_s / 32, n=11), "goodput_per_s": estimate(tokens_per_s / 40, n=11),
        "slo_attainment": estimate(0.97, n=64),
        "ttft_ms": latency(ttft_ms), "itl_ms": latency(20.0), "tpot_ms": latency(21.0), "e2e_ms": latency(900.0),
        "limits": {"p95 ttft<=500ms": estimate(ttft_ms * 1.6, n=64), "p99 itl<=80ms": estimate(44.0, n=64)},
        "client_lag_ms": 0.4, "client_cpu_share": 0.2,
    }
    return Measurement(**{**fields, **changes})


def arm(label: Any, trial: int, settings: EngineConfig, tokens_per_s: float, **changes: Any) -> Arm:
    fields: dict[str, Any] = {
        "label": label, "trial": trial, "config": settings, "score": estimate(tokens_per_s, 0.02), "meets_slo": True,
        "rounds": tuple(measurement(tokens_per_s * factor) for factor in (0.99, 1.0, 1.01)),
        "start_s": (40.5, 41.25, 39.0),
    }
    return Arm(**{**fields, **changes})


def local_model(**changes: Any) -> ModelSpec:
    fields: dict[str, Any] = {
        "requested": "models/tiny-15m", "name": "tiny-15m", "location": "/data/models/tiny-15m",
        "source": "directory", "architecture": "LlamaForCausalLM", "layers": 7, "attention_heads": 12,
        "kv_heads": 4, "head_dim": 32, "dtype": "float32", "parameters": 14_200_000, "weight_bytes": 57_000_000,
        "max_context": 4096, "fingerprint": "9f2c51d0a7be",
    }
    return ModelSpec(**{**fields, **changes})


def hub_model(**changes: Any) -> ModelSpec:
    fields: dict[str, Any] = {
        "requested": "llama-3-70b", "name": "Meta-Llama-3-70B-Instruct",
        "location": "meta-llama/Meta-Llama-3-70B-Instruct", "source": "alias",
        "revision": "50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1", "gated": True, "architecture": "LlamaForCausalLM",
        "layers": 80, "attention_heads": 64, "kv_heads": 8, "head_dim": 128, "dtype": "bfloat16",
        "parameters": 70_600_000_000, "max_context": 8192,
    }
    return ModelSpec(**{**fields, **changes})


CPU = Hardware(kind="cpu", cpu="AMD EPYC 7B13", cores=2, memory_bytes=24 * 2**30, cpu_features=("avx2",))
H100 = Hardware(
    kind="cuda", driver="570.86.15", cores=96, memory_bytes=1024 * 2**30,
    gpus=tuple(Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=85520809984, capability=9.0, index=i) for i in range(8)),
)


def study(**changes: Any) -> StudySpec:
    fields: dict[str, Any] = {
        "name": "chat", "model": local_model(), "hardware": CPU,
        "engine": EngineInstall(engine="vllm", version=VERSION, build="cpu", program=("/opt/venvs/vllm/bin/vllm",)),
        "workload": Workload(name="short", input_tokens=Fixed(tokens=64), output_tokens=Fixed(tokens=32),
                             arrivals=ClosedLoop(concurrency=16), requests=64),
        "slo": parse_slo("p95 ttft<=500ms, p99 itl<=80ms"),
        "space": SearchSpace(engine="vllm", origin="search_spaces/vllm.yaml", settings=(
            SpaceSetting(flag="max-num-seqs", values=(None, 2, 8, 64)),
            SpaceSetting(flag="block-size", values=(None, 16, 32)),
        )),
        "budget": Budget(trials=6),
        "sources": {"workload": "option", "slo": "option", "objective": "default", "hardware": "detected"},
    }
    return StudySpec(**{**fields, **changes})


def launch(**changes: Any) -> LaunchSpec:
    fields: dict[str, Any] = {
        "program": ("/opt/venvs/vllm/bin/vllm", "serve"),
        "arguments": ("/data/models/tiny-15m", "--served-model-name", "tiny-15m", "--dtype", "float32",
                      "--enforce-eager", "--max-num-seqs", "64", "--no-enable-prefix-caching"),
        "bind": ("--host", "{host}", "--port", "{port}"),
        "env": {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
        "model": "/data/models/tiny-15m", "model_is_local": True, "served_name": "tiny-15m",
        "image": "vllm/vllm-openai-cpu:v0.32.0", "image_program": ("vllm", "serve"),
    }
    return LaunchSpec(**{**fields, **changes})


def trials(best: EngineConfig) -> tuple[TrialRow, ...]:
    return (
        TrialRow(number=0, purpose="default", key=config().key, settings={}, outcome="measured",
                 score=estimate(382.0), meets_slo=True, start_s=40.5, own_s=0.31),
        TrialRow(number=1, purpose="search", key=config(("block-size", 16)).key, settings={"block-size": "16"},
                 outcome="infeasible", reason="block size must be a multiple of 32 | on a CPU"),
        TrialRow(number=2, purpose="search", key=config(("max-num-seqs", 2)).key, settings={"max-num-seqs": "2"},
                 outcome="measured", score=estimate(121.0), meets_slo=False, start_s=39.0, own_s=0.29),
        TrialRow(number=3, purpose="search", key=config(("kv-cache-memory-bytes", "1M")).key,
                 settings={"kv-cache-memory-bytes": "1M"}, outcome="failed", failure=FailureKind.OUT_OF_MEMORY,
                 reason="ValueError: to serve at least one request\nmore KV cache is needed", own_s=0.2),
        TrialRow(number=4, purpose="search", key=best.key, settings={s.flag: str(s.value) for s in best.settings},
                 outcome="measured", score=estimate(450.0), meets_slo=True, start_s=41.25, own_s=0.3),
    )


def make_plan(**changes: Any) -> Plan:
    """Build a measured and verified plan of a small local model on a CPU; `changes` replace fields."""
    best = config(("enable-prefix-caching", False), ("max-num-seqs", 64))
    fields: dict[str, Any] = {
        "tool_version": "0.1.0", "complete": True, "measured": True, "study": study(), "config": best,
        "launch": launch(),
        "startup": StartupFacts(kv_cache_tokens=149760, weight_bytes=57_000_000, attention_backend="CPU_ATTN",
                                resolved={"block_size": "128", "max_num_seqs": "64"}),
        "sizing": Sizing(start_s=41.25, start_n=6, peak_memory_bytes=2_639_000_000),
        "verdict": Verdict(kind="winner", reference="default",
                           text="17.8% more output tokens/s than the default [15.1%, 20.4%] over 3 rounds"),
        "arms": (
            arm("default", 0, config(), 382.0),
            arm("best", 4, best, 450.0, ratio=Estimate(value=1.178, low=1.151, high=1.204, n=3)),
        ),
        "changes": (
            Change(flag="max-num-seqs", before=None, after="64", why="holds all 16 clients"),
            Change(flag="enable-prefix-caching", before=None, after="False"),
        ),
        "trials": trials(best),
        "warnings": ("the client used 20% of a core",),
        "command": "llmtune optimize --model models/tiny-15m --workload 64x32@c16 "
                   "--slo 'p95 ttft<=500ms, p99 itl<=80ms' --trials 6",
    }
    return Plan(**{**fields, **changes})


def gpu_plan(**changes: Any) -> Plan:
    """Build a plan of a gated model on eight GPUs."""
    best = config(("tensor-parallel-size", 8), ("max-num-batched-tokens", 16384))
    base = config(("tensor-parallel-size", 8))
    fields: dict[str, Any] = {
        "study": study(
            name="peak-hours", model=hub_model(), hardware=H100,
            engine=EngineInstall(engine="vllm", version=VERSION, build="cuda", program=("vllm",),
                                 image="vllm/vllm-openai:v0.32.0"),
            workload=Workload(name="chat", input_tokens=Lognormal(median=512, sigma=0.8, high=4096),
                              output_tokens=Lognormal(median=256, sigma=0.6, high=1024),
                              arrivals=OpenLoop(rate_per_s=20), requests=2000, shared_prefix=0.25, prefix_groups=4),
            objective="goodput_per_s", baseline=base,
        ),
        "config": best,
        "launch": launch(
            program=("vllm", "serve"),
            arguments=("meta-llama/Meta-Llama-3-70B-Instruct", "--revision",
                       "50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1", "--served-model-name", "llama-3-70b",
                       "--tensor-parallel-size", "8", "--max-num-batched-tokens", "16384",
                       "--compilation-config", '{"cudagraph_capture_sizes": [1, 2, 4], "mode": 3}'),
            env={"VLLM_NO_USAGE_STATS": "1"}, secret_env=("HF_TOKEN",),
            model="meta-llama/Meta-Llama-3-70B-Instruct", model_is_local=False, served_name="llama-3-70b",
            image="vllm/vllm-openai:v0.32.0", devices=8, needs_shared_memory=True,
        ),
        "sizing": Sizing(start_s=212.4, start_n=6),
        "arms": (
            arm("default", 0, config(), 4100.0, score=estimate(16.2, 0.03)),
            arm("baseline", 1, base, 4300.0, score=estimate(17.0, 0.03), meets_slo=False),
            arm("best", 4, best, 5100.0, score=estimate(19.6, 0.02),
                ratio=Estimate(value=1.15, low=1.12, high=1.19, n=3)),
        ),
        "changes": (
            Change(flag="max-num-batched-tokens", before="engine default", after="16384", why="longer prefill batches"),
        ),
        "trials": trials(best), "warnings": (),
        "verdict": Verdict(kind="winner", reference="baseline", text="15% more goodput than the baseline [12%, 19%]"),
        "command": "llmtune optimize --model llama-3-70b --workload chat --baseline serve.sh",
    }
    return make_plan(**{**fields, **changes})


def nasty_plan() -> Plan:
    """Build a plan in which every text that a user or a log can choose tries to break out of its place."""
    path = f"/data/{NASTY.replace('/', '-')}/my model"
    best = config(("max-num-seqs", 8), ("quantization", "on"))
    return make_plan(
        study=study(name=NASTY, model=local_model(name=NASTY, location=path, fingerprint="y"),
                    workload=Workload(name=NASTY, input_tokens=Fixed(tokens=64), output_tokens=Fixed(tokens=32),
                                      arrivals=ClosedLoop(concurrency=16), requests=64),
                    sources={"name": NASTY}),
        config=best,
        launch=launch(
            program=("/opt/my venv/bin/v llm$", "serve"), image_program=(),
            arguments=(path, "--served-model-name", NASTY, "--a", "on", "--b", "22:22", "--c", "0123", "--d", "null",
                       "--e", "~", "--f", "", "--g", "-1", "--h=1e3", "--i", " lead", "--j", "$$", "--k", "#x",
                       "--l", '{"a": "it\'s"}', "--m", "{host}", "-n", "a\r\nb", "--o", "[0]=x", "--p", "!!str y"),
            bind=("--listen={host}:{port}",),
            env={"LANGUAGE": "y", "NO_ESCAPE": NASTY, "ZERO": "0", "EMPTY": "", "DOLLAR": "$HOME ${X:-y} $$"},
            secret_env=("MY_KEY",), model=path, served_name=NASTY, image="registry.local:5000/team/vllm:v0.32.0-r1",
        ),
        startup=StartupFacts(attention_backend=NASTY, warnings=(NASTY,), resolved={NASTY: NASTY}),
        verdict=Verdict(kind="no_clear_winner", reference="default", text=NASTY),
        arms=(arm("default", 0, config(), 382.0, failures=(NASTY,)), arm("best", 4, best, 385.0)),
        changes=(Change(flag=NASTY, before=NASTY, after=NASTY, why=NASTY),),
        trials=(TrialRow(number=0, purpose="search", key="k", settings={NASTY: NASTY}, outcome="failed",
                         failure=FailureKind.CRASHED, reason=NASTY + "\n```\n" + path),),
        warnings=(NASTY,),
        command=f"llmtune optimize --model {path} --engine-command '/opt/my venv/bin/v llm$'",
    )


def predicted_plan() -> Plan:
    """Build a plan that no trial stands behind."""
    return gpu_plan(
        measured=False, complete=False, arms=(), trials=(), startup=StartupFacts(),
        sizing=Sizing(start_s=180.0, start_n=0),
        verdict=Verdict(kind="not_verified", reference="none", text="predicted to fit; nothing was measured"),
        command="llmtune plan --model llama-3-70b --gpu h100",
    )


def no_image_plan() -> Plan:
    """Build a plan for an engine that no image is known for, stopped before verification."""
    return make_plan(
        complete=False, launch=launch(image=None, image_program=()), arms=(),
        verdict=Verdict(kind="not_verified", reference="none", text="stopped before verification"),
        warnings=("verification did not run",),
    )


def warned_measurement() -> Measurement:
    """Build a measurement with a warning and failed requests."""
    return measurement(300.0, failed=2, completed=62, errors={"timeout": 2}, itl_ms=None, goodput_per_s=None,
                       warnings=(MeasureWarning(kind=Warn.ERRORS, detail="2 of 64 requests failed"),))


def trtllm_plan() -> Plan:
    """Build a plan of a program that reads its settings from a file, with another file to run by hand."""
    best = EngineConfig(engine="trtllm", version="1.2.1", settings=tuple(
        Setting(flag=flag, value=value, source="trial") for flag, value in (
            ("backend", "tensorrt"), ("kv_cache_config.free_gpu_memory_fraction", 0.85), ("max_batch_size", 256),
            ("tensor_parallel_size", 8))))
    install = EngineInstall(engine="trtllm", version="1.2.1", build="cuda", program=("/opt/trtllm/bin/trtllm-serve",))
    return gpu_plan(
        study=study(name="peak-hours", model=hub_model(), hardware=H100, engine=install,
                    space=SearchSpace(engine="trtllm", origin="search_spaces/trtllm.yaml", settings=(
                        SpaceSetting(flag="max_batch_size", values=(None, 256)),))),
        config=best, launch=ENGINES["trtllm"].launch(hub_model(), best, install), arms=(), trials=(),
        changes=(Change(flag="max_batch_size", before=None, after="256"),),
        verdict=Verdict(kind="not_verified", reference="none", text="stopped before verification"),
    )


CASES = {
    "cpu-local": make_plan,
    "h100x8-gated": gpu_plan,
    "nasty-names": nasty_plan,
    "predicted": predicted_plan,
    "no-image": no_image_plan,
    "trtllm-files": trtllm_plan,
}
"""Golden case to the function that builds its plan."""
