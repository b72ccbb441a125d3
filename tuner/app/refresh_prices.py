"""Today's on-demand prices through gpuhunt (the extra `prices`): the only part of `plan` that goes to the network."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import yaml

from tuner.errors import OutputError, ServerError, UsageError
from tuner.facts.gpus import GpuFacts, gpu_table

_GIB = 1 << 30
_NEAR = 0.12


class _Item(Protocol):
    """What is read of a gpuhunt CatalogItem: the price is of the whole instance."""

    provider: str
    instance_name: str
    location: str
    price: float
    gpu_count: int
    gpu_name: str | None
    gpu_memory: float | None


def refresh(path: Path) -> int:
    """Write the cheapest offer of each provider and GPU to a price file; return how many there are.

    Raises:
        UsageError: the extra is not installed.
        ServerError: the catalog cannot be downloaded.
        OutputError: the file cannot be written.

    """
    try:
        hunt: Any = importlib.import_module("gpuhunt")
    except ImportError:
        raise UsageError("prices are refreshed through gpuhunt, which is not installed",
                         hint='pip install "llmtune[prices]", or write the file yourself') from None
    try:
        items = hunt.query(min_gpu_count=1, spot=False)
    except (OSError, ValueError) as problem:
        raise ServerError(f"the catalog of prices could not be downloaded: {problem}",
                          hint="check the network; the bundled examples work without it") from None
    rows = rows_of(items, datetime.now(UTC).date().isoformat())
    head = "# Written by `llmtune plan --refresh-prices`, through gpuhunt. USD for one GPU-hour, on demand.\n"
    try:
        path.write_text(head + yaml.safe_dump({"gpu_hours": rows}, sort_keys=False, width=200), encoding="utf-8")
    except OSError as problem:
        raise OutputError(f"{path} cannot be written: {problem.strerror}", hint="name another file") from None
    return len(rows)


def rows_of(items: Iterable[_Item], day: str) -> list[dict[str, Any]]:
    """Return rows of a price file: of each provider and GPU the cheapest offer, by GPU and price."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for item in items:
        gpu = _gpu(item)
        if gpu is None or item.price <= 0:
            continue
        usd = round(item.price / item.gpu_count, 4)
        key = (gpu.name, item.provider)
        if key not in best or usd < best[key]["usd"]:
            where = f"{item.provider} {item.instance_name} {item.location}".strip()
            best[key] = {"gpu": gpu.name, "usd": usd, "kind": "on-demand", "provider": where, "as_of": day,
                         "source": "gpuhunt catalog"}
    return sorted(best.values(), key=lambda row: (row["gpu"], row["usd"]))


def _gpu(item: _Item) -> GpuFacts | None:
    """Return the GPU of an offer. gpuhunt does not tell SXM from PCIe: the name says SXM unless the instance does."""
    if not item.gpu_name or not item.gpu_memory:
        return None
    name, memory = item.gpu_name.lower(), item.gpu_memory
    fitting = [gpu for gpu in gpu_table().values()
               if name in {alias.replace("-", "") for alias in (*gpu.aliases, gpu.name.lower())}
               or gpu.name.lower().split("-")[0].replace(" ", "") == name]
    near = [gpu for gpu in fitting if abs(gpu.memory_bytes / _GIB / memory - 1) <= _NEAR]
    asked = "pcie" if "pcie" in item.instance_name.lower() else "sxm"
    return next((gpu for gpu in near if asked in gpu.name.lower()), near[0] if near else None)
