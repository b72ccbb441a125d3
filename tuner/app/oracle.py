"""The model of this machine at work in a search: what to try first, what to leave out, what a trial should give.

All of it is PREDICTED, by `tuner.app.predictor`, which learns from each trial and keeps a record of its own errors.
Nothing is dropped on its word before that record exists, and one candidate in five is launched against it, so that the
record stays honest.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence

from tuner.app.load import Incumbent
from tuner.app.predicted import Predicted, Ranged
from tuner.app.predictor import Predictor
from tuner.app.scoring import replicas, scored
from tuner.domain.engine import EngineConfig
from tuner.domain.study import StudySpec
from tuner.domain.trial import Estimate, Infeasible, Trial
from tuner.measure.objective import direction
from tuner.search.spaces import Choice, OpenSpace

RULE = "predicted"
_RECORD = 4
_ANYWAY = 5
_SAMPLE = 120
_PATIENCE_S = 3.0
_ASKED = 1000


class Oracle:
    """Predicts configurations of one study for the whole machine."""

    def __init__(self, spec: StudySpec, space: OpenSpace, trials: Sequence[Trial]) -> None:
        self._spec = spec
        self._space = space
        self._predictor = Predictor.after(spec, trials)
        self._cost_s = 0.0

    @property
    def text(self) -> str | None:
        """How good the predictions were, in one line; None while nothing was predicted."""
        return self._predictor.text if any(self._predictor.errors.values()) else None

    def learn(self, trial: Trial) -> None:
        """Take in a trial."""
        self._predictor.update(trial)

    def expect(self, config: EngineConfig) -> Estimate | None:
        """Return what the objective should come to on this machine, or None where the model cannot say. PREDICTED."""
        found = self._predict(config)
        value = None if found is None else self._machine(config, found)
        if found is None or value is None:
            return None
        return Estimate(value=value.value, low=value.low, high=value.high, n=found.trials)

    def seeds(self, most: int, tried: set[str]) -> list[EngineConfig]:
        """Return the best few of a sample of the space that should keep the SLO, best first."""
        if self._predictor.status != "ready":
            return []
        rng = random.Random(self._spec.seed)  # noqa: S311  (a seeded choice, not a secret)
        points = [{d.flag: rng.choice(d.values) for d in self._space.dimensions} for _ in range(_SAMPLE)]
        configs = {config.key: config for config in map(self._space.config, points) if config.key not in tried}
        ranked: list[tuple[float, str]] = []
        until = time.monotonic() + _PATIENCE_S
        for key, config in configs.items():
            found = self._predict(config)
            value = self._machine(config, found) if found is not None and found.meets_slo else None
            if value is not None:
                ranked.append((value.value, key))
            if time.monotonic() > until:
                break
        ranked.sort(reverse=direction(self._spec.objective) == "maximize")
        return [configs[key] for _, key in ranked[:most]]

    def prior(self, point: Mapping[str, Choice]) -> float | None:
        """Return the logarithm of the predicted objective, for the sampler."""
        found = self.expect(self._space.config(point))
        return math.log(found.value) if found is not None and found.value > 0 else None

    @property
    def is_quick(self) -> bool:
        """Whether a sampler may ask for as many points as it wants to rank."""
        points = min(_ASKED, self._space.size)
        return self._predictor.status == "ready" and self._cost_s * points < _PATIENCE_S

    def hopeless(self, config: EngineConfig, incumbent: Incumbent | None) -> Infeasible | None:
        """Return why this configuration is not worth a launch, or None."""
        errors = self._predictor.errors.get("output_tokens_per_s", ())
        if incumbent is None or len(errors) < _RECORD or int(config.key[:8], 16) % _ANYWAY == 0:
            return None
        found = self._predict(config)
        if found is None:
            return None
        if found.slo == "misses":
            worst = next(text for text, one in found.limits.items() if one.low > _maximum(self._spec, text))
            one = found.limits[worst]
            return Infeasible(rule=RULE, reason=f"PREDICTED to miss {worst}: {one.low:.4g}..{one.high:.4g} ms")
        value = self._machine(config, found)
        best = scored(self._spec, incumbent.config, incumbent.measurement)
        up = direction(self._spec.objective) == "maximize"
        if value is not None and (value.high < best.low if up else value.low > best.high):
            return Infeasible(
                rule=RULE,
                reason=f"PREDICTED {self._spec.objective} {value.low:.4g}..{value.high:.4g}, the incumbent's measured "
                f"{best.format()} is better",
            )
        return None

    def _predict(self, config: EngineConfig) -> Predicted | None:
        started = time.monotonic()
        found = self._predictor.predict(config)
        self._cost_s = max(0.8 * self._cost_s, time.monotonic() - started)
        return found

    def _machine(self, config: EngineConfig, found: Predicted) -> Ranged | None:
        """Return the objective for all replicas that the machine holds."""
        value = found.objective(self._spec.objective)
        if value is None:
            return None
        count = replicas(self._spec, config)
        if self._spec.objective == "cost_per_mtok":
            return _times(value, 1 / count)
        return _times(value, count) if direction(self._spec.objective) == "maximize" else value


def _times(value: Ranged, factor: float) -> Ranged:
    return value.model_copy(update={name: getattr(value, name) * factor for name in ("value", "low", "high")})


def _maximum(spec: StudySpec, text: str) -> float:
    return next(limit.maximum for limit in spec.slo.limits if limit.text == text)
