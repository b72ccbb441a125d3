"""The main job on the real vLLM: one study that is killed in mid-trial, resumed, verified, emitted and served.

A real start costs half a minute, so all of it is one study, and each test looks at one side of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from tuner.domain.plan import Plan
from tuner.output.bundle import bundle_files, load_plan

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

TOKEN = "hf_" + "Q" * 34
SPACE = """\
schema_version: 1
engine: vllm
settings:
  - flag: max-num-seqs
    values: [unset, 4]
  - flag: block-size
    values: [unset, 16]
"""


@dataclass
class Study:
    """What the whole story left behind."""

    folder: Path
    command: list[str]
    plan: Plan
    before: list[dict[str, object]]
    orphans: list[str]
    stderr: str
    stdout: str


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_TOKEN": TOKEN,
        "COLUMNS": "200",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def story(out: Path, engine: Path, model: Path, space: Path, *extra: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "tuner",
        "optimize",
        "--model",
        str(model),
        "--engine-command",
        str(engine),
        "--space",
        str(space),
        "--set",
        "enforce-eager=true",
        "--set",
        "max-model-len=1024",
        "--set",
        "dtype=float32",
        "--set",
        "env:VLLM_CPU_KVCACHE_SPACE=1",
        "--workload",
        "32x32@c16",
        "--out",
        str(out),
        "--study",
        "real",
        "--slo",
        "p95 ttft<=60s",
        "--accept-busy",
        *extra,
    ]


def processes_of(marker: str) -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if marker in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(f"{process.pid} {line[:120]}")
    return found


def finished(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "trials").glob("*/outcome.json"))]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, engine_command: Path, demo_model: Path) -> Iterator[Study]:
    out = tmp_path_factory.mktemp("outputs")
    space = out / "space.yaml"
    space.write_text(SPACE)
    baseline = f"vllm serve {demo_model} --max-num-seqs 2 --port 8000"
    command = story(
        out,
        engine_command,
        demo_model,
        space,
        "--baseline",
        baseline,
        "--trials",
        "4",
        "--finalists",
        "1",
        "--verify-rounds",
        "2",
        "--json",
    )
    folder = out / demo_model.name / "real"

    first = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    second_log = folder / "trials" / "0001" / "engine.log"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and first.poll() is None:
        if second_log.exists() and "Starting to load model" in second_log.read_text(errors="replace"):
            break
        time.sleep(0.2)
    assert first.poll() is None, first.stderr.read() if first.stderr else ""
    assert processes_of(str(demo_model))
    first.send_signal(signal.SIGKILL)
    first.communicate()  # its pipes end with it
    before = finished(folder)
    deadline = time.monotonic() + 30
    while processes_of(str(demo_model)) and time.monotonic() < deadline:
        time.sleep(0.2)
    orphans = processes_of(str(demo_model))

    second = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr[-4000:]
    yield Study(folder, command, load_plan(folder), before, orphans, second.stderr, second.stdout)
    assert not processes_of(str(demo_model))


def test_kill_leaves_no_process(study: Study) -> None:
    assert study.orphans == []


def test_resume_loses_no_finished_trial(study: Study) -> None:
    assert [trial["number"] for trial in study.before] == [0]
    now = {trial["number"]: trial for trial in finished(study.folder)}
    assert now[0] == study.before[0]
    assert "trial 1 was cut off; it is done again" in study.stderr
    rows = {row.number: row for row in study.plan.trials}
    assert rows[1].failure == "machine"
    assert rows[2].purpose == "baseline"


def test_no_configuration_runs_twice(study: Study) -> None:
    keys = [row.key for row in study.plan.trials if row.failure != "machine"]
    assert len(keys) == len(set(keys))


def test_outcomes_are_told_apart(study: Study) -> None:
    rows = study.plan.trials
    launched = [row for row in rows if row.outcome in ("measured", "dropped")]  # the race may end a slow one early
    assert len(launched) >= 3
    measured = [row for row in launched if row.outcome == "measured"]
    assert len(measured) >= 2
    assert all(row.score is not None and row.score.n > 1 for row in measured)
    assert all(row.reason for row in launched if row.outcome == "dropped")
    ruled_out = [row for row in rows if row.outcome == "infeasible"]
    assert ruled_out
    assert all("multiples of 32" in row.reason and row.score is None for row in ruled_out)


def test_verdict_comes_from_interleaved_rounds(study: Study) -> None:
    plan = study.plan
    assert {arm.label for arm in plan.arms} == {"baseline", "best"}
    assert all(len(arm.rounds) == 2 and not arm.failures for arm in plan.arms)
    best = next(arm for arm in plan.arms if arm.label == "best")
    assert best.ratio is not None
    assert plan.verdict.reference == "baseline"
    assert plan.verdict.kind in ("winner", "no_clear_winner", "keep_baseline")
    assert json.loads(study.stdout)["verdict"]["kind"] == plan.verdict.kind


def test_measurements_hold_what_the_server_counted(study: Study) -> None:
    for trial in finished(study.folder):
        outcome = trial["outcome"]
        assert isinstance(outcome, dict)
        if outcome["kind"] != "measured":
            continue
        measurement, before, after = outcome["measurement"], outcome["metrics_before"], outcome["metrics_after"]
        served = after["generation_tokens"] - before["generation_tokens"]
        warm = study.plan.study.workload.warmup_requests * 32
        assert measurement["output_tokens"] + warm == served
        assert measurement["failed"] == 0
        assert after["prefix_hits"] == before["prefix_hits"]


def test_every_trial_records_its_phases(study: Study) -> None:
    for trial in finished(study.folder):
        names = [phase["name"] for phase in trial["phases"]]  # type: ignore[attr-defined]
        if trial["outcome"]["kind"] == "measured":  # type: ignore[index]
            for name in ("launch", "start", "warm-up and load", "engine stops", "settle"):
                assert name in names


def test_no_token_in_any_file(study: Study) -> None:
    files = [path for path in study.folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        assert TOKEN.encode() not in path.read_bytes(), path
    assert TOKEN not in study.stderr + study.stdout


def test_emit_gives_the_same_bytes(study: Study, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "tuner", "emit", str(study.folder / "plan.json"), "--out", str(tmp_path)],
        check=True,
        env=environment(),
        capture_output=True,
    )
    for name in bundle_files(study.plan):
        assert (tmp_path / name).read_bytes() == (study.folder / name).read_bytes()


def test_compose_file_is_valid(study: Study) -> None:
    compose = study.folder / "deploy" / "compose.yaml"
    tool = Path(sys.executable).with_name("docker-compose")
    env = {**environment(), "MODEL_DIR": "/models/demo"}
    subprocess.run([str(tool), "-f", str(compose), "config", "-q"], check=True, env=env, capture_output=True)
    service = next(iter(yaml.safe_load(compose.read_text())["services"].values()))
    assert re.fullmatch(r"vllm/vllm-openai-cpu:v\d+\.\d+\.\d+", service["image"])


@pytest.fixture(scope="module")
def served(study: Study, engine_command: Path, demo_model: Path) -> Iterator[str]:
    """The URL of a server that was started by the emitted script, as a user would."""
    port = "18471"
    env = {**environment(), "VLLM": str(engine_command), "MODEL_DIR": str(demo_model), "PORT": port}
    server = subprocess.Popen(
        [str(study.folder / "deploy" / "serve.sh")],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 300
        healthy = False
        while not healthy and time.monotonic() < deadline and server.poll() is None:
            time.sleep(0.5)
            try:
                healthy = httpx.get(f"{url}/health", trust_env=False).status_code == 200
            except httpx.HTTPError:
                continue
        assert healthy
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


def test_serve_script_serves_what_was_measured(study: Study, served: str) -> None:
    name = httpx.get(f"{served}/v1/models", trust_env=False).json()["data"][0]["id"]
    assert name == study.plan.study.model.name
    body = {"model": name, "prompt": "a", "max_tokens": 3, "ignore_eos": True}
    answer = httpx.post(f"{served}/v1/completions", json=body, timeout=60, trust_env=False)
    assert answer.json()["usage"]["completion_tokens"] == 3
    metrics = httpx.get(f"{served}/metrics", trust_env=False).text
    info = next(line for line in metrics.splitlines() if line.startswith("vllm:cache_config_info{"))
    for key in ("block_size", "cache_dtype", "enable_prefix_caching", "kv_cache_size_tokens"):
        assert f'{key}="{study.plan.startup.resolved[key]}"' in info


def test_bench_counts_what_the_server_counts(served: str, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tuner",
        "bench",
        "--url",
        served,
        "--workload",
        "32x16@c4",
        "--requests",
        "32",
        "--slo",
        "p95 ttft<=60s",
        "--out",
        str(tmp_path),
        "--json",
    ]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert result["dialect"] == "vllm"
    level = result["levels"][0]
    measured, before, after = level["measurement"], level["before"], level["after"]
    assert (measured["failed"], level["meets_slo"]) == (0, True)
    sent = 32 + level["workload"]["warmup_requests"]
    assert after["requests_finished"] - before["requests_finished"] == sent
    assert after["generation_tokens"] - before["generation_tokens"] == 16 * sent
    assert after["prompt_tokens"] - before["prompt_tokens"] == 32 * sent
    assert after["prefix_hits"] == before["prefix_hits"]
    assert json.loads((tmp_path / "bench.json").read_text()) == result
    assert (tmp_path / level["requests_file"]).stat().st_size > 0


def test_finished_study_starts_nothing_again(study: Study) -> None:
    started = time.monotonic()
    again = subprocess.run(study.command, env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["verdict"]["kind"] == study.plan.verdict.kind
    assert load_plan(study.folder) == study.plan
    assert time.monotonic() - started < 60


def test_memory_that_is_not_there(engine_command: Path, demo_model: Path, tmp_path: Path) -> None:
    """A KV cache larger than the host: the engine refuses, and nothing can be measured."""
    space = tmp_path / "space.yaml"
    space.write_text(SPACE)
    command = story(tmp_path, engine_command, demo_model, space, "--trials", "1")
    command[command.index("env:VLLM_CPU_KVCACHE_SPACE=1")] = "env:VLLM_CPU_KVCACHE_SPACE=4096"
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 11, run.stderr
    assert "FAILED out_of_memory" in run.stderr
    assert "hint: the last launch failed: Available memory on node" in run.stderr
    trial = finished(tmp_path / demo_model.name / "real")[0]
    assert trial["outcome"]["failure"] == "out_of_memory"  # type: ignore[index]
    assert "Traceback" not in run.stderr


def test_flag_that_this_version_lost(engine_command: Path, demo_model: Path, tmp_path: Path) -> None:
    """Refused before anything is started or written, with the replacement."""
    space = tmp_path / "space.yaml"
    space.write_text(SPACE)
    out = tmp_path / "out"
    command = story(out, engine_command, demo_model, space, "--set", "swap-space=4")
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 5
    assert "no longer has --swap-space" in run.stderr
    assert "--kv-offloading-size" in run.stderr
    assert not out.exists()
