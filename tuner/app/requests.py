"""The requests of one run, from whatever the workload says they come from."""

from __future__ import annotations

from pathlib import Path

from tuner.domain.workload import Trace, Workload
from tuner.load.dataset import read_prompts, requests_from_rows
from tuner.load.prompts import Request, TextScale, build_requests
from tuner.load.traces import read_trace


def requests_of(
    workload: Workload,
    *,
    vocab_size: int | None,
    seed: int,
    salt: str,
    as_text: bool = False,
    scale: TextScale | None = None,
) -> list[Request]:
    """Return the workload's requests: the user's own prompts, a trace's lengths, or drawn ones.

    Raises:
        SpaceError: a file of prompts or a trace that cannot be read.
        UsageError: ids are asked for without a usable vocabulary.

    """
    if workload.prompts_file:
        rows = read_prompts(Path(workload.prompts_file), sha256=workload.prompts_sha256)
        return requests_from_rows(workload, rows, seed=seed)
    trace = read_trace(workload.arrivals) if isinstance(workload.arrivals, Trace) else ()
    return build_requests(
        workload, vocab_size=vocab_size, seed=seed, salt=salt, as_text=as_text, scale=scale, trace=trace
    )
