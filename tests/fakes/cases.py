"""Every golden case: engines, hardware and settings, and the formats that its committed bundle is written in."""

from __future__ import annotations

from typing import Any

from tests.fakes.plans import CASES as BASE
from tests.fakes.plans import arm, config, estimate, gpu_plan, hub_model, make_plan, study, trtllm_plan
from tuner.domain.engine import EngineConfig, Setting, StartupFacts
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.plan import Change, Importance, NoiseFloor, Plan, Sizing, Soak, TrialRow, Verdict
from tuner.domain.slo import parse_slo
from tuner.domain.study import EngineInstall
from tuner.domain.trial import FailureKind, LoadPoint
from tuner.domain.workload import ClosedLoop, Fixed, OpenLoop, Sessions, Workload
from tuner.engines import ENGINES
from tuner.output.emitters import ALWAYS, DEFAULT_TARGETS, EMITTERS

GIB = 1 << 30


def gpus(name: str, gib: float, count: int, capability: float) -> Hardware:
    return Hardware(kind="cuda", driver="570.86.15", cores=32, memory_bytes=512 * GIB, gpus=tuple(
        Gpu(name=name, memory_bytes=int(gib * GIB), capability=capability, index=index) for index in range(count)))


H100 = ("NVIDIA H100 80GB HBM3", 79.6, 9.0)
H200 = ("NVIDIA H200", 139.8, 9.0)
L4 = ("NVIDIA L4", 22.0, 8.9)
A100 = ("NVIDIA A100-SXM4-80GB", 79.3, 8.0)


def vllm_plan(
    name: str, model: ModelSpec, hardware: Hardware, settings: dict[str, Any], *, version: str = "0.32.0",
    image: str | None = None, build: str = "cuda", secrets: tuple[str, ...] = (), **changes: Any,
) -> Plan:
    """Build a measured plan whose launch spec is the engine's own."""
    best = config(*settings.items(), version=version)
    install = EngineInstall(engine="vllm", version=version, build=build, program=("vllm", "serve"), image=image)
    launch = ENGINES["vllm"].launch(model, best, install)
    launch = launch.model_copy(update={"secret_env": (*launch.secret_env, *secrets)})
    fields: dict[str, Any] = {
        "study": study(name=name, model=model, hardware=hardware, engine=install, slo=parse_slo("p95 ttft<=500ms, p99 itl<=80ms"),
                       workload=changes.pop("workload", None) or Workload(
                           name="chat", input_tokens=Fixed(tokens=512), output_tokens=Fixed(tokens=128),
                           arrivals=ClosedLoop(concurrency=32), requests=640)),
        "config": best, "launch": launch,
        "arms": (arm("default", 0, config(version=version), 900.0),
                 arm("best", 4, best, 1200.0, ratio=estimate(1.33, 0.03))),
        "changes": tuple(Change(flag=flag, before=None, after=str(value)) for flag, value in sorted(settings.items())),
        "trials": (),
        "verdict": Verdict(kind="winner", reference="default", text="33% more output tokens/s than the default [29%, 37%]"),
        "sizing": Sizing(start_s=95.0, start_n=4, peak_memory_bytes=9 * GIB),
        "command": f"llmtune optimize --model {model.requested} --workload chat",
    }
    return make_plan(**{**fields, **changes})


def open_model(location: str, parameters: float, **changes: Any) -> ModelSpec:
    name = location.rpartition("/")[2]
    return hub_model(requested=location, name=name, location=location, source="hub", gated=False,
                     parameters=int(parameters), **changes)


def two_hosts() -> Plan:
    """DeepSeek-V3 on two hosts of eight GPUs: a mixture of experts, experts spread over all of them."""
    return vllm_plan(
        "two-hosts", open_model("deepseek-ai/DeepSeek-V3", 671e9, weight_bytes=688 * 10**9, revision="e9b33add76883f293d6bf61f6bd89b497e80e335"),
        gpus(*H200[:2], 8, H200[2]),
        {"tensor-parallel-size": 8, "pipeline-parallel-size": 2, "nnodes": 2, "enable-expert-parallel": True,
         "max-num-seqs": 256, "gpu-memory-utilization": 0.92},
        sizing=Sizing(start_s=640.0, start_n=3, peak_memory_bytes=210 * GIB, knee_in_flight=192),
    )


def mixture() -> Plan:
    """A mixture of experts in MXFP4 on one GPU, sessions of users."""
    return vllm_plan(
        "moe", open_model("openai/gpt-oss-120b", 117e9, weight_bytes=65 * 10**9, revision="b5c939de8f754692c1647ca79fbf85e8c1e70f8a"),
        gpus(*H100[:2], 1, H100[2]),
        {"max-num-batched-tokens": 8192, "async-scheduling": True, "max-model-len": 32768},
        workload=Workload(name="assistants", input_tokens=Fixed(tokens=800), output_tokens=Fixed(tokens=200),
                          arrivals=Sessions(users=40, turns=Fixed(tokens=4), think_s=5), requests=400),
    )


def speculative() -> Plan:
    """Speculative decoding, whose settings are one JSON value, with a sweep behind the autoscaler."""
    return vllm_plan(
        "speculative", open_model("Qwen/Qwen3-32B", 32.8e9, weight_bytes=65_600_000_000, revision="9216db5781bf21249d130ec9da846c4624c16137"),
        gpus(*H100[:2], 2, H100[2]),
        {"tensor-parallel-size": 2, "max-num-seqs": 128,
         "speculative-config": '{"method": "eagle3", "model": "RedHatAI/Qwen3-32B-speculator.eagle3", "num_speculative_tokens": 3}'},
        sizing=Sizing(start_s=130.5, start_n=5, peak_memory_bytes=12 * GIB, knee_in_flight=57.5),
    )


def switched_off() -> Plan:
    """A small GPU with switches that are off, a variable, and a value that begins with a dash."""
    return vllm_plan(
        "small-gpu", open_model("Qwen/Qwen2.5-7B-Instruct-AWQ", 7.6e9, weight_bytes=5_570_000_000, revision="b25037543e9394b818fdfca67ab2a00ecc7dd641"),
        gpus(*L4[:2], 1, L4[2]),
        {"enable-prefix-caching": False, "enable-chunked-prefill": False, "max-model-len": 8192, "quantization": "awq_marlin",
         "kv-cache-dtype": "fp8", "gpu-memory-utilization": 0.95, "env:VLLM_USE_FLASHINFER_SAMPLER": "0", "seed": -1},
        workload=Workload(name="rate", input_tokens=Fixed(tokens=512), output_tokens=Fixed(tokens=128),
                          arrivals=OpenLoop(rate_per_s=4), requests=640),
    )


def private_registry() -> Plan:
    """An image pinned by digest, an API key, and an SLO that Prometheus sees only in part."""
    plan = vllm_plan(
        "api-key", open_model("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 24e9, revision="95a6d26c4bfb886c58daf9d3f7332c857cb27b44"),
        gpus(*A100[:2], 2, A100[2]), {"tensor-parallel-size": 2, "tokenizer-mode": "mistral", "max-num-seqs": 64},
        image="registry.example.com/team/vllm-openai@sha256:" + "a1b2" * 16, secrets=("VLLM_API_KEY",),
    )
    limits = parse_slo("p95 ttft<=250ms, mean e2e<=4s, p99 tpot<=60ms, error_rate<=0.1%")
    return plan.model_copy(update={"study": plan.study.model_copy(update={"slo": limits})})


def hub_cpu() -> Plan:
    """A hub model on a CPU."""
    hardware = Hardware(kind="cpu", cpu="Intel Xeon Platinum 8480+", cores=16, memory_bytes=64 * GIB,
                        cpu_features=("avx2", "avx512f", "amx_tile"))
    return vllm_plan(
        "cpu", open_model("HuggingFaceTB/SmolLM2-360M-Instruct", 362e6, revision="a10cc1512eabd3dde888204e902eca88bddb4951"),
        hardware, {"env:VLLM_CPU_KVCACHE_SPACE": "8", "dtype": "bfloat16", "enforce-eager": True}, build="cpu",
        sizing=Sizing(start_s=38.0, start_n=4, peak_memory_bytes=11 * GIB),
    )


def data_parallel() -> Plan:
    """Replicas inside one server, no limit kept: nothing to scale by."""
    plan = vllm_plan(
        "data-parallel", open_model("Qwen/Qwen3-30B-A3B", 30.5e9, weight_bytes=61 * 10**9, revision="ad44e777bcd18fa416d9da3bd8f70d33ebb85d39"),
        gpus(*A100[:2], 4, A100[2]), {"data-parallel-size": 4, "enable-expert-parallel": True},
        verdict=Verdict(kind="nothing_meets_slo", reference="default", text="nothing that was tried keeps p95 ttft<=500ms"),
    )
    missed = tuple(one.model_copy(update={"meets_slo": False}) for one in plan.arms)
    return plan.model_copy(update={"arms": missed})


def trtllm_watched() -> Plan:
    """TensorRT-LLM with its PyTorch back end and a Prometheus page."""
    best = EngineConfig(engine="trtllm", version="1.2.1", settings=tuple(
        Setting(flag=flag, value=value, source="trial") for flag, value in (
            ("kv_cache_config.enable_block_reuse", False), ("kv_cache_config.free_gpu_memory_fraction", 0.9),
            ("max_batch_size", 512), ("return_perf_metrics", True), ("tensor_parallel_size", 4))))
    model = open_model("Qwen/Qwen3-32B", 32.8e9, revision="9216db5781bf21249d130ec9da846c4624c16137")
    install = EngineInstall(engine="trtllm", version="1.2.1", build="cuda", program=("trtllm-serve",))
    plan = trtllm_plan()
    launch = ENGINES["trtllm"].launch(model, best, install)
    base = config()
    return plan.model_copy(update={
        "config": best, "launch": launch,
        "study": plan.study.model_copy(update={"model": model, "hardware": gpus(*H100[:2], 4, H100[2]), "engine": install}),
        "sizing": Sizing(start_s=160.0, start_n=4, peak_memory_bytes=30 * GIB, knee_in_flight=110),
        "arms": (arm("default", 0, base.model_copy(update={"engine": "trtllm", "version": "1.2.1"}), 3000.0),
                 arm("best", 3, best, 3600.0, ratio=estimate(1.2, 0.02))),
        "verdict": Verdict(kind="winner", reference="default", text="20% more output tokens/s than the default [18%, 22%]"),
    })


def trtllm_two_hosts() -> Plan:
    """TensorRT-LLM over two hosts of eight GPUs, which only MPI starts."""
    best = EngineConfig(engine="trtllm", version="1.2.1", settings=tuple(
        Setting(flag=flag, value=value, source="trial") for flag, value in (
            ("enable_attention_dp", True), ("gpus_per_node", 8), ("kv_cache_config.free_gpu_memory_fraction", 0.85),
            ("max_batch_size", 128), ("moe_expert_parallel_size", 16), ("tensor_parallel_size", 16))))
    model = open_model("deepseek-ai/DeepSeek-R1", 671e9, weight_bytes=688 * 10**9, revision="56d4cbbb4d29f4355bab4b9a39ccb717a14ad5ad")
    install = EngineInstall(engine="trtllm", version="1.2.1", build="cuda", program=("trtllm-serve",))
    plan = trtllm_watched()
    first, second = plan.arms
    return plan.model_copy(update={
        "config": best, "launch": ENGINES["trtllm"].launch(model, best, install),
        "study": plan.study.model_copy(update={"name": "two-hosts", "model": model, "hardware": gpus(*H200[:2], 8, H200[2]), "engine": install}),
        "sizing": Sizing(start_s=900.0, start_n=3, peak_memory_bytes=200 * GIB),
        "arms": (first, second.model_copy(update={"config": best})),
    })


def swept(best: float, base_ms: float) -> tuple[LoadPoint, ...]:
    """Load levels of a server that saturates at `best` tokens/s, whose TTFT starts at `base_ms`."""
    found = []
    for clients in (1, 2, 4, 8, 16, 24, 32):
        ttft = base_ms * (1 + (clients / 12) ** 2.5)
        found.append(LoadPoint(
            clients=clients, in_flight=0.96 * clients, requests=40 * clients, meets_slo=ttft <= 500,
            output_tokens_per_s=estimate(round(best * clients / (clients + 9), 1), 0.03, 40),
            requests_per_s=estimate(round(best * clients / (clients + 9) / 128, 3), 0.03, 40),
            p95_ttft_ms=estimate(round(ttft, 1), 0.1, 40), p95_itl_ms=estimate(16.0 + clients, 0.04, 40),
            limits={"p95 ttft<=500ms": estimate(round(ttft, 1), 0.1, 40), "p99 itl<=80ms": estimate(20.0 + clients, 0.05, 40)},
            note="ended early: the SLO is out of reach" if clients == 32 else ""))
    return tuple(found)


def searched(best: EngineConfig) -> tuple[TrialRow, ...]:
    """A search over three settings with every kind of outcome, by two objectives."""
    rows = []
    for number, (seqs, batched, outcome, score, ttft, front) in enumerate((
        (None, None, "measured", 2100.0, 310.0, False), (16, 2048, "measured", 1500.0, 140.0, True),
        (256, 16384, "dropped", None, None, False), (64, 8192, "measured", 2900.0, 330.0, True),
        (64, 16384, "missed", 3050.0, 720.0, False), (512, 8192, "infeasible", None, None, False),
        (128, 8192, "measured", 3200.0, 410.0, True), (128, 65536, "failed", None, None, False),
        (32, 8192, "measured", 2300.0, 240.0, True), (32, 2048, "measured", 1900.0, 260.0, False),
        (128, 2048, "dropped", None, None, False), (96, 8192, "measured", 3080.0, 365.0, True),
    )):
        settings = {} if seqs is None else {"max-num-seqs": str(seqs), "max-num-batched-tokens": str(batched)}
        measured = score is not None
        rows.append(TrialRow(
            number=number, purpose="search" if number else "default", settings=settings,
            key=best.key if number == 6 else config(*settings.items()).key,
            outcome="measured" if measured else outcome, failure=FailureKind.OUT_OF_MEMORY if outcome == "failed" else None,
            reason={"dropped": "p95 ttft<=500ms is out of reach: at least 812 ms after 120 requests",
                    "infeasible": "needs 94.1 GiB of 79.3 GiB a device", "failed": "torch.OutOfMemoryError: CUDA out of memory",
                    }.get(outcome, ""),
            score=estimate(score, 0.03) if score else None, meets_slo=outcome != "missed" if measured else None,
            start_s=None if outcome == "infeasible" else 92.0 + number, own_s=None if outcome == "infeasible" else 0.4,
            seconds={"infeasible": None, "failed": 60.0, "dropped": 150.0}.get(outcome, 260.0 + 2 * number),
            values={"output_tokens_per_s": estimate(score, 0.03), "p95_ttft": estimate(ttft, 0.08)} if score and ttft else {},
            on_front=front, predicted=estimate(round((score or 2500.0) * (1.1 if number % 2 else 0.93), 1), 0.15) if number > 1 else None))
    return tuple(rows)


def replicas() -> Plan:
    """Four servers of two GPUs on one machine, found by a search with every kind of outcome, by two objectives."""
    plan = vllm_plan(
        "replicas", open_model("Qwen/Qwen2.5-32B-Instruct", 32.8e9, weight_bytes=65_500_000_000, revision="5ede1c97bbab6ce5cda5812749b4c0bdf79b18dd"),
        gpus(*A100[:2], 8, A100[2]), {"tensor-parallel-size": 2, "max-num-seqs": 128, "max-num-batched-tokens": 8192},
        sizing=Sizing(start_s=97.0, start_n=9, peak_memory_bytes=11 * GIB, replicas=4, knee_in_flight=15.4),
        workload=Workload(name="chat", input_tokens=Fixed(tokens=512), output_tokens=Fixed(tokens=128),
                          arrivals=ClosedLoop(concurrency=64), requests=1280),
        verdict=Verdict(kind="winner", reference="default", text="52% more output tokens/s than the default [47%, 57%]"),
        startup=StartupFacts(kv_cache_tokens=151_000, kv_cache_bytes=37 * GIB, weight_bytes=31 * GIB, graph_bytes=GIB,
                             attention_backend="FLASH_ATTN"),
        importances=(Importance(flag="max-num-seqs", share=0.62), Importance(flag="max-num-batched-tokens", share=0.24)),
        noise=NoiseFloor(share=0.031, boots=5, rounds=3),
        soak=Soak(seconds=1800, requests=21_400, failed=0, throughput_change=-0.012, p95_ttft_change=0.034,
                  memory_growth_bytes=41 << 20, preemptions=0, fill_tokens=32_767),
    )
    first, second = plan.arms
    return plan.model_copy(update={
        "study": plan.study.model_copy(update={"also": ("p95_ttft",)}),
        "trials": searched(plan.config),
        "arms": (first.model_copy(update={"levels": swept(650.0, 190.0), "score": estimate(2110.0, 0.02)}),
                 second.model_copy(update={"levels": swept(980.0, 120.0), "replicas": 4, "score": estimate(3210.0, 0.02),
                                           "ratio": estimate(1.52, 0.03)})),
    })


def everything(build: Any) -> Plan:
    """Build the same plan under another study name, for a bundle in every format."""
    plan = build()
    return plan.model_copy(update={"study": plan.study.model_copy(update={"name": f"{plan.study.name}-all"[-60:]})})


EVERY_FORMAT = {
    "two-hosts-moe": two_hosts,
    "h100-moe": mixture,
    "h100x2-speculative": speculative,
    "l4-switched-off": switched_off,
    "a100x8-replicas": replicas,
    "a100x2-digest-api-key": private_registry,
    "cpu-hub": hub_cpu,
    "a100x4-data-parallel": data_parallel,
    "trtllm-h100x4": trtllm_watched,
    "trtllm-two-hosts": trtllm_two_hosts,
    "h100x8-gated-all": lambda: everything(gpu_plan),
    "predicted-all": lambda: everything(BASE["predicted"]),
    "cpu-local-all": lambda: everything(make_plan),
    "nasty-names-all": lambda: everything(BASE["nasty-names"]),
    "no-image-all": lambda: everything(BASE["no-image"]),
}
"""Cases whose bundles are written in every format that the plan fits."""

CASES = {**BASE, **EVERY_FORMAT}


def targets(case: str, plan: Plan) -> tuple[str, ...]:
    """Return the formats of a case's bundle."""
    if case not in EVERY_FORMAT:
        return DEFAULT_TARGETS
    return tuple(name for name, emitter in EMITTERS.items() if name not in ALWAYS and not emitter.refusal(plan))
