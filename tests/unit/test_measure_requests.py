from __future__ import annotations

import pytest

from tests.unit.measure_records import lane, record, run
from tuner.domain.slo import parse_slo
from tuner.domain.trial import Warn
from tuner.domain.workload import ClosedLoop, OpenLoop
from tuner.errors import NothingMeasuredError
from tuner.measure.requests import measure
from tuner.measure.samples import request_values, within_limits
from tuner.measure.table import METRICS

pytestmark = pytest.mark.unit


def test_one_answer_by_hand() -> None:
    one = record(0, start_ms=5, chunks_ms=(50, 70, 110), tokens=(2, 1, 4))
    assert list(request_values(one, "ttft")) == [50.0]
    assert list(request_values(one, "itl")) == [20.0, 40.0]
    assert list(request_values(one, "tpot")) == [pytest.approx(60 / 5)]
    assert list(request_values(one, "e2e")) == [110.0]


def test_an_answer_of_one_arrival_has_no_gaps() -> None:
    one = record(0, chunks_ms=(50,), tokens=(3,))
    assert request_values(one, "itl").size == 0
    assert request_values(one, "tpot").size == 0
    assert list(request_values(one, "e2e")) == [50.0]


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="no latency metric"):
        request_values(record(0), "speed")


def test_percentiles_come_from_all_samples() -> None:
    records = [record(n, start_ms=n * 100, chunks_ms=(10 + n, 20 + n)) for n in range(100)]
    found = measure(run(records))
    assert found.ttft_ms is not None
    assert found.ttft_ms.p50.value == pytest.approx(59.5)
    assert found.ttft_ms.p99.value == pytest.approx(108.01)
    assert found.ttft_ms.p99.high == 109
    assert found.ttft_ms.mean.value == pytest.approx(59.5)


def test_throughput_is_counted_in_the_full_window() -> None:
    """UP-F27: counted over the ramps as well, a rival's rate was 0.5 where 0.7 was served."""
    # Two clients; the second starts 500 ms late and the first goes on 500 ms longer, so the ramps hold half the rate.
    records = [*lane(20), *lane(20, first_ms=500, number=20)]
    found = measure(run(records, ClosedLoop(concurrency=2)))
    assert found.window_s == pytest.approx(1.5, abs=0.03)
    assert found.output_tokens_per_s.value == pytest.approx(100, rel=0.02)
    assert found.output_tokens / found.duration_s == pytest.approx(80, rel=0.01)
    assert found.total_tokens_per_s.value == pytest.approx(300, rel=0.04)
    assert found.requests_per_s.value == pytest.approx(20, rel=0.07)
    assert Warn.NOT_STEADY not in {warning.kind for warning in found.warnings}


def test_warm_up_is_load_but_no_sample() -> None:
    warm = [record(n, start_ms=n * 100, chunks_ms=(500, 510), warmup=True, end_ms=100) for n in range(5)]
    found = measure(run([*warm, *lane(30, first_ms=500, number=5)]))
    assert found.requests == 30
    assert found.ttft_ms is not None
    assert found.ttft_ms.p99.value == 20.0


def test_a_run_that_was_never_full_counts_whole_and_says_so() -> None:
    found = measure(run(lane(12), ClosedLoop(concurrency=8)))
    assert found.window_s == pytest.approx(1.2)
    assert Warn.NOT_STEADY in {warning.kind for warning in found.warnings}


def test_open_loop_leaves_out_the_ramps_and_sees_a_growing_queue() -> None:
    calm = [record(n, start_ms=n * 10, chunks_ms=(50, 100)) for n in range(300)]
    found = measure(run(calm, OpenLoop(rate_per_s=100)))
    assert found.window_s == pytest.approx(2.89, abs=0.01)
    assert {warning.kind for warning in found.warnings} == set()
    flooded = [record(n, start_ms=n * 10, chunks_ms=(50 + 20 * n, 100 + 20 * n)) for n in range(300)]
    found = measure(run(flooded, OpenLoop(rate_per_s=100)))
    assert Warn.SATURATED in {warning.kind for warning in found.warnings} or Warn.NOT_STEADY in {
        warning.kind for warning in found.warnings}


def test_failed_answers_count_as_errors_and_give_no_tokens() -> None:
    good = lane(40)
    bad = [record(40 + n, start_ms=4000 + n, chunks_ms=(10, 20), error="stream_error") for n in range(10)]
    cut = [record(50, start_ms=4100, chunks_ms=(10,), error="interrupted")]
    found = measure(run([*good, *bad, *cut]))
    assert (found.requests, found.completed, found.failed) == (50, 40, 10)
    assert found.errors == {"stream_error": 10}
    assert found.output_tokens == 200


def test_goodput_and_attainment() -> None:
    slo = parse_slo("p95 ttft<=30ms, p95 itl<=25ms")
    fast, slow = lane(60), [record(60 + n, start_ms=6000 + n * 100, chunks_ms=(40, 60, 100)) for n in range(20)]
    found = measure(run([*fast, *slow]), slo)
    assert found.slo_attainment is not None
    assert found.slo_attainment.value == pytest.approx(0.75)
    assert found.goodput_per_s is not None
    assert found.goodput_per_s.value < found.requests_per_s.value
    assert found.limits["p95 ttft<=30ms"].value == 40.0
    assert found.limits["p95 itl<=25ms"].n == 80


def test_without_an_slo_there_is_no_goodput() -> None:
    found = measure(run(lane(20)))
    assert found.goodput_per_s is None
    assert found.slo_attainment is None
    assert found.limits == {}


@pytest.mark.parametrize(("slo", "kept"), [
    ("p95 ttft<=50ms", True), ("p95 ttft<=49ms", False), ("mean itl<=20ms", True), ("p50 itl<=19ms", False),
    ("p99 tpot<=20ms, p95 e2e<=90ms", True), ("error_rate<=1%", True),
])
def test_what_a_request_must_keep(slo: str, kept: bool) -> None:
    assert within_limits(record(0), parse_slo(slo)) is kept
    assert not within_limits(record(0, error="timeout"), parse_slo(slo))


def test_limits_of_any_percentile_and_of_errors() -> None:
    slo = parse_slo("p97.5 e2e<=1s, mean ttft<=1s, error_rate<=5%")
    found = measure(run([*lane(30), record(30, start_ms=3000, error="reset")]), slo)
    assert found.limits["p97.5 e2e<=1000ms"].value == 100.0
    assert found.limits["mean ttft<=1000ms"].value == 20.0
    assert found.limits["error_rate<=5%"].value == pytest.approx(1 / 31)


@pytest.mark.parametrize("records", [[], [record(0, warmup=True)], [record(0, error="interrupted")]])
def test_an_empty_run_is_an_error(records: list[object]) -> None:
    with pytest.raises(NothingMeasuredError, match="no request was measured: gone"):
        measure(run(records, stopped="gone"))  # type: ignore[arg-type]


def test_a_run_of_failures_has_no_latency() -> None:
    found = measure(run([record(n, start_ms=n, chunks_ms=(), error="http_503", end_ms=2) for n in range(12)]))
    assert found.ttft_ms is None
    assert found.output_tokens_per_s.value == 0.0
    assert found.failed == 12


def test_a_measurement_survives_json() -> None:
    found = measure(run(lane(40)), parse_slo("p95 ttft<=30ms"))
    assert type(found).model_validate_json(found.model_dump_json()) == found


def test_the_table_of_metrics_is_complete_and_unique() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    fields = set(type(measure(run(lane(20)))).model_fields)
    assert {name for name in names if name != "error_rate"} <= fields
    assert all(metric.formula and metric.edge_cases for metric in METRICS)


def test_a_throughput_that_drifts_is_not_steady() -> None:
    slowing = [record(n, start_ms=sum(50 + 2 * k for k in range(n)), chunks_ms=(20, 50 + 2 * n)) for n in range(80)]
    assert "throughput went" in " ".join(warning.detail for warning in measure(run(slowing)).warnings)


def test_of_a_run_that_was_ended_the_last_starts_do_not_count() -> None:
    """Ten clients; when the run ends, only short answers of the last round are in."""
    whole = [record(n, start_ms=n * 10, chunks_ms=(20, 100)) for n in range(100)]
    short = [record(100 + n, start_ms=1000 + n, chunks_ms=(20, 21)) for n in range(20)]
    cut = [record(120 + n, start_ms=1000, chunks_ms=(20, 30), error="interrupted") for n in range(5)]
    found = measure(run([*whole, *short, *cut], OpenLoop(rate_per_s=100), stopped="enough"))
    assert found.e2e_ms is not None
    assert found.e2e_ms.p50.low == found.e2e_ms.p50.high == 100.0
    assert found.stopped == "enough"


def test_classes_have_their_own_results() -> None:
    slo = parse_slo("p95 ttft<=30ms")
    records = [*lane(30), *[record(30 + n, start_ms=3000 + n * 50, group="long") for n in range(20)]]
    found = measure(run(records), slo)
    assert set(found.groups) == {"other", "long"}
    assert found.groups["long"].ttft_ms is not None
    assert found.groups["long"].ttft_ms.p50.value == 50
    assert found.groups["long"].slo_attainment is not None
    assert found.groups["long"].slo_attainment.value == 0
    assert found.groups["other"].requests == 30


def test_time_per_token_counts_the_whole_answer() -> None:
    found = measure(run(lane(20)))
    assert found.normalized_ms is not None
    assert found.normalized_ms.p50.value == pytest.approx(20.0)
