from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.domain.workload import ClosedLoop, Fixed, Lognormal, Uniform, Workload
from tuner.errors import UsageError
from tuner.load.prompts import build_requests, id_range
from tuner.load.shapes import draw_lengths

pytestmark = pytest.mark.unit


def workload(**changes: object) -> Workload:
    fields: dict[str, object] = {
        "name": "w", "input_tokens": Uniform(low=20, high=60), "output_tokens": Lognormal(median=16, sigma=0.5, high=64),
        "arrivals": ClosedLoop(concurrency=4), "requests": 30, "warmup_requests": 5,
    }
    return Workload.model_validate(fields | changes)


def test_lengths_come_from_the_seed_and_contents_from_the_salt() -> None:
    one = build_requests(workload(), vocab_size=1000, seed=1, salt="a")
    other = build_requests(workload(), vocab_size=1000, seed=1, salt="b")
    assert [(r.input_tokens, r.output_tokens) for r in one] == [(r.input_tokens, r.output_tokens) for r in other]
    assert not {r.prompt for r in one} & {r.prompt for r in other}
    assert one == build_requests(workload(), vocab_size=1000, seed=1, salt="a")
    reseeded = build_requests(workload(), vocab_size=1000, seed=2, salt="a")
    assert [r.input_tokens for r in one] != [r.input_tokens for r in reseeded]


def test_warm_up_comes_first_and_shares_no_beginning_with_the_rest() -> None:
    requests = build_requests(workload(shared_prefix=0.5), vocab_size=1000, seed=1, salt="a")
    assert [r.warmup for r in requests] == [True] * 5 + [False] * 30
    warm = {r.prompt[:4] for r in requests if r.warmup}
    assert not warm & {r.prompt[:4] for r in requests if not r.warmup}
    assert len({r.id for r in requests}) == 35


def test_no_two_prompts_of_any_run_begin_alike() -> None:
    beginnings = [r.prompt[:8] for salt in ("a", "b", "c")
                  for r in build_requests(workload(requests=200), vocab_size=2048, seed=1, salt=salt)]
    assert len(set(beginnings)) == len(beginnings)


def test_groups_share_their_prefix_within_a_run_only() -> None:
    shape = workload(input_tokens=Fixed(tokens=40), shared_prefix=0.5, prefix_groups=3, requests=60, warmup_requests=0)
    one = build_requests(shape, vocab_size=5000, seed=1, salt="a")
    other = build_requests(shape, vocab_size=5000, seed=1, salt="b")
    assert {r.group for r in one} == {"prefix0", "prefix1", "prefix2"}
    for group in ("prefix0", "prefix1", "prefix2"):
        prefixes = {r.prompt[:20] for r in one if r.group == group}
        assert len(prefixes) == 1
        assert not prefixes & {r.prompt[:20] for r in other}
    assert len({r.prompt[20:] for r in one}) == 60


def test_prompts_of_one_group_with_different_lengths_share_what_they_can() -> None:
    requests = build_requests(workload(shared_prefix=0.5, warmup_requests=0), vocab_size=5000, seed=1, salt="a")
    longest = max(requests, key=lambda r: r.input_tokens)
    for request in requests:
        shared = round(request.input_tokens * 0.5)
        assert request.prompt[:shared] == longest.prompt[:shared]


@pytest.mark.parametrize("vocabulary", [64, 2048, 128_256])
def test_ids_keep_away_from_special_tokens(vocabulary: int) -> None:
    low, high = id_range(vocabulary)
    ids = {i for r in build_requests(workload(), vocab_size=vocabulary, seed=1, salt="a") for i in r.prompt}
    assert 0 < low <= min(ids)  # type: ignore[type-var]
    assert max(ids) < high < vocabulary  # type: ignore[type-var]
    assert low == min(100, int(vocabulary * 0.05))


def test_text_prompts_have_about_as_many_words() -> None:
    requests = build_requests(workload(), vocab_size=None, seed=1, salt="a", as_text=True)
    assert all([m.role for m in r.prompt] == ["user"] for r in requests)  # type: ignore[union-attr]
    assert all(len(r.prompt[0].text.split()) == r.input_tokens for r in requests)  # type: ignore[union-attr]


@pytest.mark.parametrize("vocabulary", [None, 10])
def test_ids_need_a_vocabulary(vocabulary: int | None) -> None:
    with pytest.raises(UsageError, match="vocabulary"):
        build_requests(workload(), vocab_size=vocabulary, seed=1, salt="a")


@settings(max_examples=30)
@given(low=st.integers(1, 50), span=st.integers(0, 100), median=st.floats(1, 500), sigma=st.floats(0.01, 3))
def test_lengths_stay_in_their_limits(low: int, span: int, median: float, sigma: float) -> None:
    rng = np.random.default_rng(0)
    high = low + span
    for lengths in (Uniform(low=low, high=high), Lognormal(median=median, sigma=sigma, low=low, high=high)):
        drawn = draw_lengths(lengths, 200, rng)
        assert drawn.min() >= low
        assert drawn.max() <= high


def test_lognormal_has_its_median() -> None:
    drawn = draw_lengths(Lognormal(median=200, sigma=0.8, high=100_000), 20_000, np.random.default_rng(0))
    assert np.median(drawn) == pytest.approx(200, rel=0.05)
