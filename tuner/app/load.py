"""The load of a trial: requests that no earlier run has sent, and a client that is not the bottleneck."""

from __future__ import annotations

import os
from collections.abc import Callable

from tuner.app.requests import requests_of
from tuner.domain.load_record import LoadRun
from tuner.domain.study import StudySpec
from tuner.load.driver import Progress
from tuner.load.run import run_load
from tuner.measure.quality import client_limits

_MOST_WORKERS = 8


def load(
    study: StudySpec,
    url: str,
    served_name: str,
    *,
    salt: str,
    stop: Callable[[], str | None],
    on_progress: Callable[[Progress], None],
) -> LoadRun:
    """Send the study's workload once; where the client was the bottleneck, once more from several processes.

    On a CPU the engine shares its cores with any client, and more processes would only take more from it.
    """

    def once(salt: str, workers: int) -> LoadRun:
        requests = requests_of(study.workload, vocab_size=study.model.vocab_size, seed=study.seed, salt=salt)
        return run_load(
            url, served_name, requests, study.workload,
            seed=study.seed, stop=stop, on_progress=on_progress, workers=workers,
        )

    run = once(salt, 1)
    workers = min(_MOST_WORKERS, len(os.sched_getaffinity(0)))
    if study.hardware.kind == "cuda" and run.stopped is None and workers > 1 and client_limits(run):
        run = once(f"{salt}-again", workers)
    return run


def refusal(study: StudySpec, run: LoadRun) -> str | None:
    """Return why this run's numbers are the client's and not the server's, so that no sampler may see them."""
    limits = client_limits(run)
    if not limits or study.hardware.kind == "cpu":
        return None
    return f"the load generator could not keep up ({'; '.join(limits)})"
