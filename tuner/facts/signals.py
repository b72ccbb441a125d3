"""What a server of an engine shows in Prometheus: the names behind load, latency and memory."""

from __future__ import annotations

from packaging.version import Version

from tuner.domain.record import Record
from tuner.facts.flags import parse_version
from tuner.facts.read import data


class Signals(Record):
    """Metric names of one engine; None where it has no such metric. Latencies are histograms in seconds."""

    since: str
    page: str
    """Path of the page that holds them; a server that shows another page cannot be watched so."""
    model_label: str
    running: str
    waiting: str
    kv_usage: str
    output_tokens: str
    preemptions: str | None = None
    ttft: str | None = None
    itl: str | None = None
    tpot: str | None = None
    e2e: str | None = None

    def latency(self, metric: str) -> str | None:
        """Return the histogram of `ttft`, `itl`, `tpot` or `e2e`; None for anything else."""
        found = {"ttft": self.ttft, "itl": self.itl, "tpot": self.tpot, "e2e": self.e2e}
        return found.get(metric)


def signals(engine: str, version: str, page: str) -> Signals | None:
    """Return the signals of a server that shows its metrics at `page`; None when they are not known."""
    row = data("signals.yaml")["engines"].get(engine)
    if row is None:
        return None
    found = Signals.model_validate(row)
    return found if parse_version(version) >= Version(found.since) and page == found.page else None
