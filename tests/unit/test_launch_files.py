"""Files that a program reads: named plainly, put where the launch says, emitted below the plan's header."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.fakes.plans import launch, make_plan
from tuner.domain.engine import LaunchFile, LaunchSpec
from tuner.errors import EngineError
from tuner.output.launch_files import LaunchFilesEmitter
from tuner.runtime.detect import detect_engine

pytestmark = pytest.mark.unit

FILES = (LaunchFile(name="settings.yaml", text="a: 1\n"), LaunchFile(name="by-hand.sh", text="#!/usr/bin/env bash\necho\n"))


def with_files() -> LaunchSpec:
    plain = launch()
    return launch(arguments=(*plain.arguments, "--config", FILES[0].mark), files=FILES)


@pytest.mark.parametrize("name", ["", "x", "../x.yaml", "/etc/x.yaml", "a/b.yaml", ".yaml", "a b.yaml", "x.yaml\n", "-x.yaml"])
def test_a_name_is_a_plain_one(name: str) -> None:
    with pytest.raises(ValidationError):
        LaunchFile(name=name, text="")


@pytest.mark.parametrize(
    ("folder", "path"), [("/trials/0001", "/trials/0001/settings.yaml"), ("", "settings.yaml"), ("a b", "a b/settings.yaml")]
)
def test_the_mark_becomes_the_path(folder: str, path: str) -> None:
    spec = with_files()
    words = spec.command("127.0.0.1", 80, folder)
    assert words[words.index("--config") + 1] == path
    assert words[: len(spec.program)] == spec.program
    assert FILES[0].mark not in words


def test_what_only_looks_like_a_mark_stays() -> None:
    spec = launch(arguments=("{file:other.yaml}", "{file:settings.yaml}x", "{port}"), files=FILES)
    assert spec.in_folder("/x") == spec.arguments


def test_a_header_stands_on_top_but_below_the_interpreter() -> None:
    plan = make_plan(launch=with_files())
    emitted = LaunchFilesEmitter().files(plan)
    assert list(emitted) == ["settings.yaml", "by-hand.sh"]
    first, *rest = emitted["settings.yaml"].splitlines()
    assert (first.startswith("# Written by llmtune"), rest[-1]) == (True, "a: 1")
    first, second, *rest = emitted["by-hand.sh"].splitlines()
    assert (first, second.startswith("# Written by llmtune"), rest[-1]) == ("#!/usr/bin/env bash", True, "echo")


def test_without_files_nothing_is_emitted() -> None:
    assert LaunchFilesEmitter().files(make_plan()) == {}


# --- the program that takes such a file


def make_environment(folder: Path, *, version: str = "1.2.1", distribution: str = "tensorrt_llm") -> Path:
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    program = folder / "bin" / "trtllm-serve"
    program.write_text(f"#!{python}\nraise SystemExit('must not be run')\n")
    program.chmod(0o755)
    info = folder / f"lib/python3.{sys.version_info.minor}/site-packages/{distribution}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    return program


@pytest.mark.parametrize("form", ["{0}", "{0}/bin/trtllm-serve"])
@pytest.mark.parametrize("distribution", ["tensorrt_llm", "tensorrt-llm"])
def test_trtllm_is_found_by_its_metadata(tmp_path: Path, form: str, distribution: str) -> None:
    program = make_environment(tmp_path / "e", version="1.3.0rc12", distribution=distribution.replace("-", "_"))
    install = detect_engine("trtllm", form.format(tmp_path / "e"))
    assert (install.engine, install.version, install.build) == ("trtllm", "1.3.0rc12", "cuda")
    assert install.program == (str(program),)


def test_trtllm_as_a_module(tmp_path: Path) -> None:
    make_environment(tmp_path / "e")
    python = tmp_path / "e" / "bin" / "python"
    install = detect_engine("trtllm", f"{python} -m tensorrt_llm.commands.serve")
    assert install.program == (str(python), "-m", "tensorrt_llm.commands.serve")


@pytest.mark.parametrize("rest", ["--max_batch_size 8", "serve", "/models/x"])
def test_settings_have_no_place_in_the_command(tmp_path: Path, rest: str) -> None:
    program = make_environment(tmp_path / "e")
    with pytest.raises(EngineError, match="says more than how to start trtllm-serve"):
        detect_engine("trtllm", f"{program} {rest}")


def test_another_engine_s_environment_is_refused(tmp_path: Path) -> None:
    program = make_environment(tmp_path / "e", distribution="vllm")
    with pytest.raises(EngineError, match="has no tensorrt_llm installed"):
        detect_engine("trtllm", str(program))
