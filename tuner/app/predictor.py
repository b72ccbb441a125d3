"""Calibration by live trials, for the search: learns from each trial and predicts configurations not yet run.

    predictor = Predictor.after(spec, trials)      # or Predictor(spec), then update(trial) for each
    found = predictor.predict(config)              # None where it cannot say

The model is the simulated scheduler, driven by a step time whose terms are fitted to the trials one by one: from
published coefficients on GPUs, from nothing on CPU hosts. Its error is its own record: every trial is predicted before
it is learnt from. The state is a function of the trials, in their order. Every number is PREDICTED.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tuner.app.predicted import METRICS, Loaded, Predicted, Ranged, loads_of, predicted_of, text_of
from tuner.app.scoring import replicas, shared_workload
from tuner.app.step_models import GpuModel, HostModel, Server, cache_tokens, model_of, unmodelled
from tuner.app.traffic import jobs_of
from tuner.capacity.jobs import Job, Simulated
from tuner.capacity.reading import FULL_SHARE, Reading, read_run
from tuner.capacity.simulate import simulate
from tuner.capacity.solve import least_squares, soft
from tuner.domain.engine import EngineConfig
from tuner.domain.study import StudySpec
from tuner.domain.trial import Measured, Trial
from tuner.domain.workload import ClosedLoop, OpenLoop, Workload
from tuner.errors import UsageError

_TRUST = 0.05
"""What leaving the start costs, against the errors of the trials."""
_REFITS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_FITTED = 24
_MOST_REQUESTS, _GENERATIONS = 400, 5
_ROUNDS, _FIT_JOBS = 16, 60_000
"""Steps of a fit, and simulated requests that it may take in all."""
_REMEMBERED = 20
_FEW_ERRORS = 3
_START_BAND = {"cpu": 0.45, "cuda": 0.30}
"""Half width of the range, as a logarithm, before the predictor has a record of its own."""
_LEAST_BAND = 0.04


class Predictor:
    """Predicts the trials of one study, ever better as it sees more of them."""

    def __init__(self, spec: StudySpec) -> None:
        """Prepare for a study; nothing is simulated before it is asked."""
        self.spec = spec
        self.model: HostModel | GpuModel | None = model_of(spec)
        self.trials: list[Trial] = []
        self.errors: dict[str, list[float]] = {name: [] for name in METRICS}
        """ln(predicted / measured) of trials that were predicted before they were learnt from."""
        self._values: dict[str, float] = {}
        self._known: set[str] = set()
        self._jobs: dict[tuple[str, float, int], list[Job] | None] = {}
        if self.model is not None:
            self._values = {name: start for name, (start, _) in self.model.prior.items()}

    @classmethod
    def after(cls, spec: StudySpec, trials: Sequence[Trial]) -> Predictor:
        """Return the predictor of a study that is under way."""
        made = cls(spec)
        for trial in trials:
            made.update(trial)
        return made

    def update(self, trial: Trial) -> None:
        """Learn from a trial. Those without a measurement say nothing of speed and are passed over."""
        if self.model is None or not isinstance(trial.outcome, Measured) or not self._on(self.spec.workload):
            return
        loads = loads_of(trial.outcome, self.spec.workload, self._share(trial.config))
        if not loads:
            return
        self._remember(trial, loads)
        self.trials.append(trial)
        new = [name for name in unmodelled(self.model, trial.config) if name not in self._known]
        self._known.update(new)
        for name in new:
            self._values |= {f"{part}:{name}": 0.0 for part in self.model.factors}
        if len(self.trials) in _REFITS or new:
            self._fit()

    def predict(self, config: EngineConfig, load: Loaded | None = None) -> Predicted | None:
        """Return what a trial of this configuration would measure, at the study's own load or at another one.

        None where it cannot say: too few trials, an engine, a GPU or a kind of workload that is not modelled, a setting
        whose effect no trial has shown, or a configuration that does not fit.
        """
        found = self._simulated(config, load or self._share(config))
        if found is None:
            return None
        done, reading = found
        return predicted_of(reading, done, self.spec, self.band, len(self.trials))

    def _share(self, config: EngineConfig) -> Loaded:
        """Return the load that one server gets of the study's, where several of this configuration fill the machine."""
        count = replicas(self.spec, config)
        share = shared_workload(self.spec.workload, count)
        match share.arrivals:
            case ClosedLoop(concurrency=clients) if count > 1:
                return Loaded(clients=clients, requests=share.requests)
            case OpenLoop(rate_per_s=rate) if count > 1:
                return Loaded(rate_per_s=rate, requests=share.requests)
            case _:
                return Loaded()

    def band(self, metric: str) -> float:
        """Return the half width, as a logarithm, of the range that held 8 of 10 of the trials predicted so far."""
        kind = "cpu" if isinstance(self.model, HostModel) else "cuda"
        errors = np.abs(self.errors[metric][-_REMEMBERED:])
        if errors.size >= _FEW_ERRORS:
            return max(_LEAST_BAND, float(np.quantile(errors, 0.8)))
        return max(_START_BAND[kind], float(errors.max(initial=0.0)))

    @property
    def text(self) -> str:
        """How well it did so far, in one line."""
        return text_of(self.errors, len(self.trials))

    @property
    def status(self) -> Literal["none", "learning", "ready"]:
        """Whether it can ever say anything of this study, and whether it can now."""
        if self.model is None or not self._on(self.spec.workload):
            return "none"
        return "ready" if len(self.trials) >= self.model.fewest else "learning"

    def terms(self) -> dict[str, float]:
        """Return the parameters as they are now: times for hosts, factors on published parts for GPUs."""
        return {name: math.exp(value) for name, value in sorted(self._values.items())}

    def _remember(self, trial: Trial, loads: Sequence[tuple[Loaded, dict[str, float]]]) -> None:
        for load, seen in loads:
            predicted = self.predict(trial.config, load)
            for name in METRICS:
                value = predicted.values.get(name) if predicted else None
                if value is not None and value.value > 0 and seen.get(name, 0.0) > 0:
                    self.errors[name].append(math.log(value.value / seen[name]))

    def _simulated(self, config: EngineConfig, load: Loaded | None) -> tuple[Simulated, Reading] | None:
        if self.model is None or len(self.trials) < self.model.fewest or config.engine != self.spec.engine.engine:
            return None
        if any(name not in self._known for name in unmodelled(self.model, config)):
            return None
        return self._run(config, self._values, load or Loaded())

    def _run(
        self, config: EngineConfig, values: dict[str, float], load: Loaded
    ) -> tuple[Simulated, Reading] | None:
        server = self._server(config, values)
        workload = load.on(self.spec.workload)
        jobs = self._on(workload)
        if server is None or not jobs:
            return None
        done = simulate(jobs, server.engine, server.step)
        clients, full_s = None, 0.0
        if isinstance(workload.arrivals, ClosedLoop):
            clients = workload.arrivals.concurrency
            full_s = jobs[min(len(jobs), math.ceil(FULL_SHARE * clients)) - 1].at_s or 0.0
        reading = read_run(done, clients, server.jitter, full_s)
        return (done, reading) if reading is not None else None

    def _server(self, config: EngineConfig, values: dict[str, float]) -> Server | None:
        model = self.model
        if model is None:
            return None
        names = unmodelled(model, config)
        sums = {part: sum(values.get(f"{part}:{name}", 0.0) for name in names) for part in model.factors}
        return model.server(config, values | sums, cache_tokens(self.trials))

    def _on(self, workload: Workload) -> list[Job] | None:
        """Return the jobs of a workload, not more than a steady state takes; None where lengths are not known."""
        arrivals = workload.arrivals
        size, most = 0.0, _MOST_REQUESTS
        if isinstance(arrivals, ClosedLoop):
            size = float(arrivals.concurrency)
            most = max(most, _GENERATIONS * arrivals.concurrency)
        elif isinstance(arrivals, OpenLoop):
            size = arrivals.rate_per_s
        key = (arrivals.kind, size, workload.requests)
        if key not in self._jobs:
            cut = workload.model_copy(update={"requests": min(workload.requests, most)})
            try:
                self._jobs[key] = jobs_of(cut, seed=self.spec.seed, warmup=True)
            except UsageError:  # prompts of a file, whose lengths are not known
                self._jobs[key] = None
        return self._jobs[key]

    def _fit(self) -> None:
        """Fit the parameters to the trials so far, from where they are."""
        names = list(self._values)
        start = np.array([self._values[name] for name in names])
        prior = np.array([self._prior(name) for name in names])
        pull = _TRUST / np.log(np.array([self._spread(name) for name in names]))
        seen = [(trial.config, load, row) for trial in self.trials[-_FITTED:]
                if isinstance(trial.outcome, Measured)
                for load, row in loads_of(trial.outcome, self.spec.workload)]

        def residuals(vector: NDArray[np.float64]) -> NDArray[np.float64]:
            values = dict(zip(names, vector.tolist(), strict=True))
            errors: list[float] = []
            for config, load, row in seen:
                found = self._run(config, values, load)
                errors += _errors(found[1], row) if found else []
            return np.concatenate([errors, pull * (vector - prior)])

        once = sum(len(self._on(load.on(self.spec.workload)) or ()) for _, load, _ in seen)
        rounds = max(2, min(_ROUNDS, _FIT_JOBS // max(1, once) - len(names)))
        found = least_squares(residuals, start, rounds)
        self._values = dict(zip(names, found.tolist(), strict=True))

    def _prior(self, name: str) -> float:
        return self.model.prior.get(name, (0.0, 0.0))[0] if self.model else 0.0

    def _spread(self, name: str) -> float:
        if self.model is None:
            return math.e
        return self.model.factors.get(name.partition(":")[0]) or self.model.prior[name][1]


_WEIGHTS = {"output_tokens_per_s": 1.0, "mean_ttft": 0.5, "p95_ttft": 0.4, "mean_itl": 0.5, "p50_itl": 0.3,
            "p95_itl": 0.4}


def _errors(reading: Reading, row: dict[str, float]) -> list[float]:
    """Return the weighted, damped logarithms of predicted / measured."""
    values = {"output_tokens_per_s": reading.output_tokens_per_s}
    values |= {f"{stat}_ttft": reading.ttft_ms.get(stat, 0.0) for stat in ("mean", "p95")}
    values |= {f"{stat}_itl": reading.itl_ms.get(stat, 0.0) for stat in ("mean", "p50", "p95")}
    return [weight * soft(math.log(values[name] / row[name])) if values[name] > 0 else 0.0
            for name, weight in _WEIGHTS.items() if row.get(name, 0.0) > 0]


__all__ = ["Loaded", "Predicted", "Predictor", "Ranged"]
