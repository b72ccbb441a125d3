"""Prometheus text, the little of it that engines export."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.engines.prometheus import parse

pytestmark = pytest.mark.unit

REAL = (Path(__file__).resolve().parent.parent / "data" / "vllm_logs" / "ok.metrics").read_text()


def test_reads_labels_values_and_leaves_comments_out() -> None:
    samples = parse(
        "# HELP a:b what\n# TYPE a:b counter\n"
        'a:b{x="1",y="two words, one \\"quoted\\""} 1.5\na:b{x="2"} 2e3\nplain 7 1700000000\n\nbroken\nnot 1x\n'
    )
    assert [sample.value for sample in samples["a:b"]] == [1.5, 2000.0]
    assert samples["a:b"][0].labels == {"x": "1", "y": 'two words, one \\"quoted\\"'}
    assert samples.total("a:b") == 2001.5
    assert samples.mean("a:b") == 1000.75
    assert samples.total("plain") == 7
    assert samples.total("not") is None
    assert samples.mean("nothing") is None


def test_every_sample_of_a_real_scrape_is_read() -> None:
    lines = [line for line in REAL.splitlines() if line and not line.startswith("#")]
    assert sum(map(len, parse(REAL).values())) == len(lines)
    info = parse(REAL)["vllm:cache_config_info"][0]
    assert info.value == 1
    assert info.labels["kv_cache_size_tokens"] == "524288"


names = st.from_regex(r"[a-z_:][a-z0-9_:]{0,8}", fullmatch=True)
labels = st.dictionaries(names.map(lambda name: name.replace(":", "_")), st.text(alphabet="ab ,={}", max_size=6), max_size=3)


@given(names, labels, st.floats(allow_nan=False))
def test_any_sample_reads_back(name: str, given_labels: dict[str, str], value: float) -> None:
    inner = ",".join(f'{key}="{text}"' for key, text in given_labels.items())
    (sample,) = parse(f"{name}{{{inner}}} {value!r}\n")[name]
    assert sample.labels == given_labels
    assert sample.value == value
