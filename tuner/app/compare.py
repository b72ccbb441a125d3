"""`compare`: two results of `bench`, level by level."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import ValidationError

from tuner.domain.bench import BenchResult, Level
from tuner.domain.json_text import parse_json
from tuner.domain.record import Record, problems
from tuner.domain.trial import Estimate
from tuner.errors import SpaceError, UsageError


class Ratio(Record):
    """B/A of one metric at one level. The interval holds 1 when the two cannot be told apart."""

    level: str
    metric: str
    a: Estimate
    b: Estimate
    ratio: Estimate
    doubts: tuple[str, ...] = ()
    """Warnings of either run, each of which can make a difference where there is none."""

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 1 out."""
        return not self.ratio.low <= 1 <= self.ratio.high


def load_result(path: Path) -> BenchResult:
    """Read bench.json.

    Raises:
        UsageError: there is none.
        SpaceError: it is not one.

    """
    file = path / "bench.json" if path.is_dir() else path
    try:
        return BenchResult.model_validate(parse_json(file.read_bytes()))
    except FileNotFoundError:
        raise UsageError(f"no result at {file}", hint="llmtune bench --out DIR writes one") from None
    except ValidationError as error:
        raise SpaceError(f"{file} is not a result of bench: {problems(error, 'the file')}",
                         hint="name a bench.json, or the directory that holds it") from None
    except OSError as error:
        raise SpaceError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise SpaceError(f"{file} is not JSON: {error}") from None


def compare(a: BenchResult, b: BenchResult) -> tuple[Ratio, ...]:
    """Compare the levels that both have and that sent the same lists of lengths.

    The two runs were not interleaved, so what changed on the machine between them is part of the ratio; the interval
    covers the spread within the runs only.

    Raises:
        UsageError: no level in common, or another workload or seed.

    """
    if a.seed != b.seed:
        raise UsageError(f"the seeds differ ({a.seed} and {b.seed}), so other requests were sent")
    other = {level.label: level for level in b.levels}
    pairs = [(level, other[level.label]) for level in a.levels if level.label in other]
    if not pairs:
        raise UsageError("the two results have no load level in common",
                         hint=f"{', '.join(x.label for x in a.levels)} against {', '.join(other)}")
    for one, two in pairs:
        if one.workload.mix != two.workload.mix:
            raise UsageError(f"level {one.label}: the workloads differ", hint="compare runs of the same workload")
    return tuple(ratio for one, two in pairs for ratio in _ratios(one, two))


def _ratios(one: Level, two: Level) -> list[Ratio]:
    warnings = (*one.measurement.warnings, *two.measurement.warnings)
    doubts = tuple(sorted({str(warning.kind) for warning in warnings}))
    found = []
    for name, a, b in zip(_metrics(one), _metrics(two).values(), _metrics(one).values(), strict=True):
        if a is not None and b is not None and a.value > 0 and b.value > 0:
            found.append(Ratio(level=one.label, metric=name, a=b, b=a, ratio=_ratio(a, b), doubts=doubts))
    return found


def _metrics(level: Level) -> dict[str, Estimate | None]:
    measured = level.measurement
    return {
        "output_tokens_per_s": measured.output_tokens_per_s,
        "requests_per_s": measured.requests_per_s,
        "ttft_ms p50": measured.ttft_ms.p50 if measured.ttft_ms else None,
        "ttft_ms p95": measured.ttft_ms.p95 if measured.ttft_ms else None,
        "itl_ms p50": measured.itl_ms.p50 if measured.itl_ms else None,
        "itl_ms p95": measured.itl_ms.p95 if measured.itl_ms else None,
        "e2e_ms p95": measured.e2e_ms.p95 if measured.e2e_ms else None,
    }


def _ratio(top: Estimate, bottom: Estimate) -> Estimate:
    """Ratio of two independent estimates: the relative half widths add in squares (delta method on the logarithm)."""
    value = top.value / bottom.value
    low = math.hypot(_relative(top.value, top.low), _relative(bottom.high, bottom.value))
    high = math.hypot(_relative(top.high, top.value), _relative(bottom.value, bottom.low))
    return Estimate(value=value, low=value * math.exp(-low), high=value * math.exp(high), n=min(top.n, bottom.n))


def _relative(above: float, below: float) -> float:
    return math.log(above / below) if above > 0 and below > 0 else 10.0
