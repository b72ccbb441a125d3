"""What the server's own counters and the machine's say about a run: reasons to trust its numbers less."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tuner.domain.bench import Reading
from tuner.domain.engine import ServerMetrics
from tuner.domain.trial import Environment, Measurement, MeasureWarning, Warn

_OTHERS_SHARE = 0.15
_STEAL_SHARE = 0.02
_HELD_SHARE = 0.1
_HIT_SHARE = 0.02
_COUNT_SHARE = 0.02


def observed_warnings(
    measurement: Measurement,
    *,
    before: ServerMetrics | None,
    after: ServerMetrics | None,
    environment: Environment,
    readings: Sequence[Reading] = (),
    shared_prefix: bool = False,
    engine_is_here: bool = False,
) -> tuple[MeasureWarning, ...]:
    """Return warnings from outside of the client. `shared_prefix` says that prefix hits are part of the workload.

    `engine_is_here` says that the engine runs on this host and its CPU time is not known, so that a busy host says
    nothing.
    """
    found = [
        *_of_server(measurement, before, after, shared_prefix=shared_prefix),
        *_of_machine(environment, engine_is_here=engine_is_here),
        *_of_gpus(readings),
    ]
    return tuple(MeasureWarning(kind=kind, detail=detail) for kind, detail in found)


def with_warnings(measurement: Measurement, more: Sequence[MeasureWarning]) -> Measurement:
    """Return the measurement with further warnings; of a kind that it has already, its own is kept."""
    known = {warning.kind for warning in measurement.warnings}
    added = tuple(warning for warning in more if warning.kind not in known)
    return measurement.model_copy(update={"warnings": (*measurement.warnings, *added)})


def _of_server(
    measurement: Measurement, before: ServerMetrics | None, after: ServerMetrics | None, *, shared_prefix: bool
) -> Iterator[tuple[Warn, str]]:
    if before is None or after is None:
        return
    preempted = _grown(before.preemptions, after.preemptions)
    if preempted:
        yield Warn.PREEMPTIONS, f"{preempted:.0f} preemptions during the run"
    asked, hits = _grown(before.prefix_queries, after.prefix_queries), _grown(before.prefix_hits, after.prefix_hits)
    if asked and hits and not shared_prefix and hits / asked > _HIT_SHARE:
        yield Warn.PREFIX_HITS, f"{hits / asked:.0%} of the prompt tokens came from the prefix cache"
    made = _grown(before.generation_tokens, after.generation_tokens)
    if made is not None and measurement.failed == 0 and made < measurement.output_tokens * (1 - _COUNT_SHARE):
        yield (
            Warn.COUNT_MISMATCH,
            (f"the server counted {made:.0f} output tokens, its answers said {measurement.output_tokens}"),
        )


def _of_machine(environment: Environment, *, engine_is_here: bool) -> Iterator[tuple[Warn, str]]:
    others, stolen = environment.host_cpu_share, environment.cpu_steal_share
    if not engine_is_here and others is not None and others > _OTHERS_SHARE:
        yield Warn.HOST_BUSY, f"other processes used {others:.0%} of the CPUs"
    if stolen is not None and stolen > _STEAL_SHARE:
        yield Warn.HOST_BUSY, f"the hypervisor gave {stolen:.0%} of the CPU time to others"


def _of_gpus(readings: Sequence[Reading]) -> Iterator[tuple[Warn, str]]:
    gpus = [gpu for reading in readings for gpu in reading.gpus]
    counts = Counter(name for gpu in gpus for name in gpu.held_back)
    held = [
        f"{name} in {count / len(gpus):.0%}"
        for name, count in sorted(counts.items())
        if count > _HELD_SHARE * len(gpus)
    ]
    if held:
        yield Warn.THROTTLED, f"clocks were held back ({', '.join(held)} of the readings)"


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
