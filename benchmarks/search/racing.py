"""How much of a run passes before it is cut off: counted on simulated streams, by the code that ends real runs.

A stream is a closed loop of 32 clients against a server of constant rate whose answers vary by 30 %. Its full length is
what makes the interval of the throughput as narrow as the world says; `OutOfReach` and `Hopeless` look at it every half
second.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

TABLE = Path(__file__).parent / "racing.json"


def share_until_dropped(ahead: float, noise: float, rng: np.random.Generator) -> float:
    """Return the share of the load until a run that is `ahead` times as good as the target is dropped; 1 if never."""
    table = _table()
    scale = 0.02 / max(noise, 1e-6)
    place = float(np.clip(1 + (ahead - 1) * scale, min(table["ahead"]), max(table["ahead"])))
    row = int(np.argmin(np.abs(np.array(table["ahead"]) - place)))
    return float(rng.choice(table["dropped_at"][row]))


def share_until_lost(excess: float, rng: np.random.Generator) -> float:
    """Return the share of the load until a run that misses a p95 limit by `excess` is stopped; 1 if never."""
    table = _table()
    row = int(np.argmin(np.abs(np.array(table["excess"]) - excess)))
    return float(rng.choice(table["lost_at"][row]))


@cache
def _table() -> dict[str, list]:  # type: ignore[type-arg]
    return dict(json.loads(TABLE.read_text(encoding="utf-8")))
