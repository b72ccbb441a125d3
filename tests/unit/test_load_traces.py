from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tuner.domain.workload import Trace
from tuner.errors import SpaceError
from tuner.load.traces import TracePoint, read_trace

pytestmark = pytest.mark.unit

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,Conversation log
"""
MOONCAKE = """{"timestamp": 27000, "input_length": 1030, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 30500, "input_length": 600, "output_length": 26, "hash_ids": [46, 99]}
"""


def write(folder: Path, text: str) -> str:
    path = folder / "trace"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(("text", "points"), [
    (AZURE, [TracePoint(0, 374, 44), TracePoint(4.314579, 396, 109), TracePoint(4.541877, 879, 55)]),
    (AZURE_2024, [TracePoint(0, 2162, 5), TracePoint(0.007405, 2399, 6)]),
    (BURSTGPT, [TracePoint(0, 472, 18), TracePoint(113, 417, 276)]),
    (MOONCAKE, [TracePoint(0, 1030, 52, (46, 47, 48)), TracePoint(3.5, 600, 26, (46, 99))]),
    ("\ufeff" + AZURE, [TracePoint(0, 374, 44), TracePoint(4.314579, 396, 109), TracePoint(4.541877, 879, 55)]),
])
def test_public_forms(text: str, points: list[TracePoint], tmp_path: Path) -> None:
    found = read_trace(Trace(path=write(tmp_path, text)))
    assert [(p.input_tokens, p.output_tokens, p.hash_ids) for p in found] == [
        (p.input_tokens, p.output_tokens, p.hash_ids) for p in points]
    assert [p.at_s for p in found] == pytest.approx([p.at_s for p in points], abs=2e-6)


def test_speed_and_order(tmp_path: Path) -> None:
    lines = BURSTGPT.splitlines()
    text = "\n".join([lines[0], lines[3], lines[1]])
    found = read_trace(Trace(path=write(tmp_path, text), speed=2))
    assert [(p.at_s, p.input_tokens) for p in found] == [(0, 472), (56.5, 417)]


def test_the_digest_ties_it_to_one_file(tmp_path: Path) -> None:
    digest = hashlib.sha256(AZURE.encode()).hexdigest()
    assert len(read_trace(Trace(path=write(tmp_path, AZURE), sha256=digest))) == 3
    with pytest.raises(SpaceError, match="not the trace that was meant"):
        read_trace(Trace(path=write(tmp_path, BURSTGPT), sha256=digest))


@pytest.mark.parametrize(("text", "form", "words"), [
    ("", "auto", ":1: this is no trace"),
    ("a,b\n1,2\n", "auto", ":1: this is no trace"),
    ("a,b\n1,2\n", "azure", "no column TIMESTAMP, ContextTokens, GeneratedTokens"),
    (AZURE + "yesterday,1,2\n", "auto", ":5: cannot read"),
    (AZURE + "2023-11-16 18:15:46.6,many,2\n", "auto", ":5: cannot read"),
    (MOONCAKE + "{}\n", "auto", ":3: cannot read"),
    (MOONCAKE + "{oops\n", "auto", ":3: cannot read"),
    ("Timestamp,Request tokens,Response tokens\n5,10,0\n", "auto", "holds no request"),
])
def test_files_that_are_wrong(text: str, form: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=words):
        read_trace(Trace.model_validate({"path": write(tmp_path, text), "format": form}))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="No such file"):
        read_trace(Trace(path=str(tmp_path / "none")))
