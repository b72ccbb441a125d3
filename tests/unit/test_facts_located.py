"""YAML that people wrote: every complaint names file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tuner.domain.workload import Workload
from tuner.errors import SpaceError
from tuner.facts.located import Document, load_document

pytestmark = pytest.mark.unit

GOOD = """\
# a comment
name: w
input_tokens: {kind: fixed, tokens: 3}
list:
  - a: 1
  - b:
      c: 2
"""


def document(tmp_path: Path, text: str | bytes) -> Document:
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_document(path)


def test_knows_the_line_of_everything(tmp_path: Path) -> None:
    found = document(tmp_path, GOOD)
    assert found.data["list"][1] == {"b": {"c": 2}}
    lines = {
        (): 2, ("name",): 2, ("input_tokens", "tokens"): 3, ("list",): 4, ("list", 0): 5, ("list", 1, "b", "c"): 7,
        ("list", 1, "b", "unknown", "deeper"): 6, ("nothing",): 2,
    }
    assert {key: found.line(key) for key in lines} == lines


def test_an_error_reads_file_colon_line(tmp_path: Path) -> None:
    error = document(tmp_path, GOOD).error(("list", 1), "is wrong", "mend it")
    assert error.message == f"{tmp_path}/file.yaml:6: is wrong"
    assert error.hint == "mend it"
    assert error.exit_code == 6


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name: w\nnam: x\n", ":2: unknown key 'nam'"),
        ("name: w\nrequests: 3\n", "'input_tokens' is missing"),
        ("name: w\nrequests: three\n", ":2: requests: "),
        ("name: w\nrequests: 0\n", ":2: requests: "),
    ],
)
def test_pydantics_first_problem_in_words(tmp_path: Path, text: str, says: str) -> None:
    found = document(tmp_path, text)
    fill = {"input_tokens": {"kind": "fixed", "tokens": 1}, "output_tokens": {"kind": "fixed", "tokens": 1},
            "arrivals": {"kind": "closed", "concurrency": 1}, "requests": 1}
    if "missing" in says:
        fill = {}
    with pytest.raises(ValidationError) as problem:
        Workload.model_validate({**fill, **found.data})
    error = found.invalid(problem.value)
    assert says in error.message
    assert "\n" not in error.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1\nb: 2\n", "not valid YAML"),
        ("a: 1\n a: 2\n", ":2: not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", ":3: the key 'a' stands here twice"),
        ("x:\n  - a: 1\n    a: 2\n", ":3: the key 'a' stands here twice"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: *nowhere\n", ":1: not valid YAML"),
        ("a: !!python/object/apply:os.system [true]\n", ":1: not valid YAML"),
        ("? [1, 2]\n: 3\n? {a: b}\n: 4\n", "not valid YAML"),
        ("a: \x07\n", "not valid YAML"),
        (b"a: \xff\xfe\n", "cannot be read"),
        ("a: &x [*x]\n", "refers to itself"),
        ("a: 2026-13-45\n", "not valid YAML"),
    ],
    ids=["open", "indent", "twice", "twice-deep", "two-documents", "alias", "python", "keys", "bell", "bytes", "loop",
         "date"],
)
def test_what_is_no_document(tmp_path: Path, text: str | bytes, says: str) -> None:
    with pytest.raises(SpaceError) as caught:
        document(tmp_path, text)
    assert says in caught.value.message
    assert caught.value.message.startswith(f"{tmp_path}/file.yaml")
    assert "\n" not in caught.value.message


def test_no_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="no such file"):
        load_document(tmp_path / "none.yaml")
    with pytest.raises(SpaceError, match="cannot be read"):
        load_document(tmp_path)


def test_an_empty_file_is_nothing_at_line_one(tmp_path: Path) -> None:
    found = document(tmp_path, "")
    assert found.data is None
    assert found.line(("a",)) == 1
