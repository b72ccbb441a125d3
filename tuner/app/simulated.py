"""A measurement without a server: the simulator answers the study's load, and `tuner.measure` reads it like a live run.

The result is a rehearsal. It is PREDICTED, and whoever shows it says SIMULATED.
"""

from __future__ import annotations

import numpy as np

from tuner.app.traffic import jobs_of
from tuner.capacity import kv
from tuner.capacity.activation import batch
from tuner.capacity.jobs import Engine, Job, Simulated
from tuner.capacity.latency import Coefficients, step_time
from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.refusal import Refused
from tuner.capacity.simulate import simulate
from tuner.domain.engine import EngineConfig, Footprint, StartupFacts
from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.study import StudySpec
from tuner.domain.trial import Failed, FailureKind, Infeasible, Measured
from tuner.engines import ENGINES
from tuner.facts.gpus import facts_of
from tuner.measure.requests import measure
from tuner.search.screen import screen

_START_S, _LOAD_BYTES_S = 60.0, 1e9


def simulated_outcome(
    spec: StudySpec, config: EngineConfig, *, seed: int = 0, found: Coefficients | None = None
) -> Measured | Infeasible | Failed:
    """Return what a trial of this configuration would come to, by simulation. SIMULATED, never measured.

    `found` replaces the published coefficients, e.g. by those of a calibration.
    """
    ruled_out = screen(config, spec.model, spec.hardware)
    if ruled_out is not None:
        return ruled_out
    gpu = spec.hardware.gpus[0] if spec.hardware.gpus else None
    facts = facts_of(gpu.name) if gpu else None
    if gpu is None or facts is None:
        return Failed(failure=FailureKind.UNSUPPORTED, phase="simulate",
                      reason=f"SIMULATED: the rates of {spec.hardware.label} are not known")
    footprint = ENGINES[config.engine].footprint(spec.model, config)
    memory = memory_plan(spec.model, footprint, spec.hardware)
    step = step_time(spec.model, footprint, facts, found=found)
    if isinstance(memory, Refused) or isinstance(step, Refused):
        reason = memory.reason if isinstance(memory, Refused) else step.reason if isinstance(step, Refused) else ""
        return Failed(failure=FailureKind.UNSUPPORTED, phase="simulate", reason=f"SIMULATED: {reason}")
    limits = batch(spec.model, footprint, gpu)
    jobs = jobs_of(spec.workload, seed=seed)
    engine = scheduler_of(spec, config, footprint, memory, (limits.sequences, limits.tokens))
    done = simulate(jobs, engine, step)
    if done.end.size == 0:
        return Failed(failure=FailureKind.OUT_OF_MEMORY, phase="simulate",
                      reason="SIMULATED: no request fits the KV cache")
    weights = memory.weights * footprint.devices
    return Measured(
        measurement=measure(as_run(done, spec, jobs), spec.slo),
        startup=StartupFacts(kv_cache_tokens=memory.kv_tokens, weight_bytes=memory.weights,
                             resolved={"source": "SIMULATED"}),
        start_s=_START_S + weights / _LOAD_BYTES_S,
    )


def scheduler_of(
    spec: StudySpec, config: EngineConfig, footprint: Footprint, memory: MemoryPlan, limits: tuple[int, int]
) -> Engine:
    """Return the settings that the scheduler works with; `limits` are the engine's own sequences and token budget."""
    cut = kv.pool(kv.layer_kinds(spec.model, footprint), footprint)
    block = cut.block_tokens if cut else 16
    blocks = memory.blocks
    if cut is not None:
        length = min(spec.workload.longest, 4096)
        blocks = max(1, int(memory.blocks / cut.blocks_for(length, limits[1]) * -(-length // block)))
    return Engine(
        max_sequences=limits[0], token_budget=limits[1], blocks=blocks, block_tokens=block,
        chunked=footprint.chunked_prefill is not False,
        prefix_caching=config.get("enable-prefix-caching") is not False,
    )


def as_run(done: Simulated, spec: StudySpec, jobs: list[Job]) -> LoadRun:
    """Return a simulation in the form that a live run is read from."""
    kept = [job for job in jobs if job.measured]
    records = [_record(done, number, kept[min(number, len(kept) - 1)]) for number in range(done.end.size)]
    return LoadRun(
        arrivals=spec.workload.arrivals, records=tuple(records), started_ns=0,
        ended_ns=int(done.end.max() * 1e9), wall_start=0.0, cpu_s=0.0,
    )


def _record(done: Simulated, number: int, job: Job) -> RequestRecord:
    start, stop = done.spans[number]
    gaps = np.repeat(done.gaps[start:stop], done.repeats[start:stop])
    first, output = float(done.first[number]), int(done.output[number])
    times = first + np.concatenate([[0.0], np.cumsum(gaps)])[:output]
    chunks = (times * 1e9).astype(np.int64)
    arrival = int(done.arrival[number] * 1e9)
    counts = [1] * len(chunks)
    counts[-1] += output - len(chunks)  # more than one token a step, or recomputed ones
    return RequestRecord(
        id=f"r{number}", group="", warmup=False, asked_input_tokens=job.prompt, asked_output_tokens=output,
        scheduled_ns=arrival, start_ns=arrival, sent_ns=arrival, end_ns=int(chunks[-1]), chunk_ns=chunks.tolist(),
        chunk_tokens=counts, input_tokens=job.prompt, output_tokens=output, from_usage=True, count_mismatch=False,
        finish_reason="length", status=200, error=None,
    )
