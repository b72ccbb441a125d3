from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tuner.domain.workload import ClosedLoop, Fixed, Workload
from tuner.errors import SpaceError
from tuner.load.dataset import Row, read_prompts, requests_from_rows
from tuner.load.prompts import Message

pytestmark = pytest.mark.unit

SHAPE = Workload(name="own", input_tokens=Fixed(tokens=1), output_tokens=Fixed(tokens=9),
                 arrivals=ClosedLoop(concurrency=2), requests=5, warmup_requests=2)


def write(folder: Path, *rows: object) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_every_form(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"prompt": "hello", "output_tokens": 3, "group": "short"},
        {"prompt": [5, 6, 7], "max_tokens": 4},
        "",
        {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]},
        {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]},
    )
    assert read_prompts(path) == [
        Row("hello", 3, "short"), Row((5, 6, 7), 4),
        Row((Message("system", "be brief"), Message("user", "hi"))), Row((Message("user", "hi"),)),
    ]


def test_the_digest_ties_it_to_one_file(tmp_path: Path) -> None:
    path = write(tmp_path, {"prompt": "a"})
    assert read_prompts(path, sha256=hashlib.sha256(path.read_bytes()).hexdigest()) == [Row("a")]
    with pytest.raises(SpaceError, match="not the file that was meant"):
        read_prompts(path, sha256="0" * 64)


@pytest.mark.parametrize(("line", "words"), [
    ("{oops", ":2: not JSON"), ("[1]", ":2: not an object"), ("{}", ":2: no prompt"), ('{"prompt": ""}', ":2: no prompt"),
    ('{"prompt": [1, true]}', ":2: no prompt"), ('{"prompt": [-1]}', ":2: no prompt"),
    ('{"prompt": "a", "output_tokens": 0}', ":2: output_tokens"), ('{"prompt": "a", "max_tokens": "9"}', ":2: output_tokens"),
    ('{"messages": [{"role": "robot", "content": "x"}]}', ":2: a message"), ('{"messages": []}', ":2: no message"),
    ('{"messages": [{"role": "user"}]}', ":2: a message"),
    ('{"messages": [{"role": "assistant", "content": "x"}]}', ":2: no message to answer"),
])
def test_lines_that_are_wrong(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=words):
        read_prompts(write(tmp_path, {"prompt": "fine"}, line))


def test_an_empty_file_and_none(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="holds no prompt"):
        read_prompts(write(tmp_path, ""))
    with pytest.raises(SpaceError, match="No such file"):
        read_prompts(tmp_path / "none")


def test_rows_become_requests_in_a_seeded_order() -> None:
    rows = [Row(f"p{n}", n + 1) for n in range(10)]
    made = requests_from_rows(SHAPE, rows, seed=1)
    assert [r.warmup for r in made] == [True, True, False, False, False, False, False]
    assert len({r.prompt for r in made}) == 7
    assert all(r.output_tokens == int(str(r.prompt)[1:]) + 1 for r in made)
    assert made == requests_from_rows(SHAPE, rows, seed=1)
    assert made != requests_from_rows(SHAPE, rows, seed=2)


def test_few_rows_are_used_again_and_lengths_drawn_where_none_are_given() -> None:
    made = requests_from_rows(SHAPE, [Row((4, 5)), Row("x")], seed=1)
    assert len(made) == 7
    assert {r.output_tokens for r in made} == {9}
    assert {r.input_tokens for r in made} == {0, 2}


def test_own_prompts_come_on_no_trace_and_in_no_conversation() -> None:
    for arrivals in ({"kind": "trace", "path": "x"}, {"kind": "sessions", "users": 1, "turns": {"kind": "fixed", "tokens": 2}}):
        with pytest.raises(ValueError, match="lengths of its own"):
            Workload.model_validate(SHAPE.model_dump() | {"prompts_file": "p.jsonl", "arrivals": arrivals})
