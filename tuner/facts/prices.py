"""Example prices of GPUs by the hour: always with date and source, never a guess, replaced by what the user states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError, field_validator

from tuner.domain.record import Record
from tuner.errors import UsageError
from tuner.facts.gpus import facts_of, parse_hardware
from tuner.facts.located import load_document
from tuner.facts.read import data


class Price(Record):
    """USD for one GPU-hour, and where that is from."""

    gpu: str
    usd: float
    kind: str = "stated"
    provider: str = ""
    as_of: str = ""
    source: str = ""

    @field_validator("as_of", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> str:
        return str(value)

    @property
    def text(self) -> str:
        """Amount, provider, date and kind in one line."""
        if self.kind == "stated":
            return f"${self.usd:g} a GPU-hour, as you said"
        return f"${self.usd:g} a GPU-hour ({self.provider}, {self.kind}, example of {self.as_of}; {self.source})"


def price_of(gpu: str, stated: Mapping[str, float], rows: Sequence[Price] = ()) -> Price | None:
    """Return the price of a GPU (its name in gpus.yaml): the stated one, else the cheapest on-demand row, else None."""
    if gpu in stated:
        return Price(gpu=gpu, usd=stated[gpu])
    found = [row for row in (rows or known_prices()) if row.gpu == gpu and row.kind != "spot"]
    return min(found, key=lambda row: row.usd, default=None)


def known_prices() -> tuple[Price, ...]:
    """Return the bundled example prices."""
    return tuple(Price(**row) for row in data("prices.yaml")["gpu_hours"])


def load_prices(path: Path) -> tuple[Price, ...]:
    """Read a file of the same form as facts/data/prices.yaml.

    Raises:
        SpaceError: it cannot be read or a row is wrong.

    """
    document = load_document(path)
    rows = document.data.get("gpu_hours") if isinstance(document.data, dict) else None
    if not isinstance(rows, list):
        raise document.error((), "a price file has gpu_hours: a list of {gpu, usd, provider, as_of, source}")
    found = []
    for index, row in enumerate(rows):
        try:
            price = Price(**{"kind": "on-demand", **row})
        except (ValidationError, TypeError):
            raise document.error(("gpu_hours", index), "a price has gpu, usd, provider, as_of and source") from None
        found.append(price.model_copy(update={"gpu": gpu_name(price.gpu)}))
    return tuple(found)


def parse_prices(texts: Sequence[str]) -> dict[str, float]:
    """Read `h100=2.5` options: GPU name to USD an hour.

    Raises:
        UsageError: no such GPU, or not a price above zero.

    """
    found: dict[str, float] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        try:
            usd = float(amount.strip().removeprefix("$"))
        except ValueError:
            usd = 0.0
        if not equals or not 0 < usd < 1e6:
            raise UsageError(f"--price {text!r} is not a price", hint="write --price h100=2.50 (USD for one GPU-hour)")
        found[gpu_name(name)] = usd
    return found


def gpu_name(alias: str) -> str:
    """Return the name in gpus.yaml of what the user calls a GPU.

    Raises:
        UsageError: no such GPU; names near ones.

    """
    hardware = parse_hardware(alias)
    facts = facts_of(hardware.gpus[0].name)
    return facts.name if facts else hardware.gpus[0].name
