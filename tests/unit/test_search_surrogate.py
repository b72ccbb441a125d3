"""The parts of llmtune's own sampler: the lattice, who stops servers, what scores and limits teach, what costs do."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.fakes.spaces import dimensions, spaces
from tuner.search.evidence import known
from tuner.search.lattice import Lattice, keys
from tuner.search.observed import Observed
from tuner.search.process import Process
from tuner.search.runs import Suspects
from tuner.search.spaces import OpenSpace
from tuner.search.surrogate import DEAD, importances, suggest

pytestmark = pytest.mark.unit

SPACE = dimensions(("max-num-seqs", (None, 32, 64, 128, 256), {}), ("block-size", (None, 16, 32), {}),
                   ("dtype", (None, "float16", "float32"), {}), ("enable-prefix-caching", (None, False), {}))
CONDITIONAL = dimensions(("spec", (None, "ngram", "eagle"), {}), ("spec-tokens", (1, 3, 5), {"spec": ("ngram", "eagle")}))


def point(seqs: Any = None, block: Any = None, dtype: Any = None, caching: Any = None) -> dict[str, Any]:
    return {"max-num-seqs": seqs, "block-size": block, "dtype": dtype, "enable-prefix-caching": caching}


def measured(where: dict[str, Any], score: float, **more: Any) -> Observed:
    return Observed(point=where, state="measured", score=score, low=score * 0.98, high=score * 1.02, **more)


# --- the lattice


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_settled_rows_are_equal_exactly_when_the_configurations_are(found: OpenSpace) -> None:
    lattice = Lattice(found)
    by_key: dict[str, set[bytes]] = {}
    for one in found.points():
        row = lattice.row(one)
        assert row is not None
        by_key.setdefault(found.config(one).key, set()).add(row.tobytes())
        assert found.config(lattice.point(row)).key == found.config(one).key
    assert all(len(rows) == 1 for rows in by_key.values())
    assert len({row for rows in by_key.values() for row in rows}) == len(by_key)
    everything = [key for batch in lattice.batches(np.random.default_rng(0), 7) for key in keys(batch)]
    assert sorted(everything) == sorted(row for rows in by_key.values() for row in rows)


def test_numbers_lie_on_a_line_and_the_default_beside_its_number() -> None:
    axis = Lattice(SPACE).axes[0]
    at = {value: place for place, value in enumerate(axis.levels)}
    near, far = axis.distance[at[32], at[64]], axis.distance[at[32], at[256]]
    assert near < far
    assert far == pytest.approx(1.0)
    words = Lattice(SPACE).axes[2]
    assert words.distance[1, 2] == pytest.approx(words.distance[0, 1])


def test_a_value_that_the_space_does_not_have_lies_outside() -> None:
    assert Lattice(SPACE).row(point(seqs=33)) is None
    assert Lattice(SPACE).row(point(caching=0)) is None, "0 is not False"


def test_settings_that_do_not_apply_are_no_new_point() -> None:
    found = list(suggest(CONDITIONAL, [], direction="maximize", seed=1))
    assert len(found) == 7
    assert len({CONDITIONAL.config(one).key for one in found}) == 7


# --- who stops servers


def runs(seen: list[Observed], where: dict[str, Any]) -> float:
    lattice = Lattice(SPACE)
    found = known(lattice, seen, "maximize")
    row = lattice.row(where)
    assert row is not None
    return float(Suspects(lattice, found.ran, found.failed, found.reasons).runs(row[None])[0])


def failed(where: dict[str, Any], reason: str = "") -> Observed:
    return Observed(point=where, state="failed", reason=reason)


def test_two_failures_convict_the_value_that_they_share() -> None:
    seen = [measured(point(), 100.0), failed(point(128, 16, "float16")), failed(point(64, 16, "float32"))]
    seen += [measured(point(64, None, "float16"), 100.0), measured(point(128, None, "float32"), 100.0)]
    assert runs(seen, point(256, 16)) < 0.3
    assert runs(seen, point(128, None, "float16")) > 0.6


def test_what_ran_clears_its_values() -> None:
    suspect = [measured(point(), 100.0), failed(point(128, 16))]
    cleared = [*suspect, measured(point(128, 32), 100.0)]
    assert runs(cleared, point(128, None, "float16")) > runs(suspect, point(128, None, "float16"))
    assert runs(cleared, point(None, 16, "float16")) < runs(suspect, point(None, 16, "float16"))


def test_memory_that_ran_out_speaks_against_more_of_the_same() -> None:
    seen = [measured(point(), 100.0), measured(point(32, 16, "float16"), 90.0),
            failed(point(128, 16, "float16"), "CUDA out of memory")]
    assert runs(seen, point(256, 32)) < 0.5
    assert runs(seen, point(64, 32)) > 0.7
    refused = [*seen[:2], failed(point(128, 16, "float16"), "not supported")]
    assert runs(refused, point(256, 32)) > runs(seen, point(256, 32)), "only memory runs out with more of the same"


def test_one_reason_is_one_cause() -> None:
    """A pair that is refused is found after a few failures that say the same, whatever else they hold."""
    first = [measured(point(), 1.0), measured(point(128, 32), 1.0), measured(point(64, None, "float16"), 1.0)]
    pair = [failed(point(128, None, "float16"), "head size 64 is refused"),
            failed(point(128, 16, "float16", caching=False), "head size 80 is refused")]
    several = [replace(one, reason=f"reason {letter}") for one, letter in zip(pair, "xy", strict=True)]
    assert runs([*first, *pair], point(128, 32, "float16")) < 0.4
    assert runs([*first, *pair], point(128, 32, "float16")) < runs([*first, *several], point(128, 32, "float16"))
    assert runs([*first, *pair], point(128, 32, "float32")) > 0.7


def test_a_value_dies_once_all_that_it_failed_with_is_innocent() -> None:
    """As with tensor parallelism on one NUMA node: no fourth start is spent on it beside plain defaults."""
    space = dimensions(("max-num-seqs", (None, 4, 16, 32), {}), ("max-num-batched-tokens", (None, 128, 512), {}),
                       ("dtype", (None, "float32"), {}), ("enable-prefix-caching", (None, False), {}),
                       ("tensor-parallel-size", (None, 2), {}))
    lattice = Lattice(space)

    def at(seqs: Any, batch: Any, parallel: Any) -> dict[str, Any]:
        return {"max-num-seqs": seqs, "max-num-batched-tokens": batch, "dtype": "float32", "enable-prefix-caching": False,
                "tensor-parallel-size": parallel}

    seen = [measured(dict.fromkeys(at(0, 0, 0)), 2.0), measured(at(16, None, None), 9.0)]
    seen += [failed(at(*where, 2), "no second node") for where in ((16, 128), (32, 512), (16, None))]
    found = known(lattice, seen, "maximize")
    plain = lattice.row({**dict.fromkeys(at(0, 0, 0)), "tensor-parallel-size": 2})
    assert plain is not None
    assert float(Suspects(lattice, found.ran, found.failed, found.reasons).runs(plain[None])[0]) < DEAD


def test_what_was_only_predicted_to_be_slow_may_well_run() -> None:
    seen = [measured(point(), 1.0), *(Observed(point=point(256, block), state="ruled_out", reason="PREDICTED to miss p95 itl")
                                      for block in (None, 16))]
    assert runs(seen, point(256, 32)) > 0.7
    assert runs([replace(one, reason="does not fit") if one.score is None else one for one in seen], point(256, 32)) < 0.5


# --- what scores, runs that were cut off, and limits teach


def predicted(seen: list[Observed], where: dict[str, Any], direction: Any = "maximize") -> tuple[float, float]:
    lattice = Lattice(SPACE)
    found = known(lattice, seen, direction)
    row = lattice.row(where)
    assert row is not None
    process = Process(lattice, found.scores, np.random.default_rng(0), least_scale=0.05)
    mean, spread = process.predict(row[None], np.zeros(1))
    return float(mean.mean()), float(spread.mean())


def test_what_was_measured_is_predicted_and_the_rest_is_unsure() -> None:
    seen = [measured(point(32), 50.0), measured(point(256), 200.0), measured(point(128), 140.0), measured(point(), 120.0)]
    mean, spread = predicted(seen, point(256))
    assert mean == pytest.approx(np.log(200), abs=0.1)
    assert spread < predicted(seen, point(64, 32, "float32"))[1]


def test_a_run_that_was_cut_off_is_no_result() -> None:
    """Its interval counts for less than a full one, and it is never the incumbent."""
    rest = [measured(point(), 100.0), measured(point(64), 80.0), measured(point(32), 60.0)]
    short = Observed(point=point(256), state="dropped", low=150.0, high=170.0)
    full = Observed(point=point(256), state="measured", score=160.0, low=150.0, high=170.0)
    lattice = Lattice(SPACE)
    assert len(known(lattice, [*rest, short], "maximize").good) == 3
    assert len(known(lattice, [*rest, full], "maximize").good) == 4
    errors = known(lattice, [*rest, short], "maximize").scores.errors[-1], known(lattice, [*rest, full], "maximize").scores.errors[-1]
    assert errors[0] > 2 * errors[1]
    assert predicted([*rest, short], point(256))[1] > predicted([*rest, full], point(256))[1]


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_bound_pulls_the_prediction_to_its_side(direction: Any) -> None:
    rest = [measured(point(), 100.0), measured(point(64), 102.0), measured(point(32), 98.0)]
    bound = {"high": 60.0} if direction == "maximize" else {"low": 160.0}
    cut = Observed(point=point(256), state="dropped", **bound)
    assert predicted([*rest, cut], point(256), direction)[0] < predicted(rest, point(256), direction)[0] - 0.05


def test_a_run_that_was_cut_off_without_numbers_still_ran() -> None:
    lattice = Lattice(SPACE)
    found = known(lattice, [Observed(point=point(256), state="dropped", reason="slo")], "maximize")
    assert len(found.ran) == 1
    assert not len(found.scores.values)


def test_a_limit_that_is_missed_is_avoided() -> None:
    """More sequences are faster and miss the SLO: what comes next is not the fastest."""
    seen = [measured(point(seqs, dtype=dtype), float(seqs), violation=seqs / 100 - 1, violations={"itl": seqs / 100 - 1})
            for seqs in (32, 64, 128, 256) for dtype in (None, "float16")]
    nexts = list(islice(suggest(SPACE, seen, direction="maximize", seed=3), 8))
    assert sum(one["max-num-seqs"] in {128, 256} for one in nexts) <= 2


def test_no_score_at_all_for_goodput_is_a_number_that_models_can_bear() -> None:
    seen = [measured(point(), 5.0), measured(point(64), 4.0), measured(point(256), 0.0)]
    values = known(Lattice(SPACE), seen, "maximize").scores.values
    assert np.isfinite(values).all()
    assert values.max() - values.min() < 5


# --- what predictions and costs are for, and which settings matter


def test_a_good_prediction_helps_and_a_wrong_one_does_little_harm() -> None:
    truth = {None: 1.0, 32: 0.5, 64: 0.8, 128: 1.5, 256: 2.0}

    def score(where: dict[str, Any]) -> float:
        return 100 * truth[where["max-num-seqs"]] * (1.2 if where["dtype"] == "float16" else 1.0)

    def until_best(prior: Any) -> int:
        seen = [measured(point(), score(point()))]
        while len(seen) < 40:
            where = next(suggest(SPACE, seen, direction="maximize", seed=4, prior=prior))
            seen.append(measured(where, score(where)))
            if seen[-1].score == pytest.approx(240):
                break
        return len(seen)

    assert until_best(lambda where: float(np.log(score(dict(where))))) <= 3
    assert until_best(lambda where: -float(np.log(score(dict(where))))) <= 22, "not worse than half of the space"


def test_seconds_are_those_of_configurations_that_are_alike() -> None:
    lattice = Lattice(SPACE)
    seen = [measured(point(dtype=dtype, block=block), 1.0, start_s=300.0 if dtype else 30.0, load_s=20.0)
            for dtype in (None, "float16") for block in (None, 16, 32)]
    rows = [lattice.row(point(256, dtype=dtype)) for dtype in ("float16", None)]
    slow, quick = known(lattice, seen, "maximize").costs.seconds(np.array(rows), np.ones(2), np.ones(2))
    assert slow > 1.3 * quick


def test_importances_name_the_setting_that_matters() -> None:
    seen = [measured(point(seqs, block, caching=caching), 100.0 * (1 + seqs / 64))
            for seqs, block, caching in [(32, 16, None), (64, None, False), (128, 32, None), (256, 16, False),
                                         (32, 32, False), (128, 16, False), (256, None, None), (64, 16, None)]]
    shares = importances(SPACE, seen, "maximize")
    assert shares[0][0] == "max-num-seqs"
    assert shares[0][1] > 0.6
    assert sum(share for _, share in shares) == pytest.approx(1.0)
    assert importances(SPACE, seen[:2], "maximize") == []
