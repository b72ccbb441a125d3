"""Calibrates the step-time model with what a study measured: term by term, from the published coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.app.traffic import jobs_of
from tuner.capacity.fit import Fit, Point
from tuner.capacity.latency import Coefficients, coefficients, rates_of, shape_of
from tuner.capacity.refusal import Refused
from tuner.domain.model import ModelSpec
from tuner.domain.plan import Arm, Plan
from tuner.domain.workload import ClosedLoop
from tuner.engines import ENGINES
from tuner.errors import UsageError
from tuner.facts.gpus import GpuFacts, facts_of

TRUST = 0.03
"""What leaving the published coefficients costs, against the errors of the arms: little, but terms that the arms say
nothing about stay."""
_DEFAULT_SEQUENCES = 256
_DEFAULT_BUDGET = 8192
_FEWEST_FOR_ERROR = 3
_LEAST_SPREAD = 0.05


@dataclass(frozen=True)
class Calibration:
    """Coefficients of one model, GPU type and engine, and what speaks for them."""

    gpu: str
    model: str
    found: Coefficients
    arms: int
    before: float
    """Mean error of TPOT over the arms with the published coefficients, in percent."""
    after: float
    """The same with these, each arm predicted from the others where there are at least three."""
    left_out: bool
    moved: dict[str, tuple[float, float]]
    """Coefficients that changed by more than a tenth: before, after."""

    @property
    def text(self) -> str:
        """One line that says what was done and how well it does."""
        way = "each predicted from the others" if self.left_out else "on the arms themselves, too few to leave one out"
        what = f"{self.arms} measured configurations of {self.model} on {self.gpu}"
        errors = f"{self.before:.1f} % before, {self.after:.1f} % after ({way})"
        return f"calibrated with {what}: mean error of TPOT {errors}"

    @property
    def spread(self) -> float:
        """Half width of the range to be said, as a share: twice the error, never below what servers differ by."""
        return max(_LEAST_SPREAD, 2 * self.after / 100) if self.left_out else max(0.2, 2 * self.after / 100)


def calibrate(plan: Plan) -> Calibration:
    """Fit the coefficients to the arms of a measured plan.

    Raises:
        UsageError: the plan is not measured, not of a known GPU, or holds no arm that says anything.

    """
    if not plan.measured:
        raise UsageError("the study's plan is one of predictions", hint="calibrate with one that `optimize` measured")
    gpus = plan.study.hardware.gpus
    gpu = facts_of(gpus[0].name) if gpus else None
    if gpu is None:
        label = plan.study.hardware.label
        raise UsageError(f"the study was measured on {label}, which the model of GPUs does not cover",
                         hint="calibrate with a study of the GPU type that is planned for")
    points = [point for arm in plan.arms if (point := point_of(arm, plan, gpu)) is not None]
    if not points:
        raise UsageError("the study holds no arm from which step times can be read",
                         hint="it takes a closed loop or a rate, and requests of more than one token")
    return fitted(points, gpu.name, plan.study.model.name)


def fitted(points: list[Point], gpu: str, model: str, start: Coefficients | None = None) -> Calibration:
    """Fit to the points, and say how well it predicts each from the others."""
    before = start or coefficients(points[0].engine)
    fit = Fit([points[0].engine], start=before, trust=TRUST)
    found = fit.coefficients(fit.run(points), points[0].engine)
    enough = len(points) >= _FEWEST_FOR_ERROR
    errors = []
    for index, point in enumerate(points):
        others = points[:index] + points[index + 1 :]
        used = fit.coefficients(fit.run(others), point.engine) if enough else found
        errors.append(_error(point, used))
    old, new = before.model_dump(), found.model_dump()
    moved = {name: (old[name], new[name]) for name in old if abs(np.log(new[name] / old[name])) > np.log(1.1)}
    return Calibration(gpu=gpu, model=model, found=found, arms=len(points), left_out=enough, moved=moved,
                       before=100 * float(np.mean([_error(point, before) for point in points])),
                       after=100 * float(np.mean(errors)))


def _error(point: Point, found: Coefficients) -> float:
    return abs(point.predict(found)[0] / point.tpot_ms - 1)


def point_of(arm: Arm, plan: Plan, gpu: GpuFacts) -> Point | None:
    """Return what an arm says of step times, or None where its load does not tell how many requests ran."""
    workload, model = plan.study.workload, plan.study.model
    runs = [run for run in arm.rounds if run.tpot_ms is not None and run.ttft_ms is not None and run.e2e_ms is not None]
    if not runs:
        return None
    footprint = ENGINES[arm.config.engine].footprint(model, arm.config)
    shape, rates = shape_of(model, footprint, gpu), rates_of(gpu)
    if isinstance(shape, Refused) or isinstance(rates, Refused):
        return None
    tpot = float(np.mean([run.tpot_ms.mean.value for run in runs if run.tpot_ms]))
    ttft = float(np.mean([run.ttft_ms.mean.value for run in runs if run.ttft_ms]))
    e2e = float(np.mean([run.e2e_ms.mean.value for run in runs if run.e2e_ms]))
    rate = float(np.mean([run.requests_per_s.value for run in runs]))
    sequences = footprint.max_sequences or _DEFAULT_SEQUENCES
    running = rate * (e2e - ttft) / 1e3 + 0.5  # those that decode, by Little's law
    if isinstance(workload.arrivals, ClosedLoop):
        running = min(running, float(workload.arrivals.concurrency))
    jobs = jobs_of(workload)
    prompt, output = (float(np.mean([getattr(job, name) for job in jobs])) for name in ("prompt", "output"))
    shared = float(np.mean([sum(tokens for _, tokens in job.shared) for job in jobs]))
    return Point(
        engine=arm.config.engine, model=model.name, gpu=gpu.name, shape=shape, rates=rates,
        in_flight=max(1.0, min(running, float(sequences))), prompt=prompt, output=output, tpot_ms=tpot, ttft_ms=ttft,
        budget=footprint.batched_tokens or _DEFAULT_BUDGET, share=max(0.05, 1 - shared / prompt),
    )


def refuse_other_model(calibration: Calibration, model: ModelSpec) -> None:
    """Refuse to plan for another model than was measured: its terms would not carry over.

    Raises:
        UsageError: it is another model.

    """
    if calibration.model != model.name:
        raise UsageError(f"the study measured {calibration.model}, and the plan is for {model.name}",
                         hint="leave --from-study out, or name the model of the study")
