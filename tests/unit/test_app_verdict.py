"""What may be said after the verification: one table of rounds and verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import plans
from tuner.app.verdict import arms, decide
from tuner.app.verify import Entrant
from tuner.domain.engine import Setting
from tuner.domain.plan import Arm
from tuner.domain.slo import parse_slo
from tuner.domain.study import StudySpec
from tuner.domain.trial import Measurement

pytestmark = pytest.mark.unit

FAST = (200.0, 202.0, 198.0)
SAME = (101.0, 99.0, 100.0)
SLOW = (50.0, 51.0, 49.0)
BASE = (100.0, 101.0, 99.0)
LIMIT = parse_slo("p95 ttft<=500ms")
KEEPS, MISSES = 100.0, 900.0


def spec(**changes: Any) -> StudySpec:
    return plans.study(**{"slo": parse_slo(""), "objective": "output_tokens_per_s", **changes})


def rounds(values: tuple[float, ...], ttft_ms: float = KEEPS, limits: bool = False) -> list[Measurement]:
    found = [plans.measurement(value, ttft_ms) for value in values]
    if limits:
        p95 = plans.estimate(ttft_ms)
        found = [one.model_copy(update={"limits": {LIMIT.limits[0].text: p95}}) for one in found]
    return found


def entrant(label: Any, trial: int, values: tuple[float, ...], *, changes: int = 1, failures: tuple[str, ...] = (),
            ttft_ms: float = KEEPS, pins: int = 0) -> Entrant:
    settings = [(f"flag-{index}", trial) for index in range(changes)] + [(f"pin-{index}", 1) for index in range(pins)]
    return Entrant(label, trial, plans.config(*settings), rounds=rounds(values, ttft_ms, limits=True),
                   starts=[1.0] * len(values), failures=list(failures))


def verdict(question: StudySpec, *entrants: Entrant) -> tuple[str, str, int | None]:
    found, winner = decide(question, arms(question, entrants))
    return found.kind, found.text, winner.trial if winner else None


DEFAULT = entrant("default", 0, BASE, changes=0)


@pytest.mark.parametrize(
    ("entrants", "kind", "trial", "says"),
    [
        pytest.param([entrant("best", 1, FAST)], "winner", 1, "trial 1 beats the engine's defaults: output_tokens_per_s 2.00x",
                     id="winner"),
        pytest.param([entrant("best", 1, SAME)], "no_clear_winner", 0, "trial 1 and the engine's defaults cannot be told apart",
                     id="tie"),
        pytest.param([entrant("best", 1, SLOW)], "keep_baseline", 0, "nothing that was verified beats", id="worse"),
        pytest.param([], "keep_baseline", 0, "nothing that was verified beats", id="alone"),
        pytest.param([entrant("best", 1, FAST), entrant("runner-up", 2, SLOW)], "winner", 1, "trial 1", id="one-of-two"),
        pytest.param([entrant("best", 1, SLOW), entrant("runner-up", 2, FAST)], "winner", 2, "trial 2",
                     id="the-runner-up-wins"),
        pytest.param([entrant("best", 1, FAST, changes=3), entrant("runner-up", 2, (199.0, 203.0, 197.0))], "winner", 2,
                     "trial 2", id="fewest-changes-of-two-winners"),
        pytest.param([entrant("best", 1, (110.0, 111.0, 109.0), changes=3), entrant("runner-up", 2, (95.0, 120.0, 108.0))],
                     "winner", 1, "trial 1", id="a-tied-runner-up-that-beats-nobody-does-not-win"),
        pytest.param([entrant("best", 1, FAST, failures=("crashed: x",))], "keep_baseline", 0, "nothing", id="failed-arm"),
        pytest.param([entrant("best", 1, FAST, failures=("crashed: x",)), entrant("runner-up", 2, FAST)], "winner", 2,
                     "trial 2", id="failed-arm-and-another"),
        pytest.param([entrant("best", 1, ())], "keep_baseline", 0, "nothing", id="arm-without-a-round"),
    ],
)
def test_against_the_defaults(entrants: list[Entrant], kind: str, trial: int, says: str) -> None:
    found = verdict(spec(), DEFAULT, *entrants)
    assert (found[0], found[2]) == (kind, trial)
    assert says in found[1]


def test_a_winner_says_by_how_much_and_that_it_was_measured() -> None:
    _, text, _ = verdict(spec(), DEFAULT, entrant("best", 1, FAST))
    assert "3 rounds each, MEASURED" in text
    assert "[" in text


def test_your_baseline_is_the_bar_when_there_is_one() -> None:
    baseline = entrant("baseline", 1, FAST)
    kind, text, trial = verdict(spec(), baseline, entrant("best", 2, (201.0, 199.0, 200.0)))
    assert (kind, trial) == ("no_clear_winner", 1)
    assert "your baseline stays" in text
    found, _ = decide(spec(), arms(spec(), [baseline]))
    assert found.reference == "baseline"


def test_less_is_better_for_a_latency() -> None:
    question = spec(objective="p95_ttft")
    slow, fast = (Entrant("default" if trial == 0 else "best", trial, plans.config(*((("a", 1),) if trial else ())),
                          rounds=[plans.measurement(100.0, ms * factor) for factor in (0.99, 1.0, 1.01)],
                          starts=[1.0] * 3) for trial, ms in ((0, 400.0), (1, 100.0)))
    kind, text, trial = verdict(question, slow, fast)
    assert (kind, trial) == ("winner", 1)
    assert "0.25x" in text
    assert verdict(question, *[Entrant(one.label, one.trial, one.config, list(other.rounds), [1.0] * 3)
                               for one, other in ((slow, fast), (fast, slow))])[0] == "keep_baseline"


# --- with an SLO

SLO = spec(slo=LIMIT)


@pytest.mark.parametrize(
    ("reference_ms", "best_ms", "kind", "trial", "says"),
    [
        (KEEPS, KEEPS, "winner", 1, "beats"),
        (KEEPS, MISSES, "keep_baseline", 0, "nothing"),
        (MISSES, KEEPS, "winner", 1, "trial 1 keeps the SLO and the engine's defaults do not"),
        (MISSES, MISSES, "nothing_meets_slo", 1, "no verified configuration keeps the SLO (p95 ttft<=500ms)"),
    ],
)
def test_a_faster_one_must_keep_the_slo(reference_ms: float, best_ms: float, kind: str, trial: int, says: str) -> None:
    reference = entrant("default", 0, BASE, changes=0, ttft_ms=reference_ms)
    found = verdict(SLO, reference, entrant("best", 1, FAST, ttft_ms=best_ms))
    assert (found[0], found[2]) == (kind, trial)
    assert says in found[1]


def test_a_slower_one_wins_when_only_it_keeps_the_slo() -> None:
    reference = entrant("default", 0, BASE, changes=0, ttft_ms=MISSES)
    assert verdict(SLO, reference, entrant("best", 1, SLOW, ttft_ms=KEEPS))[::2] == ("winner", 1)


def test_one_round_that_misses_the_slo_is_enough() -> None:
    best = entrant("best", 1, FAST)
    best.rounds[1] = rounds((202.0,), MISSES, limits=True)[0]
    (found,) = arms(SLO, [best])
    assert not found.meets_slo


def test_a_goodput_of_zero_loses_and_breaks_nothing() -> None:
    question = spec(slo=LIMIT, objective="goodput_per_s")
    zero, some = (
        Entrant(label, trial, plans.config(*((("a", 1),) if trial else ())),
                rounds=[one.model_copy(update={"goodput_per_s": plans.estimate(value * factor)})
                        for factor, one in zip((0.99, 1.0, 1.01), rounds(BASE, MISSES, limits=True), strict=True)],
                starts=[1.0] * 3)
        for label, trial, value in (("default", 0, 0.0), ("best", 1, 5.0)))
    kind, _, trial = verdict(question, zero, some)
    assert (kind, trial) == ("nothing_meets_slo", 1)


# --- without a reference, or without anybody


def test_without_a_reference() -> None:
    kind, text, trial = verdict(spec(), entrant("best", 1, FAST))
    assert (kind, trial) == ("winner", 1)
    assert "no reference held" in text


def test_a_reference_that_failed_a_round_is_told() -> None:
    reference = entrant("default", 0, BASE[:2], changes=0, failures=("crashed: x",))
    kind, text, trial = verdict(spec(), reference, entrant("best", 1, SLOW))
    assert (kind, trial) == ("winner", 1)
    assert "held in verification" in text


def test_nobody_survived() -> None:
    kind, text, trial = verdict(spec(), entrant("default", 0, BASE, failures=("crashed: x",)))
    assert (kind, trial) == ("not_verified", None)
    assert "survived" in text
    assert verdict(spec()) == ("not_verified", "no configuration survived its verification rounds", None)


# --- ties


def test_pinned_settings_are_no_changes() -> None:
    question = spec(pins=(Setting(flag="pin-0", value=1), Setting(flag="pin-1", value=1)))
    two = [entrant("best", 1, FAST, changes=2), entrant("runner-up", 2, FAST, changes=1, pins=2)]
    assert verdict(question, DEFAULT, *two)[2] == 2


def test_changes_count_against_the_baseline() -> None:
    shared = plans.config(("a", 1), ("b", 2), ("c", 3))
    baseline = Entrant("baseline", 1, shared, rounds((50.0, 51.0, 49.0)), [1.0] * 3)
    near = Entrant("best", 2, shared.with_settings(Setting(flag="a", value=9)), rounds(FAST), [1.0] * 3)
    far = Entrant("runner-up", 3, plans.config(("z", 1)), rounds(FAST), [1.0] * 3)
    assert verdict(spec(), baseline, near, far)[2] == 2


values = st.lists(st.floats(1.0, 1000.0), min_size=3, max_size=3).map(tuple)


@given(values, values, values, st.booleans())
def test_whoever_is_deployed_has_earned_it(base: Any, best: Any, other: Any, failed: bool) -> None:
    entrants = [entrant("default", 0, base, changes=0), entrant("best", 1, best, changes=2),
                entrant("runner-up", 2, other, failures=("crashed",) if failed else ())]
    found = arms(spec(), entrants)
    said, winner = decide(spec(), found)
    assert isinstance(winner, Arm)
    assert not winner.failures
    if said.kind == "winner":
        assert winner.trial != 0
        assert winner.ratio is not None
        assert winner.ratio.low > 1
    else:
        assert winner.trial == 0
