"""Limits as people write them: what is read, what is refused, and that the canonical form reads back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.slo import Limit, Slo, parse_slo
from tuner.errors import SloError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "metric", "percentile", "maximum"),
    [
        ("p95 ttft<=300ms", "ttft", 95.0, 300.0),
        ("p99.9 itl < 40 ms", "itl", 99.9, 40.0),
        ("P95 TTFT<=0.3s", "ttft", 95.0, 300.0),
        ("mean e2e<=2s", "e2e", None, 2000.0),
        ("median tpot<=50ms", "tpot", 50.0, 50.0),
        ("p90 e2el<=1000s", "e2e", 90.0, 1e6),
        ("p95 latency<=5s", "e2e", 95.0, 5000.0),
        ("p50 time_to_first_token<=1s", "ttft", 50.0, 1000.0),
        ("error_rate<=0.1%", "error_rate", None, 0.001),
        ("error_rate<=0.001", "error_rate", None, 0.001),
        ("error_rate<=0", "error_rate", None, 0.0),
    ],
)
def test_reads_a_limit(text: str, metric: str, percentile: float | None, maximum: float) -> None:
    (limit,) = parse_slo(text).limits
    assert (limit.metric, limit.percentile) == (metric, percentile)
    assert limit.maximum == pytest.approx(maximum)


def test_reads_several_limits_in_order_and_forgives_commas() -> None:
    slo = parse_slo(" p95 ttft<=300ms, p99 itl<=40ms,, error_rate<=1%, ")
    assert [limit.metric for limit in slo.limits] == ["ttft", "itl", "error_rate"]
    assert parse_slo("") == Slo()


@pytest.mark.parametrize(
    ("text", "says", "hints"),
    [
        ("fast", "cannot read the limit 'fast'", "p95 ttft<=300ms"),
        ("p95 ttft<=", "cannot read", "p95 ttft<=300ms"),
        ("p100 ttft<=1s", "cannot read", "p95"),
        ("p0 ttft<=1s", "percentile out of range", "p95"),
        ("p95 tpft<=300ms", "unknown metric 'tpft'", "ttft, itl, tpot, e2e"),
        ("p95 ttft>=300ms", "not an upper bound", "<="),
        ("p95 ttft=300ms", "not an upper bound", "<="),
        ("ttft<=300ms", "no percentile", 'p95 ttft<=300ms" or "mean'),
        ("p95 ttft<=300", "no unit", "p95 ttft<=300ms"),
        ("p95 ttft<=0ms", "above zero", "p95"),
        ("p95 ttft<=5%", "no percent", "p95"),
        ("p95 ttft<=-5ms", "cannot read", "p95"),
        ("p95 error_rate<=1%", "is a share", "error_rate<=0.1%"),
        ("error_rate<=5ms", "is a share", "error_rate<=0.1%"),
        ("error_rate<=101%", "above 100%", "error_rate<=0.1%"),
        ("p95 ttft<=300ms; p95 itl<=40ms", "cannot read", "error_rate<=0.1%"),
    ],
)
def test_refuses_with_the_part_and_a_form_that_works(text: str, says: str, hints: str) -> None:
    with pytest.raises(SloError) as caught:
        parse_slo(text)
    assert says in caught.value.message
    assert caught.value.hint is not None
    assert hints in caught.value.hint
    assert caught.value.exit_code == 2


def test_two_limits_on_the_same_are_refused() -> None:
    with pytest.raises(SloError, match="p95 ttft<=300ms and p95 ttft<=400ms limit the same"):
        parse_slo("p95 ttft<=300ms, p95 ttft<=0.4s")
    assert len(parse_slo("p95 ttft<=300ms, p95 ttft[chat]<=200ms, p99 ttft<=400ms").limits) == 3


def test_names_the_wrong_one_among_several() -> None:
    with pytest.raises(SloError, match="p95 ibl<=40ms"):
        parse_slo("p95 ttft<=300ms, p95 ibl<=40ms")


milliseconds = st.one_of(st.integers(1, 10**8).map(float), st.floats(1e-3, 1e8).map(lambda ms: round(ms, 3)))
latencies = st.builds(
    Limit,
    metric=st.sampled_from(["ttft", "itl", "tpot", "e2e"]),
    percentile=st.one_of(st.none(), st.integers(1, 99).map(float), st.just(99.9), st.just(99.99)),
    maximum=milliseconds.filter(lambda ms: ms > 0),
    group=st.sampled_from(["", "chat", "long-form_2.0"]),
)
shares = st.integers(0, 10**6).map(lambda ppm: Limit(metric="error_rate", percentile=None, maximum=ppm / 1e6))


def same(limit: Limit) -> tuple[object, ...]:
    return limit.metric, limit.percentile, limit.group


@given(st.lists(st.one_of(latencies, shares), max_size=4, unique_by=same))
def test_canonical_text_reads_back(limits: list[Limit]) -> None:
    again = parse_slo(Slo(limits=tuple(limits)).text)
    assert [(one.metric, one.percentile) for one in again.limits] == [(one.metric, one.percentile) for one in limits]
    assert [one.maximum for one in again.limits] == pytest.approx([one.maximum for one in limits], rel=1e-12)
    assert parse_slo(again.text).text == again.text
