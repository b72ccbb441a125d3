"""SLO: the limits that an answer must keep, in the words people write them in."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Literal

from pydantic import Field

from tuner.domain.record import Record
from tuner.errors import SloError

Metric = Literal["ttft", "itl", "tpot", "e2e", "error_rate"]

_UNITS_MS = {"ms": 1.0, "s": 1000.0, "": 1.0}
_LIMIT = re.compile(
    r"^(?:(?P<stat>p\d{1,2}(?:\.\d+)?|mean|median)\s+)?(?P<metric>[a-z_0-9]+)(?:\[(?P<group>[a-z0-9_.-]+)\])?\s*(?P<op><=|<|>=|>|==|=)\s*"
    r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|%|)$"
)
_ALIASES = {"e2el": "e2e", "latency": "e2e", "inter_token_latency": "itl", "time_to_first_token": "ttft"}


class Limit(Record):
    """One limit, e.g. p95 TTFT at most 300 ms. `percentile` is None for the mean; times in ms, rates as fractions.

    With `group` it holds for the requests of that class of the traffic only.
    """

    metric: Metric
    percentile: float | None
    maximum: float
    group: str = Field(default="", exclude_if=lambda group: not group)

    @property
    def text(self) -> str:
        """The canonical form, which parses back to the same limit."""
        of = f"[{self.group}]" if self.group else ""
        if self.metric == "error_rate":
            return f"error_rate{of}<={_plain(Decimal(repr(self.maximum)) * 100)}%"
        stat = "mean" if self.percentile is None else f"p{self.percentile:g}"
        return f"{stat} {self.metric}{of}<={_plain(Decimal(repr(self.maximum)))}ms"


class Slo(Record):
    """All limits must hold. An empty SLO holds always."""

    limits: tuple[Limit, ...] = ()

    @property
    def text(self) -> str:
        """The canonical form, which `parse_slo` reads back."""
        return ", ".join(limit.text for limit in self.limits)


def _plain(number: Decimal) -> str:
    """Return every digit and no exponent, which `parse_slo` could not read."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def parse_slo(text: str) -> Slo:
    """Read e.g. `p95 ttft<=300ms, p95 itl<=40ms, error_rate<=0.1%`; `p95 ttft[chat]<=300ms` is for one class.

    A latency without a percentile or a unit is refused, because mean and tail are not the same promise.

    Raises:
        SloError: with the part that cannot be read and the form that can.

    """
    limits = tuple(_parse_limit(part) for part in text.split(",") if part.strip())
    for index, limit in enumerate(limits):
        for other in limits[:index]:
            if (limit.metric, limit.percentile, limit.group) == (other.metric, other.percentile, other.group):
                raise SloError(f"{other.text} and {limit.text} limit the same", hint="say each limit once")
    return Slo(limits=limits)


def _parse_limit(part: str) -> Limit:
    match = _LIMIT.match(part.strip().lower())
    hint = 'write limits like "p95 ttft<=300ms, p99 itl<=40ms, error_rate<=0.1%"'
    if match is None:
        raise SloError(f"cannot read the limit {part.strip()!r}", hint=hint)
    metric = _ALIASES.get(match["metric"], match["metric"])
    if metric not in ("ttft", "itl", "tpot", "e2e", "error_rate"):
        raise SloError(
            f"unknown metric {match['metric']!r} in the limit {part.strip()!r}",
            hint="metrics are ttft, itl, tpot, e2e and error_rate",
        )
    if match["op"] not in ("<=", "<"):
        raise SloError(f"the limit {part.strip()!r} is not an upper bound", hint=hint)
    number, unit, stat = float(match["number"]), match["unit"], match["stat"]
    if metric == "error_rate":
        if stat is not None or unit not in ("%", ""):
            raise SloError(f"error_rate is a share: {part.strip()!r}", hint="write error_rate<=0.1%")
        fraction = float(Decimal(match["number"]) / 100) if unit == "%" else number
        if fraction > 1:
            raise SloError(f"error_rate above 100% in {part.strip()!r}", hint="write error_rate<=0.1%")
        return Limit(metric="error_rate", percentile=None, maximum=fraction, group=match["group"] or "")
    if unit == "%":
        raise SloError(f"a latency has no percent: {part.strip()!r}", hint=hint)
    if stat is None:
        raise SloError(f"no percentile in {part.strip()!r}", hint=f'say which: "p95 {part.strip()}" or "mean ..."')
    if number <= 0:
        raise SloError(f"the limit in {part.strip()!r} must be above zero", hint=hint)
    if not unit:
        raise SloError(f"no unit in {part.strip()!r}", hint=f'say which: "{part.strip()}ms"')
    percentile = None if stat == "mean" else 50.0 if stat == "median" else float(stat[1:])
    if percentile is not None and not 0 < percentile < 100:
        raise SloError(f"percentile out of range in {part.strip()!r}", hint=hint)
    return Limit(
        metric=metric, percentile=percentile, maximum=number * _UNITS_MS[unit], group=match["group"] or ""
    )
