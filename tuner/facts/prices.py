"""Example prices of GPU-hours and of hosted APIs: always with date and source, never a guess.

What the user states replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError, field_validator

from tuner.domain.record import Record
from tuner.errors import UsageError
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import named_gpu
from tuner.facts.located import Document, load_document
from tuner.facts.read import data

KINDS = ("on-demand", "reserved", "spot")


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


class ApiPrice(Record):
    """USD of a hosted API for a million tokens of prompts and of answers, and where that is from."""

    model: str
    prompt: float
    answer: float
    provider: str = ""
    as_of: str = ""
    source: str = ""

    @field_validator("as_of", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> str:
        return str(value)

    @property
    def text(self) -> str:
        """Both prices, provider and date in one line."""
        prices = f"${self.prompt:g} a million prompt tokens and ${self.answer:g} a million answer tokens"
        if not self.source:
            return f"{prices}, as you said"
        return f"{prices} ({self.provider or self.model}, example of {self.as_of}; {self.source})"


def price_of(
    gpu: str, stated: Mapping[str, float], rows: Sequence[Price] = (), kind: str = "on-demand"
) -> Price | None:
    """Return the price of a GPU (its name in gpus.yaml): the stated one, else the cheapest row of the kind, or None."""
    if gpu in stated:
        return Price(gpu=gpu, usd=stated[gpu])
    found = [row for row in (rows or known_prices()) if row.gpu == gpu and row.kind == kind]
    return min(found, key=lambda row: row.usd, default=None)


def api_price_of(model: str, rows: Sequence[ApiPrice], prompt_share: float) -> ApiPrice | None:
    """Return the cheapest hosted price of a model (its hub id) for a mix with so many prompt tokens, or None."""
    found = [row for row in rows if (known := model_by_alias(row.model)) is not None and known.location == model]
    return min(found, key=lambda row: row.prompt * prompt_share + row.answer * (1 - prompt_share), default=None)


def known_api_prices() -> tuple[ApiPrice, ...]:
    """Return the bundled example prices of hosted APIs."""
    return tuple(ApiPrice(**row) for row in data("prices.yaml")["api_tokens"])


def known_prices() -> tuple[Price, ...]:
    """Return the bundled example prices."""
    return tuple(Price(**row) for row in data("prices.yaml")["gpu_hours"])


def load_prices(path: Path) -> tuple[Price, ...]:
    """Read a file of the same form as facts/data/prices.yaml.

    Raises:
        SpaceError: it cannot be read or a row is wrong.

    """
    document = load_document(path)
    if not isinstance(document.data, dict) or not {"gpu_hours", "api_tokens"} & set(document.data):
        raise document.error((), "a price file has gpu_hours: a list of {gpu, usd, provider, as_of, source}")
    found = []
    for index, row in _rows(document, "gpu_hours"):
        try:
            price = Price(**{"kind": "on-demand", **row})
        except (ValidationError, TypeError):
            raise document.error(("gpu_hours", index), "a price has gpu, usd, provider, as_of and source") from None
        if price.kind not in KINDS:
            raise document.error(("gpu_hours", index), f"kind is one of {', '.join(KINDS)}")
        try:
            name = gpu_name(price.gpu)
        except UsageError as error:
            raise document.error(("gpu_hours", index), error.message, error.hint) from None
        found.append(price.model_copy(update={"gpu": name}))
    return tuple(found)


def load_api_prices(path: Path) -> tuple[ApiPrice, ...]:
    """Read the hosted prices of a file of the same form as facts/data/prices.yaml; it may have none.

    Raises:
        SpaceError: it cannot be read or a row is wrong.

    """
    document = load_document(path)
    found = []
    for index, row in _rows(document, "api_tokens"):
        try:
            found.append(ApiPrice(**row))
        except (ValidationError, TypeError):
            raise document.error(("api_tokens", index),
                                 "a price has model, prompt, answer, provider, as_of and source") from None
    return tuple(found)


def _rows(document: Document, key: str) -> Iterator[tuple[int, Any]]:
    rows = document.data.get(key, []) if isinstance(document.data, dict) else []
    if not isinstance(rows, list):
        raise document.error((key,), f"{key} is a list")
    yield from enumerate(rows)


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
        UsageError: no such GPU; names near ones. Or a number of them, of which no price is known to be.

    """
    facts, count = named_gpu(alias)
    if count is not None:
        raise UsageError(f"{alias!r} is a number of GPUs, and a price is that of one GPU for an hour",
                         hint=f"divide by {count}, and name the GPU alone")
    return facts.name
