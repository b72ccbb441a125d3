"""What is quoted comes through the real bash and the real Compose as the same text, and runs nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.readers import expand, unit_words
from tests.fakes.plans import gpu_plan, make_plan, nasty_plan
from tests.fakes.texts import ANY
from tuner.output import pod, quoting
from tuner.output.autoscale import promql
from tuner.output.compose import escape, unescape
from tuner.output.emitters import EMITTERS
from tuner.output.flags import take_apart
from tuner.output.scripts import DockerRunEmitter, ServeScriptEmitter
from tuner.output.systemd import unit_assignment, unit_word

pytestmark = pytest.mark.contract

BIN = Path(sys.executable).parent


def bash_words(script: str) -> list[str]:
    run = subprocess.run(["bash", "-euo", "pipefail"], input=script.encode(), capture_output=True, check=True)
    assert run.stderr == b""
    return run.stdout.decode().split("\0")[:-1]


@given(st.lists(ANY, min_size=1, max_size=60))
@settings(max_examples=25)
def test_any_text_comes_through_bash_as_the_same_words(texts):
    lines = "\n".join(f"  {quoting.shell(text)}" for text in texts)
    assert bash_words(f"args=(\n{lines}\n)\nprintf '%s\\0' \"${{args[@]}}\"\n") == texts


@given(st.lists(ANY, min_size=1, max_size=40))
@settings(max_examples=15)
def test_any_text_comes_through_an_export_and_a_default(texts):
    script = "".join(
        f"export V{i}={quoting.shell(text)}\nW{i}=${{UNSET_{i}:-{quoting.shell(text)}}}\n"
        f"printf '%s\\0' \"$V{i}\" \"$W{i}\"\n"
        for i, text in enumerate(texts)
    )
    assert bash_words(script) == [text for text in texts for _ in range(2)]


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=30))
@settings(max_examples=10)
def test_a_mark_becomes_the_variable_and_the_text_around_it_stays(pairs):
    words = [quoting.shell_word(f"{before}{quoting.mark('host')}{after}", {"host": "host"}) for before, after in pairs]
    script = f"host='::1 $x'\nprintf '%s\\0' {' '.join(words)}\n"
    assert bash_words(script) == [f"{before}::1 $x{after}" for before, after in pairs]


@given(st.lists(ANY, min_size=1, max_size=50))
@settings(max_examples=10)
def test_comments_do_nothing_in_bash(texts):
    assert bash_words("\n".join(map(quoting.comment, texts)) + "\nprintf 'end\\0'\n") == ["end"]


def test_nothing_was_run(tmp_path: Path):
    quoted = quoting.shell(f"$(touch {tmp_path}/pwned)`touch {tmp_path}/pwned`")
    subprocess.run(["bash", "-c", f"true {quoted}"], check=True)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(ANY, min_size=20, max_size=60))
@settings(max_examples=8)
def test_any_text_comes_through_the_real_compose_parser(texts):
    document = {"services": {"server": {
        "image": "a/b:v1", "command": [escape(text) for text in texts],
        "environment": {f"V{index}": escape(text) for index, text in enumerate(texts)},
    }}}
    run = subprocess.run([BIN / "docker-compose", "-p", "x", "-f", "-", "config", "--format", "json"],
                         input=quoting.dump_yaml(document).encode(), capture_output=True, check=False,
                         env={"PATH": os.environ["PATH"], "A": "wrong"})
    assert run.returncode == 0, run.stderr
    service = json.loads(run.stdout)["services"]["server"]
    assert [unescape(text) for text in service["command"]] == texts
    assert [unescape(service["environment"][f"V{index}"]) for index in range(len(texts))] == texts


def start(script, tmp_path, **env):
    path = tmp_path / "x.sh"
    path.write_text(script)
    return subprocess.run(["bash", path], env={"PATH": os.environ["PATH"], **env}, cwd=tmp_path, capture_output=True,
                          text=True, check=False)


@pytest.mark.parametrize("env", [{}, {"MODEL_DIR": ""}, {"MODEL_DIR": "/not/there"}])
def test_scripts_say_what_to_set_when_the_model_is_missing(tmp_path, env):
    for emitter in (ServeScriptEmitter(), DockerRunEmitter()):
        for script in emitter.files(make_plan()).values():
            run = start(script, tmp_path, VLLM="true", DOCKER="true", **env)
            assert run.returncode == 2
            assert "set it to the directory of tiny-15m" in run.stderr


def test_the_serve_script_says_what_to_set_when_the_program_is_missing(tmp_path):
    script = ServeScriptEmitter().files(make_plan())["serve.sh"]
    run = start(script, tmp_path, MODEL_DIR=str(tmp_path), VLLM="/not/there/vllm")
    assert run.returncode == 127
    assert "/not/there/vllm not found" in run.stderr
    assert "set VLLM" in run.stderr


def test_docker_run_gets_an_absolute_directory(tmp_path):
    (tmp_path / "my, model").mkdir()
    (tmp_path / "docker").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "docker").chmod(0o755)
    script = DockerRunEmitter().files(make_plan())["docker-run.sh"]
    run = start(script, tmp_path, MODEL_DIR="my, model", DOCKER="./docker")
    assert f'type=bind,"source={tmp_path}/my, model",target=/models/tiny-15m,readonly' in run.stdout.splitlines()


def test_scripts_run_nothing_that_stands_in_a_name(tmp_path):
    (tmp_path / "run").mkdir()
    for emitter in (ServeScriptEmitter(), DockerRunEmitter()):
        for script in emitter.files(nasty_plan()).values():
            start(script, tmp_path / "run", MODEL_DIR=str(tmp_path), V_LLM="true", DOCKER="true")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["x.sh"]


def test_the_readme_asks_for_the_served_name_with_valid_json():
    for plan in (gpu_plan(), nasty_plan()):
        text = EMITTERS["readme"].files(plan)["README.md"]
        line = next(line for line in text.splitlines() if line.startswith("curl") and "/v1/completions" in line)
        words = subprocess.run(["bash", "-c", line.replace("curl ", "printf '%s\\0' ", 1)], capture_output=True, check=True)
        body = json.loads(words.stdout.decode().split("\0")[-2])
        assert body["model"] == plan.launch.served_name


@given(st.lists(ANY, min_size=1, max_size=20))
@settings(max_examples=60)
def test_any_text_comes_through_a_unit_as_the_same_words(texts):
    line = " ".join(unit_word(text) for text in texts)
    assert [word.replace("%%", "%").replace("$$", "$") for word, _ in unit_words(line)] == texts
    [(word, quoted)] = unit_words(unit_assignment("V", texts[0]).removeprefix("Environment="))
    assert (word.replace("%%", "%"), quoted) == (f"V={texts[0]}", True)


@given(ANY)
@settings(max_examples=100)
def test_the_kubelet_expands_nothing_that_was_escaped(text):
    assert expand(pod.escape(text), {"A": "wrong", "HOME": "wrong"}) == text
    assert expand(pod.escape("$(A)" + text), {"A": "wrong"}) == "$(A)" + text


@given(ANY)
@settings(max_examples=100)
def test_names_of_objects_are_what_kubernetes_takes(text):
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", quoting.dns_label(text))
    assert len(quoting.dns_label(text)) <= 40


@given(ANY)
@settings(max_examples=100)
def test_a_label_in_promql_is_one_string_and_reads_back(text):
    escaped = promql(text)
    assert "\n" not in escaped
    assert not re.search(r'(?<!\\)(?:\\\\)*"', escaped)
    assert json.loads('"' + re.sub(r"\\U([0-9a-f]{8})", lambda m: json.dumps(chr(int(m[1], 16)))[1:-1], escaped) + '"') == text


@given(st.dictionaries(st.from_regex(r"[A-Z]{1,6}", fullmatch=True), ANY, max_size=5), ANY)
@settings(max_examples=60)
def test_any_text_comes_through_yaml_blocks_and_scalars(data, text):
    document = {"data": {key: quoting.Block(value) for key, value in data.items()}, "x": text}
    assert yaml.safe_load(quoting.dump_yaml(document)) == document


@given(st.lists(st.tuples(st.from_regex(r"[a-z][a-z-]{0,8}[a-z]", fullmatch=True),
                          st.one_of(st.none(), st.text(max_size=8))), max_size=8, unique_by=lambda pair: pair[0]))
def test_arguments_taken_apart_are_the_arguments(pairs):
    words = []
    for flag, value in pairs:
        words += [f"--{flag}"] if value is None else [f"--{flag}={value}"]
    split = take_apart(tuple(words))
    assert split.rest == ()
    assert split.named == {flag: () if value is None else (value,) for flag, value in pairs}
