"""What a level says by the server's own counters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.domain.bench import Level
from tuner.domain.engine import ServerMetrics
from tuner.engines import ENGINES

pytestmark = pytest.mark.unit


def level(before: ServerMetrics, after: ServerMetrics) -> Level:
    return Level.model_construct(label="c1", before=before, after=after)


def test_queue_time_is_what_was_gained() -> None:
    found = level(ServerMetrics(queue_s=1.0, queue_left=10), ServerMetrics(queue_s=2.0, queue_left=30))
    assert found.queue_ms == pytest.approx(50.0)


@pytest.mark.parametrize("after", [ServerMetrics(), ServerMetrics(queue_s=1.0, queue_left=10)])
def test_no_queue_time_without_requests(after: ServerMetrics) -> None:
    assert level(ServerMetrics(queue_s=1.0, queue_left=10), after).queue_ms is None


def test_acceptance() -> None:
    before, after = ServerMetrics(draft_tokens=0, accepted_tokens=0), ServerMetrics(draft_tokens=40, accepted_tokens=30)
    assert level(before, after).accepted_share == pytest.approx(0.75)
    assert level(ServerMetrics(), after).accepted_share is None


def test_the_real_scrape_has_a_queue() -> None:
    text = (Path(__file__).parents[1] / "data" / "vllm_logs" / "ok.metrics").read_text()
    metrics = ENGINES["vllm"].server_metrics(text)
    assert metrics.queue_left == metrics.requests_finished == 2
    assert metrics.queue_s is not None
    assert 0 <= metrics.queue_s < 1
