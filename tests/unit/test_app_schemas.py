"""The committed schemas of input files are those of the code, and the bundled files keep them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tuner.app.schemas import input_schemas

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "schemas"


@pytest.mark.parametrize("name", sorted(input_schemas()))
def test_committed_schema_is_current(name: str, update_golden: bool) -> None:
    text = json.dumps(input_schemas()[name], indent=2, sort_keys=True) + "\n"
    if update_golden:
        (FOLDER / name).write_text(text)
    assert (FOLDER / name).read_text() == text


@pytest.mark.parametrize("path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda path: path.name)
def test_bundled_spaces_keep_the_schema(path: Path) -> None:
    schema = json.loads((FOLDER / "space.schema.json").read_text())
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)


def test_schema_refuses_a_typo() -> None:
    schema = json.loads((FOLDER / "space.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"engine": "vllm", "settings": [{"flag": "x", "vlaues": [1]}]}, schema)
