"""Sizing and cost: the arithmetic that articles get wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.capacity.sizing import (
    blended_price,
    break_even_tokens,
    cost,
    dollars_per_million,
    pareto,
    per_gpu,
    replicas_for,
    tokens_per_day,
    with_spare,
)
from tuner.errors import SpaceError, UsageError
from tuner.facts.gpus import gpu_table
from tuner.facts.prices import gpu_name, known_prices, load_prices, parse_prices, price_of

pytestmark = pytest.mark.unit


def test_three_thousand_tokens_a_second_on_a_machine_of_6_76() -> None:
    """Published as less than $0.08 a million, and 300 million tokens a day."""
    assert dollars_per_million(6.76, 3000) == pytest.approx(0.626, abs=0.001)
    assert tokens_per_day(3000) == 259_200_000


def test_wide_servers_are_compared_by_gpu() -> None:
    """Published as a gain of 59.7 % from one GPU to four: 3686 against 5888 good requests."""
    assert per_gpu(5888, 4) == 1472
    assert per_gpu(5888, 4) / per_gpu(3686.4, 1) - 1 == pytest.approx(-0.60, abs=0.005)


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e3), st.floats(0, 0.9))
def test_replicas_serve_the_rate_with_the_headroom_and_no_more_than_needed(rate: float, one: float, head: float) -> None:
    count = replicas_for(rate, one, head)
    assert count * one * (1 - head) >= rate * (1 - 1e-6)
    assert count == 1 or (count - 1) * one * (1 - head) < rate * (1 + 1e-6)
    assert with_spare(count) == count + 1


def test_no_rate_is_no_number_of_replicas() -> None:
    with pytest.raises(UsageError, match="no number of replicas"):
        replicas_for(1, 0, 0.2)
    assert dollars_per_million(5, 0) is None


def test_idle_time_is_paid_for() -> None:
    half = cost(10.0, output_per_s=500, tokens_per_s=1500, used=0.5)
    full = cost(10.0, output_per_s=1000, tokens_per_s=3000, used=1.0)
    assert half.per_million_output == pytest.approx(2 * (full.per_million_output or 0))
    assert half.per_month == pytest.approx(7300)


def test_break_even_against_an_api() -> None:
    assert break_even_tokens(7300, 0.9) == pytest.approx(8.11e9, rel=0.01)
    assert blended_price(0.2, 0.6, 3000, 1000) == pytest.approx(0.3)
    with pytest.raises(UsageError):
        break_even_tokens(100, 0)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=20))
def test_the_front_holds_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    front = pareto(points)
    assert front
    for place, (one, two) in enumerate(points):
        beaten = any(a <= one and b <= two and (a < one or b < two) for a, b in points)
        assert beaten != (place in front)


def test_every_price_names_a_known_gpu_its_date_and_its_source() -> None:
    for price in known_prices():
        assert price.gpu in gpu_table()
        assert 0 < price.usd < 100
        assert price.as_of[:2] == "20"
        assert price.source
        assert price.as_of in price.text
        assert price.source in price.text


def test_a_stated_price_wins_and_spot_is_never_taken_by_itself() -> None:
    gpu = gpu_name("h100")
    found = price_of(gpu, {})
    assert found is not None
    assert found.kind == "on-demand"
    stated = price_of(gpu, parse_prices(["h100=2.5"]))
    assert stated is not None
    assert stated.usd == 2.5
    assert "as you said" in stated.text
    assert price_of("GB10", {}) is None


@pytest.mark.parametrize("text", ["h100", "h100=", "h100=-1", "h100=nan", "h100=free", "=3"])
def test_bad_prices_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_prices([text])


def test_a_price_file_replaces_the_examples(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("gpu_hours:\n  - {gpu: h100, usd: 1.5, provider: me, as_of: 2026-11-30, source: contract}\n")
    rows = load_prices(file)
    found = price_of(gpu_name("h100"), {}, rows)
    assert found is not None
    assert found.usd == 1.5
    file.write_text("gpu_hours:\n  - {gpu: h100}\n")
    with pytest.raises(SpaceError, match=r"prices\.yaml"):
        load_prices(file)
    file.write_text("gpu_hours:\n  - {gpu: h1000, usd: 1.5, provider: me, as_of: 2026-11-30, source: contract}\n")
    with pytest.raises(SpaceError, match=r"prices\.yaml:2: .*h1000"):
        load_prices(file)
    assert not math.isnan(found.usd)
