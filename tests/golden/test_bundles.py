"""Committed bundles as real files: the same plan gives the same bytes, and the real tools accept them.

`pytest tests/golden --update-golden` writes them again from the plans in tests/fakes/plans.py, and the schema of a plan
from the records.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from tests.fakes.cases import CASES, targets
from tuner.output import bundle
from tuner.output.container import container_refusal
from tuner.output.schema import plan_schema

pytestmark = pytest.mark.golden

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request, update_golden):
    folder = HERE / request.param
    if update_golden:
        shutil.rmtree(folder, ignore_errors=True)
        plan = CASES[request.param]()
        bundle.emit(plan, folder, targets=targets(request.param, plan))
    return folder


def committed(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)


def test_the_committed_schema_is_the_one_of_the_code(update_golden):
    schema = ROOT / "docs/schemas/plan.schema.json"
    if update_golden:
        schema.write_text(plan_schema())
    assert schema.read_text() == plan_schema()


def test_a_stored_plan_still_loads_and_gives_the_same_bytes(case, tmp_path):
    plan = bundle.load_plan(case)
    bundle.emit(plan, tmp_path, targets=targets(case.name, plan))
    assert committed(tmp_path) == committed(case)


def test_the_stored_plan_is_the_one_that_the_builder_makes(case):
    assert bundle.load_plan(case) == CASES[case.name]()


def test_check_finds_no_drift(case):
    assert bundle.check(bundle.load_plan(case), case) == ""


def test_the_plan_fits_the_committed_schema(case):
    schema = json.loads((ROOT / "docs/schemas/plan.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads((case / "plan.json").read_text()))


def test_scripts_pass_bash_and_shellcheck(case):
    scripts = sorted((case / "deploy").rglob("*.sh"))
    assert scripts
    for script in scripts:
        assert os.access(script, os.X_OK)
    scripts += (case / "deploy").rglob("*.sbatch")
    for script in scripts:
        assert run("bash", "-n", script).stderr == ""
    checked = run(BIN / "shellcheck", "-S", "style", *scripts)
    assert (checked.returncode, checked.stdout) == (0, "")
    formatted = run(BIN / "shfmt", "-d", "-i", "2", "-ci", *scripts)
    assert (formatted.returncode, formatted.stdout) == (0, "")


def test_compose_files_pass_the_real_parser_and_yamllint(case, tmp_path):
    compose = case / "deploy" / "compose.yaml"
    if not compose.exists():
        assert container_refusal(bundle.load_plan(case))
        return
    lint = run(BIN / "yamllint", "-s", "-d", "{extends: relaxed, rules: {line-length: disable}}", compose)
    assert (lint.returncode, lint.stdout) == (0, "")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MODEL_DIR": str(tmp_path), "HF_TOKEN": "x"}
    parsed = run(BIN / "docker-compose", "-f", compose, "config", "-q", env=env)
    assert (parsed.returncode, parsed.stdout, parsed.stderr) == (0, "", "")


def test_the_example_environment_is_read_by_compose_and_by_bash(case, tmp_path):
    example = case / "deploy" / ".env.example"
    names = [line.partition("=")[0] for line in example.read_text().splitlines() if line and not line.startswith("#")]
    assert names
    assert all(line.endswith("=") for line in example.read_text().splitlines() if line and not line.startswith("#"))
    assert run("bash", "-c", 'set -aeu; . "$1"; printf "%s" "${!2}"', "bash", example, names[0]).stdout == ""
    compose = case / "deploy" / "compose.yaml"
    if compose.exists():
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        parsed = run(BIN / "docker-compose", "--env-file", example, "-f", compose, "config", "-q", env=env)
        local = bundle.load_plan(case).launch.model_is_local
        assert (parsed.returncode != 0) == local
        assert ("set MODEL_DIR to the directory of the model" in parsed.stderr) == local


def test_every_case_is_committed():
    assert sorted(path.name for path in HERE.iterdir() if (path / "plan.json").exists()) == sorted(CASES)
