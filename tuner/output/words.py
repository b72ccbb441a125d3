"""A study's question in words, for headers, READMEs and reports. Nothing here is a path of the machine that tuned."""

from __future__ import annotations

from pathlib import PurePath
from typing import assert_never

from tuner.domain.hardware import Hardware
from tuner.domain.plan import Plan
from tuner.domain.study import Objective, StudySpec
from tuner.domain.workload import (
    ClosedLoop,
    Empirical,
    Fixed,
    Lengths,
    Lognormal,
    Normal,
    OpenLoop,
    RateProfile,
    Sessions,
    Trace,
    Uniform,
    Workload,
)

OBJECTIVES: dict[Objective, tuple[str, str]] = {
    "output_tokens_per_s": ("output throughput", "tokens/s"),
    "requests_per_s": ("request throughput", "requests/s"),
    "goodput_per_s": ("goodput within the SLO", "requests/s"),
    "max_concurrency": ("most clients within the SLO", "clients"),
    "max_rate": ("highest rate within the SLO", "requests/s"),
    "p95_ttft": ("p95 TTFT", "ms"),
    "p95_itl": ("p95 ITL", "ms"),
    "p95_e2e": ("p95 end-to-end latency", "ms"),
    "mean_e2e": ("mean end-to-end latency", "ms"),
    "cost_per_mtok": ("cost of output tokens", "USD/million"),
    "joules_per_token": ("energy per output token", "J"),
}
"""Objective to name and unit."""

VERDICTS: dict[str, str] = {
    "winner": "A clear winner",
    "no_clear_winner": "No clear winner",
    "keep_baseline": "Keep what you have",
    "nothing_meets_slo": "Nothing meets the SLO",
    "not_verified": "Not verified",
}
"""Verdict to words."""


def doubts(plan: Plan) -> tuple[str, ...]:
    """Return what whoever deploys the plan must read before anything else, one line each; nothing for a sound plan."""
    found = []
    if not plan.measured:
        found.append("PREDICTED: no server was started; these settings come from a model of the hardware.")
    elif plan.verdict.kind == "not_verified":
        found.append("NOT VERIFIED: the best of a search, measured once. No comparison on fresh servers confirmed it.")
    if plan.verdict.kind == "nothing_meets_slo":
        found.append(f"MISSES THE SLO: nothing that was tried keeps {slo_words(plan.study)}.")
    return tuple(found)


def workload_words(workload: Workload) -> str:
    """Describe the traffic in one line."""
    parts = [
        f"{_lengths(workload.input_tokens)} input and {_lengths(workload.output_tokens)} output tokens",
        _arrivals(workload),
        f"{workload.requests} requests a run after {workload.warmup_requests} for warm-up",
    ]
    if workload.shared_prefix:
        groups = "the same text" if workload.prefix_groups == 1 else f"one of {workload.prefix_groups} texts"
        parts.append(f"{workload.shared_prefix:.0%} of each prompt is {groups}")
    return f"{workload.name}: {', '.join(parts)}"


def model_words(study: StudySpec) -> str:
    """Name the weights: hub id and revision, or a directory's name and fingerprint."""
    model = study.model
    if model.is_local:
        mark = f"fingerprint {model.fingerprint}" if model.fingerprint else "no fingerprint"
        return f"{directory_name(model.location)} (local directory, {mark})"
    return f"{model.location}@{model.revision or '(revision not pinned)'}"


def engine_words(plan: Plan) -> str:
    """Name the engine, its exact version, and the image if there is one."""
    image = f", image {plan.launch.image}" if plan.launch.image else ", no image"
    return f"{plan.config.engine} {plan.config.version}{image}"


def hardware_words(hardware: Hardware) -> str:
    """Name devices, driver and host memory."""
    parts = [hardware.label]
    if hardware.driver:
        parts.append(f"driver {hardware.driver}")
    if hardware.memory_bytes:
        parts.append(f"{hardware.memory_bytes / 2**30:.0f} GiB host memory")
    return ", ".join(parts)


def slo_words(study: StudySpec) -> str:
    """Return the SLO's canonical text, or `none`."""
    return study.slo.text or "none"


def directory_name(location: str) -> str:
    """Return the last part of a directory's path."""
    return PurePath(location).name or location


def public(plan: Plan, text: str) -> str:
    """Return `text` with the tuning machine's own paths cut down to their last part."""
    paths = {plan.launch.program[0] if plan.launch.program else "", *plan.study.engine.program}
    if plan.launch.model_is_local:
        paths |= {plan.launch.model, plan.study.model.location}
    for path in sorted((path for path in paths if PurePath(path).is_absolute()), key=len, reverse=True):
        text = text.replace(path, directory_name(path))
    return text


def _lengths(lengths: Lengths) -> str:
    match lengths:
        case Fixed():
            return f"{lengths.tokens}"
        case Uniform():
            return f"{lengths.low} to {lengths.high}"
        case Lognormal():
            return f"about {lengths.median:g} (lognormal, sigma {lengths.sigma:g}, {lengths.low} to {lengths.high})"
        case Normal():
            return f"about {lengths.mean:g} (normal, sd {lengths.sd:g}, {lengths.low} to {lengths.high})"
        case Empirical():
            return f"{min(lengths.values)} to {max(lengths.values)} (as seen, {len(lengths.values)} values)"
        case _:
            assert_never(lengths)


def _arrivals(workload: Workload) -> str:
    arrivals = workload.arrivals
    match arrivals:
        case ClosedLoop():
            return f"{arrivals.concurrency} at once (closed loop)"
        case OpenLoop():
            gaps = {None: "evenly spaced", 1.0: "Poisson"}.get(arrivals.burstiness, f"burstiness {arrivals.burstiness}")
            return f"{arrivals.rate_per_s:g} requests/s ({gaps})"
        case RateProfile():
            rates = [point.rate_per_s for point in arrivals.points]
            return f"{min(rates):g} to {max(rates):g} requests/s over {arrivals.points[-1].at_s:g} s"
        case Trace():
            return f"as recorded in {PurePath(arrivals.path).name}, {arrivals.speed:g} times as fast"
        case Sessions():
            turns = _lengths(arrivals.turns)
            return f"{arrivals.users} users in conversations of {turns} turns, {arrivals.think_s:g} s between them"
        case _:
            assert_never(arrivals)
