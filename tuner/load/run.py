"""The one entry to the load generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.domain.load_record import INTERRUPTED, LoadRun, RequestRecord
from tuner.domain.workload import Workload
from tuner.load.arrivals import schedule
from tuner.load.driver import Hooks, Progress, drive
from tuner.load.prompts import Request
from tuner.load.target import Api, parse_target
from tuner.load.workers import drive_with_workers


def run_load(
    url: str,
    model: str,
    requests: Sequence[Request],
    workload: Workload,
    *,
    api: Api = "completions",
    api_key: str | None = None,
    dialect: str = "vllm",
    ignore_eos: bool | None = None,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    on_record: Callable[[RequestRecord], None] | None = None,
    stop: Callable[[], str | None] | None = None,
    keep_on_interrupt: bool = False,
    workers: int = 1,
) -> LoadRun:
    """Send `requests` to the server at `url` with the workload's arrivals and time limit.

    `stop` is asked about every 0.1 s; a text that it returns ends the run at once. So does a server that fails
    everything. The requests that were under way then count as interrupted, and `LoadRun.stopped` says why. With
    `keep_on_interrupt` Ctrl-C does the same, otherwise it is raised on. `workers` processes share the load.

    Raises:
        UsageError: for a URL that is none, or more connections than this process may open.
        KeyboardInterrupt: on Ctrl-C, unless `keep_on_interrupt`.

    """
    target = parse_target(url, model, api=api, api_key=api_key, dialect=dialect, ignore_eos=ignore_eos)
    plan = schedule(workload.arrivals, requests, seed)
    hooks = Hooks(on_progress, on_record, stop)
    if workers > 1:
        run = drive_with_workers(target, requests, workload.arrivals, plan, workers=min(workers, len(requests)),
                                 timeout_s=workload.timeout_s, hooks=hooks)
    else:
        run = drive(target, requests, workload.arrivals, plan, timeout_s=workload.timeout_s, hooks=hooks)
    if run.stopped == INTERRUPTED and not keep_on_interrupt:
        raise KeyboardInterrupt
    return run
