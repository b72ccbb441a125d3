"""Workload: the traffic that settings are judged under."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tuner.domain.record import Record


class Fixed(Record):
    """Always the same number of tokens."""

    kind: Literal["fixed"] = "fixed"
    tokens: int = Field(ge=1)

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.tokens


class Uniform(Record):
    """Any whole number of tokens from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: int = Field(ge=1)
    high: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.high


class Lognormal(Record):
    """Lognormal lengths with this median and sigma (of the logarithm), cut to `low`..`high` tokens."""

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(gt=0)
    sigma: float = Field(gt=0, le=3)
    low: int = Field(default=1, ge=1)
    high: int = Field(ge=1)

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.high


Lengths = Annotated[Fixed | Uniform | Lognormal, Field(discriminator="kind")]


class ClosedLoop(Record):
    """`concurrency` clients; each sends its next request when the last one is answered."""

    kind: Literal["closed"] = "closed"
    concurrency: int = Field(ge=1, le=100_000)


class OpenLoop(Record):
    """Requests come at `rate_per_s` whether or not earlier ones are answered.

    `burstiness` is the shape of gamma-distributed gaps: 1 is Poisson, below 1 comes in bursts; None is constant
    spacing.
    """

    kind: Literal["open"] = "open"
    rate_per_s: float = Field(gt=0)
    burstiness: float | None = 1.0


Arrivals = Annotated[ClosedLoop | OpenLoop, Field(discriminator="kind")]


class Workload(Record):
    """What one measurement sends.

    `requests` are measured after `warmup_requests`; the share `shared_prefix` of each prompt (0..1) is the same text
    for requests of one of `prefix_groups` groups, everything else is unique in the study, so that no cache falsifies
    a run.
    """

    name: str
    input_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals
    requests: int = Field(ge=1)
    warmup_requests: int = Field(default=4, ge=0)
    shared_prefix: float = Field(default=0.0, ge=0.0, lt=1.0)
    prefix_groups: int = Field(default=1, ge=1)
    timeout_s: float = Field(default=600.0, gt=0)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and answer together."""
        return self.input_tokens.longest + self.output_tokens.longest
