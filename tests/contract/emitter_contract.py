"""What every emitter must keep, for any plan. Inherit in a class named Test..., with `emitter` and `plan` fixtures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path, PurePath, PurePosixPath

import yaml

from tuner.domain.engine import LaunchSpec
from tuner.domain.plan import Plan
from tuner.output.base import Emitter
from tuner.output.scripts import program_variable

_TOKEN = re.compile(r"hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9]{8,}")
_CLOCK = re.compile(r"\b20\d\d-\d\d-\d\d|\b\d\d:\d\d:\d\d\b")
_BIN = Path(sys.executable).parent

MODEL_DIR = "/srv/the model's, \"dir\" $x"


class EmitterContract:
    """Holds for every emitter and every plan."""

    def test_the_same_plan_gives_the_same_bytes(self, emitter: Emitter, plan: Plan):
        again = Plan.model_validate_json(plan.model_dump_json())
        assert dict(emitter.files(plan)) == dict(emitter.files(again))

    def test_paths_are_plain_names_inside_the_bundle(self, emitter: Emitter, plan: Plan):
        for name in emitter.files(plan):
            path = PurePosixPath(name)
            assert not path.is_absolute()
            assert ".." not in path.parts
            assert re.fullmatch(r"[A-Za-z0-9._/-]+", name)

    def test_text_ends_in_one_newline_and_shows_every_character(self, emitter: Emitter, plan: Plan):
        for text in emitter.files(plan).values():
            assert text.endswith("\n")
            assert not text.endswith("\n\n")
            assert all(ch.isprintable() or ch == "\n" for ch in text)
            assert not any(line.endswith(" ") for line in text.split("\n"))

    def test_every_file_says_which_plan_it_is_from(self, emitter: Emitter, plan: Plan):
        for text in emitter.files(plan).values():
            assert plan.plan_id in text
            assert plan.tool_version in text

    def test_numbers_say_whether_they_were_measured(self, emitter: Emitter, plan: Plan):
        for name, text in emitter.files(plan).items():
            if name.endswith((".sh", ".yaml", ".md")):
                assert ("MEASURED" if plan.measured else "PREDICTED") in text
                if not plan.measured:
                    assert "MEASURED" not in text

    def test_nothing_of_the_tuning_machine_and_no_clock_and_no_token(self, emitter: Emitter, plan: Plan):
        private = [plan.launch.program[0], *plan.study.engine.program, plan.study.model.location, plan.launch.model]
        for text in emitter.files(plan).values():
            for path in private:
                assert not PurePath(path).is_absolute() or path not in text
            assert not _TOKEN.search(text)
            assert not _CLOCK.search(text.replace(plan.launch.image or "\0", ""))

    def test_scripts_are_bash_that_shellcheck_accepts(self, emitter: Emitter, plan: Plan, tmp_path: Path):
        for name, text in emitter.files(plan).items():
            if not name.endswith(".sh"):
                continue
            script = tmp_path / PurePosixPath(name).name
            script.write_text(text)
            assert text.startswith("#!/usr/bin/env bash\n")
            assert "\nset -euo pipefail\n" in text
            for command in (["bash", "-n", script], [_BIN / "shellcheck", "-S", "style", script]):
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                assert run.returncode == 0, run.stdout + run.stderr

    def test_yaml_has_no_lint_and_no_anchor(self, emitter: Emitter, plan: Plan, tmp_path: Path):
        for name, text in emitter.files(plan).items():
            if not name.endswith((".yaml", ".yml")):
                continue
            path = tmp_path / PurePosixPath(name).name
            path.write_text(text)
            rules = "{extends: relaxed, rules: {line-length: disable, document-start: disable}}"
            run = subprocess.run([_BIN / "yamllint", "-s", "-d", rules, path], capture_output=True, text=True, check=False)
            assert run.returncode == 0, run.stdout
            assert yaml.safe_load(text)

    def test_measured_is_emitted(self, emitter: Emitter, plan: Plan, tmp_path: Path):
        """Whatever an emitter writes to start a server starts it with the launch spec's arguments and variables."""
        for name, text in emitter.files(plan).items():
            read = READERS.get(name)
            if read is None:
                continue
            got_argv, got_env = read(text, plan, tmp_path)
            want_argv, want_env = wanted(plan.launch, name, tmp_path)
            assert got_argv == want_argv
            assert {key: got_env.get(key) for key in want_env} == want_env

    def test_files_of_the_launch_say_what_was_measured(self, emitter: Emitter, plan: Plan):
        """A file that the program reads has the same content as the trial's, below the header."""
        emitted = emitter.files(plan)
        for file in plan.launch.files:
            if file.name in emitted:
                text = emitted[file.name]
                assert [line for line in text.splitlines() if not line.startswith("#")] == [
                    line for line in file.text.rstrip().splitlines() if not line.startswith("#")]
                if file.name.endswith(".yaml"):
                    assert yaml.safe_load(text) == yaml.safe_load(file.text)


def wanted(launch: LaunchSpec, name: str, beside: Path) -> tuple[list[str], dict[str, str]]:
    """Work out from the launch spec alone, by other means than the emitters, what must arrive at the engine."""
    inside = name != "serve.sh"
    host, port = ("0.0.0.0", launch.port) if inside else ("127.0.0.9", 1234)
    paths = {file.mark: f"/etc/llmtune/{file.name}" if inside else str(beside / file.name) for file in launch.files}
    argv = [paths.get(word, word) for word in (*launch.program, *launch.arguments)]
    argv += [word.format(host=host, port=port) for word in launch.bind]
    argv[0] = PurePath(launch.program[0]).name
    env = dict(launch.env)
    if launch.model_is_local:
        at = argv.index(launch.model)
        argv[at] = f"/models/{_slug(launch.model)}" if inside else MODEL_DIR
    return argv, env


def _mounts(launch: LaunchSpec, folder: Path) -> list[tuple[str, str]]:
    """Files that a container must find: where they lie and where they are mounted."""
    named = [file for file in launch.files if file.mark in launch.arguments]
    return [(str(folder / file.name), f"/etc/llmtune/{file.name}") for file in named]


def _slug(path: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", PurePath(path).name.lower())


def _variables(plan: Plan, tmp_path: Path) -> dict[str, str]:
    model = tmp_path / MODEL_DIR.lstrip("/")
    model.mkdir(parents=True, exist_ok=True)
    secrets = {name: f"value-of-{name}" for name in plan.launch.secret_env}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MODEL_DIR": str(model), **secrets}


def _stand_in(tmp_path: Path) -> Path:
    """Write a program that says how it was called."""
    program = tmp_path / "stand-in"
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\n"
                       "print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ)}))\n")
    program.chmod(0o755)
    return program


def _run(text: str, env: dict[str, str], tmp_path: Path, *arguments: str) -> dict[str, object]:
    script = tmp_path / "script.sh"
    script.write_text(text)
    run = subprocess.run(["bash", script, *arguments], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def read_serve(text: str, plan: Plan, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Run serve.sh with a program that prints its arguments."""
    env = _variables(plan, tmp_path)
    env |= {program_variable(plan.launch): str(_stand_in(tmp_path)), "HOST": "127.0.0.9", "PORT": "1234"}
    said = _run(text, env, tmp_path, "--extra", "a b")
    assert said["argv"][-2:] == ["--extra", "a b"]
    argv = [MODEL_DIR if word == env["MODEL_DIR"] else word for word in said["argv"][:-2]]
    for name in plan.launch.secret_env:
        assert said["env"][name] == env[name]
    return [PurePath(plan.launch.program[0]).name, *argv], said["env"]


def read_docker_run(text: str, plan: Plan, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Run docker-run.sh with a `docker` that prints its arguments, and read them as docker would."""
    env = _variables(plan, tmp_path) | {"DOCKER": str(_stand_in(tmp_path))}
    said = _run(text, env, tmp_path, "--extra", "a b")
    words = said["argv"]
    assert words.pop(0) == "run"
    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        option = words.pop(0)
        options.setdefault(option, [])
        if option != "--rm":
            options[option].append(words.pop(0))
    assert words.pop(0) == plan.launch.image
    assert words[-2:] == ["--extra", "a b"]
    launch = plan.launch
    assert options.get("--gpus", ["0"]) == [str(launch.devices)]
    assert ("--ipc" in options) == launch.needs_shared_memory
    assert options["--publish"] == [f"127.0.0.1:{launch.port}:{launch.port}"]
    if launch.model_is_local:
        source = env["MODEL_DIR"].replace('"', '""')
        model = f'type=bind,"source={source}",target=/models/{_slug(launch.model)},readonly'
        assert options["--mount"].pop(0) == model
    files = [f'type=bind,"source={source}",target={target},readonly' for source, target in _mounts(launch, tmp_path)]
    assert options.get("--mount", []) == files
    entry = options.get("--entrypoint") or list(launch.image_program)
    pairs = [word.partition("=") for word in options.get("--env", [])]
    for name in (name for name, equals, _ in pairs if not equals):
        assert name == "HF_TOKEN" or name in launch.secret_env
    return [*entry, *words[:-2]], {name: value for name, equals, value in pairs if equals}


def read_compose(text: str, plan: Plan, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """Let Docker Compose itself resolve the file, and read the result."""
    path = tmp_path / "compose.yaml"
    path.write_text(text)
    env = _variables(plan, tmp_path) | {"HF_TOKEN": ""}
    run = subprocess.run([_BIN / "docker-compose", "-f", path, "config", "--format", "json"],
                         env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    service = json.loads(run.stdout)["services"]["server"]
    launch = plan.launch
    assert service["image"] == launch.image
    assert [(port["host_ip"], port["published"], port["target"]) for port in service["ports"]] == [
        ("127.0.0.1", str(launch.port), launch.port)]
    assert service.get("ipc") == ("host" if launch.needs_shared_memory else None)
    devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
    assert sum(device["count"] for device in devices) == launch.devices
    if launch.model_is_local:
        mount = service["volumes"].pop(0)
        assert (mount["source"].replace("$$", "$"), mount["read_only"]) == (env["MODEL_DIR"], True)
    binds = [mount for mount in service["volumes"] if mount["type"] == "bind"]
    assert [(one["source"], one["target"]) for one in binds] == _mounts(launch, tmp_path)
    assert all(one["read_only"] for one in binds)
    entry = [word.replace("$$", "$") for word in service.get("entrypoint") or launch.image_program]
    command = [word.replace("$$", "$") for word in service["command"]]
    resolved = {name: (value or "").replace("$$", "$") for name, value in service.get("environment", {}).items()}
    return [*entry, *command], resolved


READERS = {"serve.sh": read_serve, "docker-run.sh": read_docker_run, "compose.yaml": read_compose}
