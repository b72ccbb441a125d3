"""What is emitted, against the real vLLM: the config file means what the arguments mean, and the pair starts it."""

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.fakes.cases import CASES
from tests.fakes.plans import config, local_model, make_plan
from tuner.domain.study import EngineInstall
from tuner.engines import ENGINES
from tuner.output import bundle

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PARSE = """
import json, sys
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
commands = parser.add_subparsers(required=False, dest="subparser")
for command in cmd_init():
    command.subparser_init(commands).set_defaults(dispatch_function=None)
for line in sys.stdin:
    said = vars(parser.parse_args(json.loads(line)))
    said.pop("config")
    print("PARSED " + json.dumps({key: repr(value) for key, value in said.items()}, sort_keys=True))
"""
REAL = [name for name in CASES if not name.startswith(("nasty", "trtllm"))]


def test_the_real_parser_reads_config_files_as_it_reads_the_arguments(engine_command, tmp_path):
    """Every switch that is off stays off, JSON arrives whole, numbers stay numbers."""
    asked = []
    for name in REAL:
        plan = CASES[name]()
        folder = tmp_path / name
        bundle.emit(plan, folder, targets=("vllm-config",))
        model = [plan.launch.model] if plan.launch.model_is_local else []
        asked += [["serve", *plan.launch.arguments],
                  ["serve", *model, "--config", str(folder / "deploy/vllm/config.yaml")]]
    done = subprocess.run([engine_command.parent / "python", "-c", PARSE], input="".join(json.dumps(one) + "\n" for one in asked),
                          capture_output=True, text=True, check=False, env={**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"})
    assert done.returncode == 0, done.stderr[-2000:]
    parsed = [json.loads(line.removeprefix("PARSED ")) for line in done.stdout.splitlines() if line.startswith("PARSED ")]
    assert len(parsed) == len(asked)
    for name, direct, by_file in zip(REAL, parsed[::2], parsed[1::2], strict=True):
        different = {key for key in direct if direct[key] != by_file[key]}
        # the model may stand in either of two places, which vLLM takes as one
        assert (name, different - {"model", "model_tag"}) == (name, set())
    off = parsed[2 * REAL.index("l4-switched-off") + 1]
    assert (off["enable_prefix_caching"], off["enable_chunked_prefill"]) == ("False", "False")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(script: Path, engine_command: Path, model: Path, log: Path):
    """Start an emitted script and return its log and what its metrics say, once it answers."""
    port = free_port()
    env = {**os.environ, "VLLM": str(engine_command), "MODEL_DIR": str(model), "PORT": str(port), "HF_HUB_OFFLINE": "1"}
    with log.open("w") as out:
        server = subprocess.Popen(["bash", script], env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        end = time.monotonic() + 300
        while time.monotonic() < end and server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    return log.read_text(), answer.read().decode()
            except OSError:
                time.sleep(0.5)
        pytest.fail(f"no answer, exit {server.poll()}: {log.read_text()[-1500:]}")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@pytest.mark.parametrize("script", ["vllm/start.sh"])
def test_the_emitted_pair_starts_the_engine_with_the_settings_of_the_plan(script, engine_command, demo_model, tmp_path):
    best = config(("enable-prefix-caching", False), ("max-num-seqs", 8), ("max-model-len", 512), ("block-size", 32),
                  ("env:VLLM_CPU_KVCACHE_SPACE", "1"), ("enforce-eager", True))
    model = local_model(location=str(demo_model), name="tiny-llama", requested="tiny-llama")
    install = EngineInstall(engine="vllm", version="0.32.0", build="cpu", program=(str(engine_command), "serve"))
    plan = make_plan(config=best, launch=ENGINES["vllm"].launch(model, best, install))
    bundle.emit(plan, tmp_path / "bundle", targets=("vllm-config",))
    log, metrics = start(tmp_path / "bundle/deploy" / script, engine_command, demo_model, tmp_path / "log")
    facts = ENGINES["vllm"].startup_facts(log, metrics)
    assert facts.resolved["enable_prefix_caching"] == "False"
    assert facts.resolved["block_size"] == "32"
    assert facts.resolved["max_model_len"] == "512"
    assert re.search(r"max_num_seqs['\"]?[:=] ?8\b", log)
