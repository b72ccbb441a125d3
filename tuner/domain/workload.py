"""Workload: the traffic that settings are judged under."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tuner.domain.record import Stated

MOST_REQUESTS = 10_000_000
_Tokens = Annotated[int, Field(ge=1, le=10_000_000)]


class Fixed(Stated):
    """Always the same number of tokens."""

    kind: Literal["fixed"] = "fixed"
    tokens: _Tokens

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.tokens


class Uniform(Stated):
    """Any whole number of tokens from `low` to `high`, both included, equally likely."""

    kind: Literal["uniform"] = "uniform"
    low: _Tokens
    high: _Tokens

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low > self.high:
            raise ValueError("low must not be above high")
        return self

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.high


class Lognormal(Stated):
    """Lognormal lengths with this median and sigma (of the logarithm), cut to `low`..`high` tokens."""

    kind: Literal["lognormal"] = "lognormal"
    median: float = Field(gt=0)
    sigma: float = Field(gt=0, le=3)
    low: _Tokens = 1
    high: _Tokens

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.high


class Normal(Stated):
    """Normal lengths with this mean and standard deviation, cut to `low`..`high` tokens."""

    kind: Literal["normal"] = "normal"
    mean: float = Field(gt=0)
    sd: float = Field(ge=0)
    low: _Tokens = 1
    high: _Tokens

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return self.high


class Empirical(Stated):
    """Lengths seen elsewhere: each is drawn with its weight, all equally often without weights."""

    kind: Literal["empirical"] = "empirical"
    values: tuple[_Tokens, ...] = Field(min_length=1)
    weights: tuple[Annotated[float, Field(ge=0)], ...] = ()

    @model_validator(mode="after")
    def _weighted(self) -> Empirical:
        if self.weights and (len(self.weights) != len(self.values) or sum(self.weights) <= 0):
            raise ValueError("one weight for each value, not all of them zero")
        return self

    @property
    def longest(self) -> int:
        """The largest length that can come, in tokens."""
        return max(self.values)


Lengths = Annotated[Fixed | Uniform | Lognormal | Normal | Empirical, Field(discriminator="kind")]


class ClosedLoop(Stated):
    """`concurrency` clients; each sends its next request when the last one is answered.

    Their first requests are spread over `ramp_s` seconds; None is 10 ms a client and 5 s at most.
    """

    kind: Literal["closed"] = "closed"
    concurrency: int = Field(ge=1, le=100_000)
    ramp_s: float | None = Field(default=None, ge=0, exclude_if=lambda ramp_s: ramp_s is None)


class OpenLoop(Stated):
    """Requests come at `rate_per_s` whether or not earlier ones are answered.

    `burstiness` is the shape of gamma-distributed gaps: 1 is Poisson, below 1 comes in bursts; None is constant
    spacing.
    """

    kind: Literal["open"] = "open"
    rate_per_s: float = Field(gt=0, le=1e6)
    burstiness: float | None = 1.0


class RatePoint(Stated):
    """The rate at one moment of a profile."""

    at_s: float = Field(ge=0)
    rate_per_s: float = Field(ge=0, le=1e6)


class RateProfile(Stated):
    """An open loop whose rate changes: linear between the points, the last rate from then on.

    Two points of the same moment are a step. `burstiness` is that of `OpenLoop`, in the time of the changing rate.
    """

    kind: Literal["profile"] = "profile"
    points: tuple[RatePoint, ...] = Field(min_length=1)
    burstiness: float | None = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _in_order(self) -> RateProfile:
        times = [point.at_s for point in self.points]
        if times != sorted(times):
            raise ValueError("the points must be in order of time")
        if self.points[-1].rate_per_s <= 0:
            raise ValueError("the last rate must be above zero, or the requests never end")
        return self


class Trace(Stated):
    """Requests as they came somewhere else: times, lengths and, where known, shared prefixes, from a file.

    `speed` 2 replays in half the time. `sha256` ties a study to the file's content.
    """

    kind: Literal["trace"] = "trace"
    path: str
    format: Literal["auto", "azure", "burstgpt", "mooncake"] = "auto"
    sha256: str = ""
    speed: float = Field(default=1.0, gt=0)


class Sessions(Stated):
    """`users` people in conversations of `turns` requests, each with the whole history before it.

    After an answer a user thinks for an exponentially distributed time with mean `think_s`; a conversation that is
    over is followed by a new one.
    """

    kind: Literal["sessions"] = "sessions"
    users: int = Field(ge=1, le=100_000)
    turns: Lengths
    think_s: float = Field(default=0.0, ge=0)


Arrivals = Annotated[ClosedLoop | OpenLoop | RateProfile | Trace | Sessions, Field(discriminator="kind")]


class TrafficClass(Stated):
    """One kind of request in a mix, drawn with `weight`; results are given for each class and overall."""

    name: str = Field(min_length=1)
    weight: float = Field(gt=0)
    input_tokens: Lengths
    output_tokens: Lengths
    shared_prefix: float = Field(default=0.0, ge=0.0, lt=1.0)
    prefix_groups: int = Field(default=1, ge=1, le=MOST_REQUESTS)


class Adapter(Stated):
    """A model name that a share of the requests asks for, e.g. a LoRA adapter."""

    model: str = Field(min_length=1)
    weight: float = Field(gt=0)


class Workload(Stated):
    """What one measurement sends.

    `requests` are measured after `warmup_requests`; the share `shared_prefix` of each prompt (0..1) is the same text
    for requests of one of `prefix_groups` groups, everything else is unique in the study, so that no cache falsifies
    a run. With `classes` each request belongs to one of them and takes its lengths and prefix from there; `adapters`
    share the requests among model names; `prompts_file` holds the user's own prompts, one JSON object a line.
    """

    name: str
    input_tokens: Lengths
    output_tokens: Lengths
    arrivals: Arrivals
    requests: int = Field(ge=1, le=MOST_REQUESTS)
    warmup_requests: int = Field(default=4, ge=0, le=MOST_REQUESTS)
    shared_prefix: float = Field(default=0.0, ge=0.0, lt=1.0)
    prefix_groups: int = Field(default=1, ge=1, le=MOST_REQUESTS)
    timeout_s: float = Field(default=600.0, gt=0)
    classes: tuple[TrafficClass, ...] = Field(default=(), exclude_if=lambda classes: not classes)
    adapters: tuple[Adapter, ...] = Field(default=(), exclude_if=lambda adapters: not adapters)
    prompts_file: str = Field(default="", exclude_if=lambda path: not path)
    prompts_sha256: str = Field(default="", exclude_if=lambda digest: not digest)

    @model_validator(mode="before")
    @classmethod
    def _lengths_of_first_class(cls, data: Any) -> Any:  # noqa: ANN401  (whatever was given)
        """Let a mix do without lengths of its own."""
        if isinstance(data, dict) and (classes := data.get("classes")) and isinstance(classes, (list, tuple)):
            first = classes[0]
            for key in ("input_tokens", "output_tokens"):
                if key not in data:
                    data = data | {key: first.get(key) if isinstance(first, dict) else getattr(first, key, None)}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        names = [one.name for one in self.classes]
        if len(set(names)) != len(names):
            raise ValueError("two classes have the same name")
        if self.prompts_file and isinstance(self.arrivals, (Trace, Sessions)):
            raise ValueError(f"prompts of a file cannot come as {self.arrivals.kind}, which has lengths of its own")
        return self

    @property
    def mix(self) -> tuple[TrafficClass, ...]:
        """The classes; a workload without any is one class of its own without a name."""
        own = TrafficClass.model_construct(
            name="", weight=1.0, input_tokens=self.input_tokens, output_tokens=self.output_tokens,
            shared_prefix=self.shared_prefix, prefix_groups=self.prefix_groups,
        )
        return self.classes or (own,)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and answer together; with sessions that of the longest history."""
        longest = max(one.input_tokens.longest + one.output_tokens.longest for one in self.mix)
        return longest * (self.arrivals.turns.longest if isinstance(self.arrivals, Sessions) else 1)
