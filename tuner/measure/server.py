"""What the server's own counters and the host say of a run, as warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tuner.domain.bench import Reading
from tuner.domain.engine import ServerMetrics
from tuner.domain.load_record import LoadRun
from tuner.domain.trial import Environment, Estimate, Measurement, MeasureWarning, Warn
from tuner.domain.workload import Sessions, Trace, Workload

COUNT_TOLERANCE = 0.01
PREFIX_HIT_LIMIT = 0.02
HOST_SHARE_LIMIT = 0.10
STEAL_LIMIT = 0.02
SUSPECT_HOST_SHARE = 0.25
SUSPECT_STEAL = 0.10
HELD_BACK_LIMIT = 0.1


def with_server(
    measurement: Measurement,
    run: LoadRun,
    workload: Workload,
    before: ServerMetrics,
    after: ServerMetrics,
    *,
    environment: Environment | None = None,
    readings: Sequence[Reading] = (),
) -> Measurement:
    """Return the measurement with the warnings that the server's side adds.

    `before` and `after` are readings of counters around the run, on a server that nobody else used.
    """
    found = tuple(server_warnings(run, workload, before, after, environment=environment, readings=readings))
    return measurement.model_copy(update={"warnings": (*measurement.warnings, *found)})


def server_warnings(
    run: LoadRun,
    workload: Workload,
    before: ServerMetrics,
    after: ServerMetrics,
    *,
    environment: Environment | None = None,
    readings: Sequence[Reading] = (),
) -> Iterator[MeasureWarning]:
    """Compare the server's counters with the client's records, and look for what should not have happened."""
    made = _gained(before.generation_tokens, after.generation_tokens)
    if made is not None and (detail := _count_mismatch(run, made)):
        yield MeasureWarning(kind=Warn.COUNT_MISMATCH, detail=detail)
    preempted = _gained(before.preemptions, after.preemptions)
    if preempted:
        yield MeasureWarning(kind=Warn.PREEMPTIONS, detail=f"{preempted:.0f} preemptions during the run")
    asked, hits = (_gained(before.prefix_queries, after.prefix_queries), _gained(before.prefix_hits, after.prefix_hits))
    if asked and hits is not None and not shares_prefixes(workload) and hits / asked > PREFIX_HIT_LIMIT:
        yield MeasureWarning(kind=Warn.PREFIX_HITS,
                             detail=f"{hits / asked:.1%} of the prompt tokens came from the cache, and none should")
    if environment is not None:
        yield from _host(environment)
    yield from _gpus(readings)


def joules_per_token(readings: Sequence[Reading], rate: Estimate) -> Estimate | None:
    """Return the energy of all GPUs per output token, in J; None where a GPU does not tell its power.

    Mean power over the readings times the time per token; the interval is that of the rate, which is the wider one.
    """
    powers = [[gpu.power_w for gpu in reading.gpus] for reading in readings if reading.gpus]
    known = [sum(power for power in one if power is not None) for one in powers if None not in one]
    if not known or rate.low <= 0:
        return None
    watts = sum(known) / len(known)
    return Estimate(value=watts / rate.value, low=watts / rate.high, high=watts / rate.low, n=rate.n)


def suspect(measurement: Measurement, environment: Environment) -> str | None:
    """Return why a measurement should not be trusted and is worth doing again, or None.

    A busy host, a hypervisor that takes the CPU away, clocks that were held back, a client that was too slow: all of
    them worse than what only earns a warning, for those that are a matter of degree.
    """
    busy, stolen = environment.host_cpu_share or 0.0, environment.cpu_steal_share or 0.0
    if busy > SUSPECT_HOST_SHARE:
        return f"other programs used {busy:.0%} of the CPUs during the run"
    if stolen > SUSPECT_STEAL:
        return f"the hypervisor took {stolen:.0%} of the CPU time away during the run"
    found = {warning.kind: warning.detail for warning in measurement.warnings}
    return found.get(Warn.THROTTLED) or found.get(Warn.CLIENT_LIMITED)


def shares_prefixes(workload: Workload) -> bool:
    """Whether hits in the prefix cache are part of this workload."""
    shared = any(one.shared_prefix > 0 for one in workload.mix)
    return shared or bool(workload.prompts_file) or isinstance(workload.arrivals, (Sessions, Trace))


def _count_mismatch(run: LoadRun, made: float) -> str:
    """Compare token counts. Answers that broke off were made further than they came, so they only raise the bound."""
    whole = sum(record.output_tokens for record in run.records if record.ok)
    seen = sum(record.output_tokens for record in run.records)
    open_ended = sum(record.asked_output_tokens - record.output_tokens for record in run.records if not record.ok)
    slack = COUNT_TOLERANCE * max(whole, 1)
    if whole - slack <= made <= seen + max(0, open_ended) + slack:
        return ""
    return f"the client counted {seen} output tokens, the server's own counter says {made:.0f}"


def _gained(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _host(environment: Environment) -> Iterator[MeasureWarning]:
    busy, stolen = environment.host_cpu_share, environment.cpu_steal_share
    if busy is not None and busy > HOST_SHARE_LIMIT:
        yield MeasureWarning(kind=Warn.HOST_BUSY, detail=f"other programs used {busy:.0%} of the CPUs")
    if stolen is not None and stolen > STEAL_LIMIT:
        yield MeasureWarning(kind=Warn.HOST_BUSY, detail=f"the hypervisor took {stolen:.0%} of the CPU time away")


def _gpus(readings: Sequence[Reading]) -> Iterator[MeasureWarning]:
    gpus = [gpu for reading in readings for gpu in reading.gpus]
    counts = Counter(name for gpu in gpus for name in gpu.held_back)
    held = [
        f"{name} in {count / len(gpus):.0%}"
        for name, count in sorted(counts.items())
        if count > HELD_BACK_LIMIT * len(gpus)
    ]
    if held:
        detail = f"clocks were held back ({', '.join(held)} of the readings)"
        yield MeasureWarning(kind=Warn.THROTTLED, detail=detail)
