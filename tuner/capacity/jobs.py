"""What goes into a simulation of the engine's scheduler, and what comes out. Results are PREDICTED."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Job:
    """One request: tokens of prompt and answer, when it comes, and the beginning that it shares.

    `shared` names pieces of the prompt in order with their tokens: equal names are equal text, as far as they go. After
    its end the job `then` is sent, `wait_s` of that one later (conversations). Jobs without a time that follow nobody
    are taken in order by whoever ends (closed loops).
    """

    prompt: int
    output: int
    at_s: float | None = None
    shared: tuple[tuple[str, int], ...] = ()
    wait_s: float = 0.0
    then: int | None = None
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Engine:
    """The settings of the engine that its scheduler works with. `blocks` is the size of the KV cache pool."""

    max_sequences: int
    token_budget: int
    blocks: int
    block_tokens: int = 16
    chunked: bool = True
    prefix_caching: bool = True
    tokens_per_step: float = 1.0
    """Tokens that a decode step gives a sequence: more than one with speculation."""
    queries: float = 1.0
    """Tokens that a decode step computes for a sequence."""
    draft_share: float = 0.0
    """Time of drafting, as a share of the step."""


@dataclass(slots=True)
class Bound:
    """A limit on the time to the first token: of the requests after the first `settled`, so many may be late."""

    ttft_s: float
    may_be_late: int
    settled: int = 0
    late: int = 0

    @property
    def broken(self) -> bool:
        """Whether more were late than may be."""
        return self.late > self.may_be_late


@dataclass(slots=True)
class Simulated:
    """What came out, an entry a request in the order of the jobs; times in seconds. All PREDICTED."""

    arrival: NDArray[np.float64]
    first: NDArray[np.float64]
    end: NDArray[np.float64]
    output: NDArray[np.int64]
    gaps: NDArray[np.float64]
    """Durations of steps, each with the number of tokens that came with it in `weights`."""
    weights: NDArray[np.float64]
    steps: int
    preemptions: int
    hit_tokens: int
    prompt_tokens: int
    peak_blocks: float
    busy_s: float
    running: float
    """Sequences in a step, mean over time."""
    refused: int
    """Requests that do not fit the KV cache even alone."""
    spans: NDArray[np.int64]
    """Of each request, which entries of `gaps` came while it decoded: first, and one past the last."""
    repeats: NDArray[np.int64]
    """How many steps each entry of `gaps` stands for."""
    times: NDArray[np.float64]
    """When the last step of each entry of `gaps` ended."""
    firsts: NDArray[np.float64]
    """When the first token of every request left the engine, of those before and after the measured ones too."""
    now_s: float
    """When the run was over."""
    cut_s: float = float("inf")
    """When the first request came that was not answered because the run was ended."""

    @property
    def ttft(self) -> NDArray[np.float64]:
        """Seconds to the first token."""
        return self.first - self.arrival

    @property
    def tpot(self) -> NDArray[np.float64]:
        """Seconds a token after the first, of requests with more than one."""
        many = self.output > 1
        return (self.end[many] - self.first[many]) / (self.output[many] - 1)

    @property
    def e2e(self) -> NDArray[np.float64]:
        """Seconds from request to the last token."""
        return self.end - self.arrival

    def itl_of_requests(self, percent: float | None) -> NDArray[np.float64]:
        """Return the percentile of each request's own gaps, or their mean; not a number for a single token."""
        found = np.full(self.end.size, np.nan)
        for number, (start, stop) in enumerate(self.spans.tolist()):
            values, repeats = self.gaps[start:stop], self.repeats[start:stop].astype(float)
            if values.size and percent is None:
                found[number] = float(values @ repeats / repeats.sum())
            elif values.size:
                found[number] = weighted_percentile(values, repeats, percent or 0.0)
        return found

    def itl(self, percent: float) -> float:
        """Return a percentile of the gaps between tokens, over all tokens."""
        return weighted_percentile(self.gaps, self.weights, percent)


def weighted_percentile(values: NDArray[np.float64], weights: NDArray[np.float64], percent: float) -> float:
    """Return the value below which `percent` of the weight lies; not a number without values."""
    if values.size == 0:
        return float("nan")
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    place = np.searchsorted(total, percent / 100 * total[-1])
    return float(values[order[min(int(place), values.size - 1)]])
