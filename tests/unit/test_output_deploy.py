"""Compose file, scripts and README: pinned, sized by measurement, closed by default, nothing secret."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.plans import gpu_plan, hub_model, launch, local_model, make_plan, nasty_plan, no_image_plan, study
from tests.fakes.texts import ANY
from tuner.domain.plan import Sizing
from tuner.errors import OutputError
from tuner.output import container as box
from tuner.output import readme, scripts
from tuner.output.compose import ComposeEmitter, escape, unescape
from tuner.output.emitters import EMITTERS
from tuner.output.scripts import DockerRunEmitter, ServeScriptEmitter

pytestmark = pytest.mark.unit



def compose(plan):
    return yaml.safe_load(ComposeEmitter().files(plan)["compose.yaml"])


def server(plan):
    return compose(plan)["services"]["server"]


def open_hub_plan(**changes):
    plan = gpu_plan()
    return gpu_plan(study=plan.study.model_copy(update={"model": hub_model(gated=False)}), **changes)


@pytest.mark.parametrize(("start_s", "period_s"), [
    (0, 60), (3, 60), (30, 60), (30.1, 90), (41.25, 90), (45, 90), (60, 120), (61, 180), (100, 240), (150, 300),
    (200, 420), (212.4, 600), (300, 600), (301, 900), (420, 900), (1000, 2100),
])
def test_start_period_is_twice_the_measured_start_in_round_steps(start_s, period_s):
    assert box.start_period_s(start_s) == period_s


@given(st.floats(0, 20_000))
def test_start_period_always_covers_twice_the_start_without_excess(start_s):
    period = box.start_period_s(start_s)
    assert period >= max(60, 2 * start_s)
    assert period <= max(60, 2 * start_s * 1.51, 2 * start_s + 300)


def test_compose_has_the_required_manners():
    document = compose(gpu_plan())
    service = document["services"]["server"]
    assert "version" not in document
    assert document["name"] == "meta-llama-3-70b-instruct"
    assert service["image"] == "vllm/vllm-openai:v0.32.0"
    assert service["command"][0] == "meta-llama/Meta-Llama-3-70B-Instruct"
    assert "serve" not in service["command"]
    assert "entrypoint" not in service
    assert service["restart"] == "on-failure:3"
    assert service["ipc"] == "host"
    assert service["ports"] == ["${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-8000}:8000"]
    assert int(service["stop_grace_period"].removesuffix("s")) >= 30
    assert service["deploy"]["resources"]["reservations"]["devices"] == [
        {"driver": "nvidia", "count": 8, "capabilities": ["gpu"]}]


def test_the_health_check_is_sized_from_the_measured_start():
    check = server(gpu_plan())["healthcheck"]
    assert check["test"] == ["CMD", "curl", "-f", "-sS", "http://localhost:8000/health"]
    assert check["start_period"] == "600s"
    assert server(gpu_plan(sizing=Sizing(start_s=4000, start_n=3)))["healthcheck"]["start_period"] == "8100s"


def test_another_port_and_health_path_reach_every_file():
    plan = make_plan(launch=launch(port=9000, health_path="/ready"))
    service = server(plan)
    assert service["ports"] == ["${LLMTUNE_BIND:-127.0.0.1}:${LLMTUNE_PORT:-9000}:9000"]
    assert service["healthcheck"]["test"][-1] == "http://localhost:9000/ready"
    assert service["command"][-4:] == ["--host", "0.0.0.0", "--port", "9000"]
    assert "port=${PORT:-9000}" in ServeScriptEmitter().files(plan)["serve.sh"]
    assert "http://127.0.0.1:9000/ready" in EMITTERS["readme"].files(plan)["README.md"]


def test_a_cpu_plan_reserves_no_gpu_and_shares_no_memory():
    service = server(make_plan())
    assert "deploy" not in service
    assert "ipc" not in service
    script = DockerRunEmitter().files(make_plan())["docker-run.sh"]
    assert "--gpus" not in script
    assert "--ipc" not in script


def test_a_gated_hub_model_reads_its_token_from_a_secret_file():
    document = compose(gpu_plan())
    service = document["services"]["server"]
    assert document["secrets"] == {"hf_token": {"environment": "HF_TOKEN"}}
    assert service["secrets"] == ["hf_token"]
    assert service["environment"]["HF_TOKEN_PATH"] == "/run/secrets/hf_token"
    assert "HF_TOKEN" not in service["environment"]


def test_an_open_hub_model_takes_a_token_but_needs_none():
    document = compose(open_hub_plan())
    assert "secrets" not in document
    assert document["services"]["server"]["environment"]["HF_TOKEN"] is None
    assert "  --env HF_TOKEN\n" in DockerRunEmitter().files(open_hub_plan())["docker-run.sh"]


def test_a_local_model_is_never_handed_a_token():
    plan = make_plan(launch=launch(secret_env=("HF_TOKEN",)), study=study(model=local_model(gated=True)))
    for emitter in EMITTERS.values():
        assert not any("HF_TOKEN" in text for text in emitter.files(plan).values())


def test_no_token_of_the_environment_is_ever_written(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    for emitter in EMITTERS.values():
        assert not any("hf_abcdefghijklmnop" in text for text in emitter.files(gpu_plan()).values())


def test_a_local_model_is_mounted_read_only_and_must_be_named():
    mounts = server(make_plan())["volumes"]
    assert mounts[0] == {"type": "bind", "source": "${MODEL_DIR:?set MODEL_DIR to the directory of the model}",
                         "target": "/models/tiny-15m", "read_only": True}
    assert mounts[1:] == ["engine-cache:/root/.cache/vllm"]


def test_a_hub_model_keeps_its_downloads_and_the_compile_cache():
    document = compose(gpu_plan())
    assert document["services"]["server"]["volumes"] == [
        "${LLMTUNE_HF_CACHE:-hf-cache}:/root/.cache/huggingface", "engine-cache:/root/.cache/vllm"]
    assert document["volumes"] == {"hf-cache": {"name": "llmtune-hf-cache"}, "engine-cache": {"name": "llmtune-vllm-cache"}}
    script = DockerRunEmitter().files(gpu_plan())["docker-run.sh"]
    assert '"${LLMTUNE_HF_CACHE:-llmtune-hf-cache}:/root/.cache/huggingface"' in script
    assert "--volume llmtune-vllm-cache:/root/.cache/vllm" in script


def test_an_image_whose_entry_point_is_not_known_gets_one():
    plan = make_plan(launch=launch(program=("/x/bin/python3.11", "-m", "server"), image_program=()))
    service = server(plan)
    assert service["entrypoint"] == ["python3.11"]
    assert service["command"][:3] == ["-m", "server", "/models/tiny-15m"]
    script = DockerRunEmitter().files(plan)["docker-run.sh"]
    assert "--entrypoint python3.11" in script


def test_an_entry_point_that_runs_only_part_of_the_program_is_completed():
    plan = make_plan(launch=launch(image_program=("vllm",)))
    assert server(plan)["command"][:2] == ["serve", "/models/tiny-15m"]


def test_without_an_image_there_is_no_container():
    assert box.container(no_image_plan()) is None
    assert ComposeEmitter().files(no_image_plan()) == {}
    assert DockerRunEmitter().files(no_image_plan()) == {}


@pytest.mark.parametrize(("arguments", "served", "wanted"), [
    (("/m", "--served-model-name", "x"), "x", ("NEW", "--served-model-name", "x")),
    (("--model", "/m", "--tokenizer", "/m"), "x", ("--model", "NEW", "--tokenizer", "NEW")),
    (("--model=/m", "--dir=/m2"), "x", ("--model=NEW", "--dir=/m2")),
    (("/m", "--served-model-name", "/m"), "/m", ("NEW", "--served-model-name", "/m")),
    (("--model=/m", "--served-model-name=/m"), "/m", ("--model=NEW", "--served-model-name=/m")),
    (("x=/m",), "x", ("x=/m",)),
])
def test_only_the_path_of_the_model_is_replaced(arguments, served, wanted):
    assert box.with_model(launch(arguments=arguments, model="/m", served_name=served), "NEW") == wanted


@given(ANY)
def test_escaping_for_compose_can_be_undone(text):
    assert unescape(escape(text)) == text


@pytest.mark.parametrize(("program", "variable"), [
    ("vllm", "VLLM"), ("/x/bin/trtllm-serve", "TRTLLM_SERVE"), ("python3.11", "PYTHON3_11"), ("7z", "LLMTUNE_7Z"),
    ("path", "LLMTUNE_PATH"), ("host", "LLMTUNE_HOST"), ("---", "PROGRAM"), ("cache_dir", "LLMTUNE_CACHE_DIR"),
])
def test_the_variable_of_the_program_is_named_after_it_and_takes_no_other_place(program, variable):
    assert scripts.program_variable(launch(program=(program, "serve"), env={"CACHE_DIR": "x"})) == variable


def test_arguments_stand_one_flag_a_line():
    words = ["m", "--a", "1", "--b", "--c=2", "x", "--d", "-1", "--list", "a b", "c"]
    assert scripts.argument_lines(words) == ["m", "--a 1", "--b", "--c=2", "x", "--d", "-1", "--list 'a b'", "c"]


@pytest.mark.parametrize("name", ["A B", "1A", "", "A=B", "A-B"])
@pytest.mark.parametrize("emitter", [ServeScriptEmitter(), DockerRunEmitter()])
def test_a_variable_that_a_shell_cannot_set_is_refused(emitter, name):
    with pytest.raises(OutputError, match="environment variable"):
        emitter.files(make_plan(launch=launch(env={name: "x"})))


@pytest.mark.parametrize(("image", "pinned"), [
    ("vllm/vllm-openai:v0.32.0", True), ("vllm/vllm-openai:latest", False), ("vllm/vllm-openai", False),
    ("registry:5000/vllm", False), ("registry:5000/vllm:v1", True), ("vllm/vllm-openai:nightly-abc", False),
    ("x@sha256:0123", True), ("x:latest@sha256:0123", True), ("x:nightly", False), ("x:v0.32.0-cpu", True),
])
def test_images_without_an_exact_version_are_known(image, pinned):
    assert readme.is_pinned(image) == pinned


def test_the_readme_warns_of_an_image_that_floats():
    text = EMITTERS["readme"].files(make_plan(launch=launch(image="vllm/vllm-openai:latest")))["README.md"]
    assert "has no exact version in its tag" in text
    assert "no exact version" not in EMITTERS["readme"].files(make_plan())["README.md"]


def test_the_readme_names_every_variable_that_the_files_read():
    for plan in (make_plan(), gpu_plan(), open_hub_plan(), no_image_plan(), nasty_plan()):
        files = {name: text for emitter in EMITTERS.values() for name, text in emitter.files(plan).items()}
        read = set()
        for name in ("compose.yaml", "docker-run.sh", "serve.sh"):
            body = "\n".join(line for line in files.get(name, "").splitlines() if not line.startswith("#"))
            read |= set(re.findall(r"(?<!\$)\$\{([A-Z][A-Z0-9_]*):", body))
        documented = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", files["README.md"], flags=re.MULTILINE))
        example = {line.removesuffix("=") for line in files[".env.example"].splitlines() if re.match(r"[A-Z]", line)}
        assert example == documented
        assert read - {"DOCKER", "X", "HOME"} <= documented


def test_env_is_ignored_by_git():
    assert EMITTERS["readme"].files(make_plan())[".gitignore"].splitlines()[-1] == ".env"
