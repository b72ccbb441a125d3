"""The comparison as text: minutes to the goal with their ratio to random search, and regret against minutes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

OURS, YARDSTICK = "llmtune", "random"
_RESAMPLES = 2000


def table(results: dict[str, Any]) -> str:
    """Return the tables of all worlds, and whether the claims hold."""
    parts = [_world(name, world) for name, world in results.items()]
    claims = [_claims(name, world) for name, world in results.items() if OURS in world["contenders"]]
    head = (
        "Search: GPU-minutes (starts and loads) until the pick's true score is within 5 % of the true best.\n"
        "Medians over seeds with 95 % bootstrap intervals; >x: half of the seeds do not reach it within x minutes.\n"
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
        ratio = _ratio(minutes, _minutes(chance)) if chance and contender != YARDSTICK else None
        share = "" if ratio is None else f"{_cut(ratio[0])} ({_cut(ratio[1])}..{_cut(ratio[2])})"
        regret = np.array(found["regret"])
        shown = "  ".join(f"{np.median(column):5.1%} ({np.mean(column):5.1%})" for column in regret.T)
        lines.append(f"  {contender:24}{middle:>24}{share:>18}   {shown}")
    return "\n".join(lines) + "\n"


def _claims(name: str, world: dict[str, Any]) -> str:
    ours, chance = world["contenders"][OURS], world["contenders"].get(YARDSTICK)
    if chance is None:
        return f"  {name}: random was not run"
    middle, low, high = _ratio(_minutes(ours), _minutes(chance))
    half = "HOLDS" if middle <= 0.5 else "does NOT hold"
    worse = _worse(np.array(ours["regret"]), np.array(chance["regret"]))
    never = "HOLDS" if not worse else f"does NOT hold at {', '.join(worse)}"
    return f"  {name:20} half of random: {half:14} {_cut(middle)} ({_cut(low)}..{_cut(high)});  never worse: {never}"


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


def _ratio(ours: Sequence[float], chance: Sequence[float]) -> tuple[float, float, float]:
    """Return the ratio of the medians with a bootstrap interval; seeds of both are drawn on their own."""
    rng = np.random.default_rng(0)

    def drawn(minutes: Sequence[float]) -> np.ndarray:
        drawn_minutes = np.array(minutes)[rng.integers(len(minutes), size=(_RESAMPLES, len(minutes)))]
        return np.asarray(np.median(drawn_minutes, axis=1))

    with np.errstate(invalid="ignore"):
        ratios = drawn(ours) / drawn(chance)
        middle = float(np.median(ours)) / float(np.median(chance))
    low, high = np.quantile(np.nan_to_num(ratios, nan=1.0, posinf=1e9), (0.025, 0.975), method="nearest")
    return (1.0 if math.isnan(middle) else middle), float(low), float(high)


def _show(minutes: float, limit: float) -> str:
    return f"{minutes:.0f}" if math.isfinite(minutes) else f">{limit:.0f}"


def _cut(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < 100 else ">100"
