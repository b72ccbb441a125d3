"""The scheduler simulation: conservation, order, cache, and the knobs that must matter."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.app.traffic import at_rate, jobs_of
from tuner.capacity.jobs import Engine, Job, Simulated, weighted_percentile
from tuner.capacity.latency import StepTime, step_time
from tuner.capacity.simulate import simulate
from tuner.domain.engine import Footprint
from tuner.domain.workload import ClosedLoop, Fixed, Sessions, Workload
from tuner.errors import UsageError
from tuner.facts.catalog import model_by_alias, workload_preset
from tuner.facts.gpus import gpu_table

pytestmark = pytest.mark.unit


def step() -> StepTime:
    model = model_by_alias("llama-3-8b")
    assert model is not None
    found = step_time(model, Footprint(), gpu_table()["H100-SXM5-80GB"])
    assert isinstance(found, StepTime)
    return found


STEP = step()
ROOMY = Engine(max_sequences=256, token_budget=8192, blocks=20_000)


def run(jobs: list[Job], **engine: object) -> Simulated:
    values = {"max_sequences": 256, "token_budget": 8192, "blocks": 20_000} | engine
    return simulate(jobs, Engine(**values), STEP)  # type: ignore[arg-type]


def load(count: int = 200, rate: float = 20.0, prompt: int = 512, output: int = 128) -> list[Job]:
    gaps = np.random.default_rng(1).exponential(1 / rate, size=count)
    return [Job(prompt=prompt, output=output, at_s=float(at)) for at in np.cumsum(gaps)]


def test_one_request_takes_its_prompt_and_then_its_steps() -> None:
    done = run([Job(prompt=1000, output=11, at_s=0.0)])
    first = STEP.seconds(0, 0, 1000, 1000 * 500)
    assert done.first[0] == pytest.approx(first + STEP.request_s)
    assert done.end[0] - done.first[0] == pytest.approx(10 * STEP.seconds(1, 1006), rel=0.01)
    assert done.gaps @ done.weights == pytest.approx(done.end[0] - done.first[0])
    assert done.steps == 11


@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 300), st.floats(0, 5)), min_size=1, max_size=40),
       st.integers(1, 16), st.sampled_from([64, 512, 8192]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_request_is_answered_once_in_order_of_time(
    requests: list[tuple[int, int, float]], sequences: int, budget: int, chunked: bool
) -> None:
    jobs = [Job(prompt=prompt, output=output, at_s=at) for prompt, output, at in requests]
    done = run(jobs, max_sequences=sequences, token_budget=budget, blocks=400, chunked=chunked)
    assert done.end.size + done.refused == len(jobs)
    assert np.all(done.first >= done.arrival)
    assert np.all(done.end >= done.first)
    assert done.running <= sequences + 1e-9
    assert done.peak_blocks <= 400 + sequences + 1
    tokens = done.weights.sum()
    assert tokens == pytest.approx(sum(int(n) - 1 for n in done.output), rel=0.02, abs=2 + done.preemptions * 300)


def test_a_queue_grows_where_the_rate_is_above_what_can_be_served() -> None:
    calm, full = run(load(rate=5)), run(load(rate=400), max_sequences=8)
    assert np.percentile(full.ttft, 99) > 20 * np.percentile(calm.ttft, 99)
    assert calm.running < 8


def test_fewer_sequences_give_a_shorter_step_and_a_longer_wait() -> None:
    few, many = (run(load(rate=60), max_sequences=limit) for limit in (16, 256))
    assert few.itl(50) < many.itl(50)
    assert np.percentile(few.ttft, 95) > np.percentile(many.ttft, 95)


def test_a_small_token_budget_keeps_the_tail_between_tokens_low() -> None:
    jobs = load(rate=12, prompt=6000, output=200)
    small, large = run(jobs, token_budget=512), run(jobs, token_budget=16384)
    assert small.itl(99) < 0.5 * large.itl(99)
    assert np.median(small.ttft) > np.median(large.ttft)


def test_without_chunks_a_prompt_is_computed_whole() -> None:
    whole = run([Job(prompt=5000, output=2, at_s=0.0)], token_budget=512, chunked=False)
    cut = run([Job(prompt=5000, output=2, at_s=0.0)], token_budget=512)
    assert whole.steps == 2
    assert cut.steps == 11


def test_a_full_cache_stops_the_last_and_computes_it_again() -> None:
    jobs = load(count=60, rate=200, prompt=200, output=400)
    tight, roomy = run(jobs, blocks=400), run(jobs)
    assert tight.preemptions > 0
    assert roomy.preemptions == 0
    assert tight.end.max() > roomy.end.max()
    assert tight.peak_blocks <= 400 + 60


def test_a_request_that_never_fits_is_refused_and_the_others_go_on() -> None:
    done = run([Job(prompt=100_000, output=5, at_s=0.0), Job(prompt=100, output=5, at_s=0.1)], blocks=100)
    assert done.refused == 1
    assert done.end.size == 1


def test_a_shared_beginning_is_computed_once() -> None:
    jobs = [Job(prompt=4000, output=10, at_s=float(i), shared=(("system", 3500),)) for i in range(20)]
    hit, miss = run(jobs), run(jobs, prefix_caching=False)
    assert hit.hit_tokens == 19 * (3500 // 16 * 16)
    assert miss.hit_tokens == 0
    assert np.median(hit.ttft) < 0.6 * np.median(miss.ttft)


def test_a_beginning_is_forgotten_when_the_pool_has_gone_round() -> None:
    first = Job(prompt=1600, output=2, at_s=0.0, shared=(("old", 1600),))
    others = [Job(prompt=1600, output=2, at_s=1.0 + i) for i in range(6)]
    again = Job(prompt=1600, output=2, at_s=20.0, shared=(("old", 1600),))
    assert run([first, *others, again], blocks=400).hit_tokens == 0
    assert run([first, *others, again], blocks=4000).hit_tokens == 1600 - 1


def test_the_same_beginning_of_other_length_counts_as_far_as_it_goes() -> None:
    jobs = [Job(prompt=2000, output=2, at_s=0.0, shared=(("s", 1600),)),
            Job(prompt=2000, output=2, at_s=1.0, shared=(("s", 800),)),
            Job(prompt=4000, output=2, at_s=2.0, shared=(("s", 3200),)),
            Job(prompt=4000, output=2, at_s=3.0, shared=(("s", 3200),))]
    assert run(jobs).hit_tokens == 800 + 1600 + 3200


def test_more_tokens_a_step_end_sooner() -> None:
    plain = run(load(rate=2))
    fast = run(load(rate=2), tokens_per_step=2.5, queries=4.0, draft_share=0.1)
    assert np.median(fast.tpot) < 0.6 * np.median(plain.tpot)


def test_a_closed_loop_keeps_its_clients_busy() -> None:
    workload = Workload(name="w", input_tokens=Fixed(tokens=256), output_tokens=Fixed(tokens=64), requests=200,
                        arrivals=ClosedLoop(concurrency=8))
    done = simulate(jobs_of(workload), ROOMY, STEP)
    assert done.end.size == 200
    assert 6.5 < done.running <= 8


def test_conversations_follow_one_another_and_hit_their_history() -> None:
    workload = Workload(name="w", input_tokens=Fixed(tokens=300), output_tokens=Fixed(tokens=64), requests=60,
                        arrivals=Sessions(users=3, turns=Fixed(tokens=5), think_s=1.0))
    done = simulate(jobs_of(workload), ROOMY, STEP)
    assert done.end.size == 60
    assert done.running <= 3
    assert done.hit_tokens > 0.4 * done.prompt_tokens


def test_prompts_of_a_file_cannot_be_simulated() -> None:
    workload = workload_preset("chat").model_copy(update={"prompts_file": "prompts.jsonl"})
    with pytest.raises(UsageError, match="lengths in tokens"):
        jobs_of(workload)


def test_an_empty_run_is_no_error() -> None:
    assert simulate([], ROOMY, STEP).end.size == 0


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 5)), min_size=1, max_size=50), st.floats(1, 99))
def test_weighted_percentiles_are_those_of_repeated_values(pairs: list[tuple[float, int]], percent: float) -> None:
    values, weights = np.array([v for v, _ in pairs]), np.array([float(w) for _, w in pairs])
    repeated = np.repeat(values, weights.astype(int))
    found = weighted_percentile(values, weights, percent)
    assert (repeated <= found).mean() >= percent / 100 - 1e-9
    assert (repeated < found).mean() <= percent / 100 + 1e-9


def test_a_request_has_the_gaps_of_its_own_steps() -> None:
    done = run(load(count=40, rate=30))
    own = done.itl_of_requests(None)
    assert own == pytest.approx(done.tpot, rel=0.02)
    assert np.all(done.itl_of_requests(99.0) >= done.itl_of_requests(50.0))


def test_a_hundred_thousand_requests_a_minute_on_one_core() -> None:
    workload = at_rate(workload_preset("chat").model_copy(update={"requests": 4000}), 30.0)
    jobs = jobs_of(workload)
    begun = time.process_time()
    simulate(jobs, ROOMY, STEP)
    assert 60 * len(jobs) / (time.process_time() - begun) > 100_000
