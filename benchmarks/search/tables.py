"""The comparison as text: minutes to the goal with their ratio to random search, and regret against minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

OURS, YARDSTICK = "llmtune", "random"
LONGER = 40
"""How many horizons random search may take to reach the goal."""
_RESAMPLES = 2000


def table(results: dict[str, Any]) -> str:
    """Return the tables of all worlds, and whether the claims hold."""
    parts = [_world(name, world) for name, world in results.items()]
    claims = [_claims(name, world) for name, world in results.items() if OURS in world["contenders"]]
    head = (
        "Search: GPU-minutes (starts and loads) until the pick's true score is within 5 % of the true best.\n"
        "Medians over seeds with 95 % bootstrap intervals; >x: half of the seeds do not reach it within x minutes.\n"
        "A ratio is marked > or < if the contender or random did not get there (its end is taken), ? if neither did.\n"
        "Regret: by which share the pick's true score falls short, median (mean) after 10, 20, 40, 70 and 100 % of\n"
        "the horizon, which is what 32 whole trials take. Synthetic engines and measured ones are named as such.\n"
    )
    asked = "\nClaims: at most half of random's minutes (ratio and interval); never worse than random beyond noise\n"
    return "\n".join([head, *parts]) + asked + "\n".join(claims) + "\n"


def _world(name: str, world: dict[str, Any]) -> str:
    horizon = world["horizon_min"]
    lines = [f"{name}: {world['about']}; horizon {horizon:.0f} minutes"]
    lines.append(f"  {'':24}{'minutes to 95 %':>24}{'of random':>18}   regret at 10/20/40/70/100 % of the horizon")
    chance = world["contenders"].get(YARDSTICK)
    for contender, found in world["contenders"].items():
        minutes = _minutes(found)
        limit = horizon if contender != YARDSTICK else max([horizon, *(m for m in minutes if math.isfinite(m))])
        low, high = _interval(minutes)
        middle = f"{_show(float(np.median(minutes)), limit)} ({_show(low, limit)}..{_show(high, limit)})"
        share = _ratio(found, chance, horizon).text if chance and contender != YARDSTICK else ""
        regret = np.array(found["regret"])
        shown = "  ".join(f"{np.median(column):5.1%} ({np.mean(column):5.1%})" for column in regret.T)
        lines.append(f"  {contender:24}{middle:>24}{share:>18}   {shown}")
    return "\n".join(lines) + "\n"


def _claims(name: str, world: dict[str, Any]) -> str:
    ours, chance = world["contenders"][OURS], world["contenders"].get(YARDSTICK)
    if chance is None:
        return f"  {name}: random was not run"
    ratio = _ratio(ours, chance, world["horizon_min"])
    half = "HOLDS" if ratio.middle <= 0.5 and ratio.sign in {"", "<"} else "does NOT hold"
    worse = _worse(np.array(ours["regret"]), np.array(chance["regret"]))
    never = "HOLDS" if not worse else f"does NOT hold at {', '.join(worse)}"
    return f"  {name:20} half of random: {half:14} {ratio.text:22} never worse: {never}"


def _worse(ours: np.ndarray, chance: np.ndarray) -> list[str]:
    """Return the checkpoints at which the mean regret is surely larger (95 % bootstrap interval above zero)."""
    rng = np.random.default_rng(0)
    count = min(len(ours), len(chance))
    places = rng.integers(count, size=(_RESAMPLES, count))
    apart = (ours[:count] - chance[:count])[places].mean(axis=1)
    low = np.quantile(apart, 0.025, axis=0)
    return [f"{share}" for share, end in zip(("10 %", "20 %", "40 %", "70 %", "100 %"), low, strict=True) if end > 1e-4]


def _minutes(found: dict[str, Any]) -> list[float]:
    return [math.inf if minute is None else minute for minute in found["minutes_to_goal"]]


def _interval(minutes: Sequence[float]) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    drawn = np.median(np.array(minutes)[rng.integers(len(minutes), size=(_RESAMPLES, len(minutes)))], axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975), method="nearest")
    return float(low), float(high)


@dataclass(frozen=True)
class Ratio:
    """Ratio of two medians with its bootstrap interval; who did not arrive counts as arriving at the end of the run.

    `sign` is `>` when that was the numerator, `<` when it was the denominator, `?` when it was both.
    """

    middle: float
    low: float
    high: float
    sign: str

    @property
    def text(self) -> str:
        """The ratio as it is shown."""
        return f"{self.sign}{self.middle:.2f} ({self.low:.2f}..{self.high:.2f})" if self.sign != "?" else "?"


def _ratio(ours: dict[str, Any], chance: dict[str, Any], horizon: float) -> Ratio:
    """Compare minutes to the goal; seeds of both are drawn on their own."""
    rng = np.random.default_rng(0)
    capped, sides = [], []
    for found, limit in ((ours, horizon), (chance, horizon * LONGER)):
        minutes = np.array(_minutes(found))
        sides.append(not math.isfinite(float(np.median(minutes))))
        capped.append(np.where(np.isfinite(minutes), minutes, limit))
    drawn = [np.median(one[rng.integers(len(one), size=(_RESAMPLES, len(one)))], axis=1) for one in capped]
    low, high = np.quantile(drawn[0] / drawn[1], (0.025, 0.975))
    sign = "?" if all(sides) else ">" if sides[0] else "<" if sides[1] else ""
    return Ratio(float(np.median(capped[0]) / np.median(capped[1])), float(low), float(high), sign)


def _show(minutes: float, limit: float) -> str:
    return f"{minutes:.0f}" if math.isfinite(minutes) else f">{limit:.0f}"
