from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.domain.workload import (
    Adapter,
    ClosedLoop,
    Empirical,
    Fixed,
    Normal,
    OpenLoop,
    RatePoint,
    RateProfile,
    Sessions,
    Trace,
    TrafficClass,
    Uniform,
    Workload,
)
from tuner.load.arrivals import by_session, profile_offsets, schedule, split
from tuner.load.prompts import Message, TextScale, build_requests
from tuner.load.shapes import draw_lengths, shapes
from tuner.load.traces import TracePoint

pytestmark = pytest.mark.unit


def workload(**changes: object) -> Workload:
    fields: dict[str, object] = {
        "name": "w", "input_tokens": Fixed(tokens=30), "output_tokens": Fixed(tokens=10),
        "arrivals": ClosedLoop(concurrency=4), "requests": 40, "warmup_requests": 3,
    }
    return Workload.model_validate(fields | changes)


MIX = (
    TrafficClass(name="short", weight=3, input_tokens=Fixed(tokens=128), output_tokens=Fixed(tokens=8)),
    TrafficClass(name="long", weight=1, input_tokens=Uniform(low=1000, high=4000), output_tokens=Fixed(tokens=64),
                 shared_prefix=0.5, prefix_groups=2),
)


def test_a_mix_has_its_shares_and_each_class_its_lengths() -> None:
    made = [one for one in shapes(workload(classes=MIX, requests=2000), seed=1) if not one.warmup]
    counts = Counter(one.group for one in made)
    assert counts["short"] / 2000 == pytest.approx(0.75, abs=0.04)
    assert set(counts) == {"short", "long"}
    assert all((one.input_tokens == 128) == (one.group == "short") for one in made)
    assert {piece.name for one in made for piece in one.pieces if "prefix" in piece.name} == {"longprefix0", "longprefix1"}


def test_a_mix_needs_no_lengths_of_its_own_and_names_its_classes_once() -> None:
    raw = {"name": "m", "arrivals": {"kind": "closed", "concurrency": 1}, "requests": 1,
           "classes": [one.model_dump() for one in MIX]}
    made = Workload.model_validate(raw)
    assert made.input_tokens == Fixed(tokens=128)
    assert made.longest == 4064
    with pytest.raises(ValueError, match="same name"):
        Workload.model_validate(raw | {"classes": [MIX[0].model_dump()] * 2})


def test_unused_fields_leave_no_trace_in_what_is_stored() -> None:
    dumped = workload().model_dump(mode="json")
    assert not {"classes", "adapters", "prompts_file", "prompts_sha256"} & set(dumped)
    assert Workload.model_validate(dumped) == workload()
    full = workload(classes=MIX, adapters=(Adapter(model="a", weight=1),))
    assert Workload.model_validate_json(full.model_dump_json()) == full


def test_adapters_share_the_requests() -> None:
    made = shapes(workload(adapters=(Adapter(model="a", weight=1), Adapter(model="b", weight=3)), requests=1000), seed=1)
    counts = Counter(one.model for one in made)
    assert counts["b"] / len(made) == pytest.approx(0.75, abs=0.05)
    assert {one.group for one in made} == {"a", "b"}


@pytest.mark.parametrize(("lengths", "mean"), [
    (Normal(mean=100, sd=10, high=1000), 100), (Normal(mean=5, sd=0, high=9), 5),
    (Empirical(values=(10, 20)), 15), (Empirical(values=(10, 20), weights=(3, 1)), 12.5),
])
def test_more_distributions(lengths: Normal | Empirical, mean: float) -> None:
    drawn = draw_lengths(lengths, 20_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(mean, rel=0.02)
    assert drawn.max() <= lengths.longest


@pytest.mark.parametrize("raw", [
    {"kind": "empirical", "values": []}, {"kind": "empirical", "values": [1], "weights": [1, 2]},
    {"kind": "empirical", "values": [1], "weights": [0]}, {"kind": "empirical", "values": [0]},
])
def test_distributions_that_are_none(raw: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="empirical"):
        workload(input_tokens=raw)


SESSIONS = Sessions(users=3, turns=Uniform(low=2, high=4), think_s=0.5)


def test_a_conversation_grows_by_question_and_answer() -> None:
    shape = workload(arrivals=SESSIONS, shared_prefix=0.5, prefix_groups=2)
    made = build_requests(shape, vocab_size=5000, seed=1, salt="a")
    sessions = by_session([request for request in made if not request.warmup])
    assert sum(map(len, sessions)) == 40
    assert all(2 <= len(session) <= 4 for session in sessions[:-1])
    for session in sessions:
        assert session[0].think_s == 0
        assert [len(turn.prompt) for turn in session] == [30 + 40 * n for n in range(len(session))]
        for before, after in itertools.pairwise(session):
            assert after.prompt[: len(before.prompt)] == before.prompt
            assert after.think_s > 0
    beginnings = Counter(session[0].prompt[:15] for session in sessions)
    assert len(beginnings) == 2
    assert len({session[0].prompt for session in sessions}) == len(sessions)


def test_a_conversation_as_chat_has_its_roles() -> None:
    made = build_requests(workload(arrivals=SESSIONS, shared_prefix=0.5), vocab_size=None, seed=1, salt="a", as_text=True)
    second = next(request for request in made if request.id == "s0t1")
    assert [message.role for message in second.prompt if isinstance(message, Message)] == [
        "system", "user", "assistant", "user"]


def test_text_is_as_long_as_the_scale_says() -> None:
    scale = TextScale(tokens_per_word=1.25, overhead=5)
    made = build_requests(workload(input_tokens=Fixed(tokens=130)), vocab_size=None, seed=1, salt="a", as_text=True,
                          scale=scale)
    words = len(made[-1].prompt[0].text.split())  # type: ignore[union-attr]
    assert words * 1.25 + 5 == pytest.approx(130, abs=1)


TRACE = [TracePoint(0, 1030, 52, (46, 47, 48)), TracePoint(3.5, 600, 26, (46, 99)), TracePoint(4.0, 20, 5)]


def test_a_trace_gives_times_lengths_and_shared_blocks() -> None:
    shape = workload(arrivals=Trace(path="x"), requests=3, warmup_requests=2)
    made = build_requests(shape, vocab_size=5000, seed=1, salt="a", trace=TRACE)
    assert [request.at_s for request in made] == pytest.approx([0, 0.1, 1.2, 4.7, 5.2])
    measured = made[2:]
    assert [(r.input_tokens, r.output_tokens) for r in measured] == [(1030, 52), (600, 26), (20, 5)]
    assert measured[0].prompt[:512] == measured[1].prompt[:512]
    assert measured[0].prompt[512:600] != measured[1].prompt[512:600]
    assert schedule(shape.arrivals, made, seed=1).times == tuple(request.at_s for request in made)


def test_a_short_trace_is_gone_through_again_with_new_contents() -> None:
    shape = workload(arrivals=Trace(path="x"), requests=6, warmup_requests=0)
    made = build_requests(shape, vocab_size=5000, seed=1, salt="a", trace=TRACE)
    assert [request.at_s for request in made] == pytest.approx([0, 3.5, 4, 6, 9.5, 10])
    assert made[0].prompt[:8] != made[3].prompt[:8]


def profile(*points: tuple[float, float], burstiness: float | None = 1.0) -> RateProfile:
    return RateProfile(points=tuple(RatePoint(at_s=at, rate_per_s=rate) for at, rate in points), burstiness=burstiness)


def test_a_step_and_a_ramp_of_the_rate() -> None:
    stepped = np.array(profile_offsets(profile((0, 10), (10, 10), (10, 40), burstiness=None), 300, seed=1))
    assert ((stepped > 0) & (stepped <= 10)).sum() == pytest.approx(100, abs=1)
    assert ((stepped > 10) & (stepped <= 15)).sum() == pytest.approx(200, abs=1)
    ramped = np.array(profile_offsets(profile((0, 0), (10, 20), burstiness=None), 100, seed=1))
    assert (ramped <= 5).sum() == pytest.approx(25, abs=1)
    assert ramped[-1] == pytest.approx(10, abs=0.01)


def test_a_flat_profile_is_an_open_loop() -> None:
    flat = profile_offsets(profile((0, 7), (5, 7)), 80, seed=3)
    assert flat == pytest.approx(schedule(OpenLoop(rate_per_s=7), [None] * 80, seed=3).times)  # type: ignore[list-item]


@given(points=st.lists(st.tuples(st.floats(0, 50), st.floats(0, 30)), min_size=1, max_size=5), seed=st.integers(0, 5))
def test_send_times_never_go_back(points: list[tuple[float, float]], seed: int) -> None:
    points = sorted(points)
    points[-1] = (points[-1][0], points[-1][1] + 1)
    offsets = profile_offsets(profile(*points), 60, seed)
    assert all(np.isfinite(offsets))
    assert list(offsets) == sorted(offsets)
    assert offsets[0] >= 0


@pytest.mark.parametrize("points", [((5, 1), (0, 1)), ((0, 1), (5, 0))])
def test_profiles_that_are_none(points: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match=r"order of time|above zero"):
        profile(*points)


@pytest.mark.parametrize("arrivals", [ClosedLoop(concurrency=10), OpenLoop(rate_per_s=5), SESSIONS])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_hold_everything_once_and_about_the_same(arrivals: object, parts: int) -> None:
    shape = workload(arrivals=arrivals, requests=60, warmup_requests=0)
    requests = build_requests(shape, vocab_size=5000, seed=1, salt="a")
    whole = schedule(shape.arrivals, requests, seed=1)
    dealt = split(whole, requests, parts)
    assert sorted(r.id for _, own in dealt for r in own) == sorted(r.id for r in requests)
    assert sorted(t for part, _ in dealt for t in (*part.clients, *part.times)) == sorted((*whole.clients, *whole.times))
    assert max(len(own) for _, own in dealt) - min(len(own) for _, own in dealt) <= 4
    for _, own in dealt:
        names = [request.session for request in own if request.session]
        assert all(names.count(name) == sum(r.session == name for r in requests) for name in set(names))


def test_a_ramp_can_be_given() -> None:
    shape = workload(arrivals=ClosedLoop(concurrency=10, ramp_s=20))
    clients = schedule(shape.arrivals, shapes_to_requests(shape), seed=1).clients
    assert 18 <= clients[-1] <= 20


def shapes_to_requests(shape: Workload) -> list:  # type: ignore[type-arg]
    return build_requests(shape, vocab_size=5000, seed=1, salt="a")
