"""The catalogue against the parser of the vLLM that is installed for tests: names, choices, and which have a --no- form."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner.facts.flags import FlagTable, flag_table
from tuner.runtime.detect import detect_engine

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DUMP = """
import argparse, importlib, json, sys
for name in ("common", "launchers", "openai"):
    try:
        module = importlib.import_module(f"vllm.entrypoints.{name}.cli_args")
        break
    except ImportError:
        continue
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = module.make_arg_parser(FlexibleArgumentParser())
rows = [{
    "names": action.option_strings,
    "choices": None if action.choices is None else [one for one in action.choices if one is not None],
    "negatable": isinstance(action, argparse.BooleanOptionalAction),
    "takes_value": action.nargs != 0,
} for action in parser._actions if action.option_strings and action.dest != "help"]
print("DUMP" + json.dumps(rows))
"""


@pytest.fixture(scope="module")
def table(engine_command: Path) -> FlagTable:
    return flag_table("vllm", detect_engine("vllm", str(engine_command)).version)


@pytest.fixture(scope="module")
def parser(engine_command: Path) -> dict[str, dict[str, Any]]:
    python = engine_command.with_name("python")
    env = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    env.pop("PYTHONPATH", None)
    done = subprocess.run([python, "-c", DUMP], env=env, cwd="/", capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("DUMP")).removeprefix("DUMP"))
    names = [next(name for name in row["names"] if name.startswith("--")) for row in rows]
    return {name.removeprefix("--"): row for name, row in zip(names, rows, strict=True)}


def test_the_parser_and_the_catalogue_have_the_same_flags(table: FlagTable, parser: dict[str, dict[str, Any]]) -> None:
    assert len(parser) > 300
    assert set(table.names()) == set(parser)


def test_the_same_flags_can_be_switched_off(table: FlagTable, parser: dict[str, dict[str, Any]]) -> None:
    ours = {name for name in table.names() if table.require(name).negatable}
    assert ours == {name for name, row in parser.items() if row["negatable"]}


def test_flags_without_a_value_are_the_same(table: FlagTable, parser: dict[str, dict[str, Any]]) -> None:
    ours = {name for name in table.names() if table.require(name).kind == "bool"}
    assert ours == {name for name, row in parser.items() if not row["takes_value"]}


def test_choices_are_the_parser_s_own(table: FlagTable, parser: dict[str, dict[str, Any]]) -> None:
    """Where the engine checks later, ours may know more; where the platform adds some, ours knows those of all."""
    for name, row in parser.items():
        flag = table.require(name)
        if row["choices"] is not None:
            assert flag.choices is not None, name
            assert set(row["choices"]) <= set(flag.choices), name
            if name != "mm-processor-device":
                assert set(row["choices"]) == set(flag.choices), name


def test_short_names_are_known(table: FlagTable, parser: dict[str, dict[str, Any]]) -> None:
    for name, row in parser.items():
        for alias in row["names"]:
            found = table.find(alias)
            assert alias.startswith("--no-") or (found is not None and found.name == name), alias
