"""Closed forms of a deployment's size and cost. Nothing here is measured; inputs say whether they are.

replicas = rate / (rate of one replica x utilization), and one more for N+1
$ per million tokens = $ per hour / (tokens per second x 3600) x 1,000,000
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tuner.domain.record import Record
from tuner.errors import UsageError

HOURS_A_MONTH = 730.0
"""365 days x 24 hours / 12 months."""


class Cost(Record):
    """What a deployment costs. `per_million_output` and `per_million_tokens` are at the rate that is really served."""

    per_hour: float
    per_month: float
    per_million_output: float | None
    per_million_tokens: float | None
    used: float
    """Share of what the replicas could serve that the rate uses: the rest is paid for and idle."""


def replicas_for(rate_per_s: float, one_replica_per_s: float, headroom: float) -> int:
    """Return how many replicas serve a rate when each is loaded to `1 - headroom` of what it can.

    Raises:
        UsageError: one replica serves nothing, or the headroom leaves nothing.

    """
    if one_replica_per_s <= 0 or not 0 <= headroom < 1:
        raise UsageError("no number of replicas serves this rate", hint="loosen the SLO, or take a larger GPU")
    return max(1, math.ceil(rate_per_s / (one_replica_per_s * (1 - headroom)) - 1e-9))


def with_spare(replicas: int) -> int:
    """Return the replicas of N+1: the rate is still served, with its headroom, when one is lost."""
    return replicas + 1


def dollars_per_million(per_hour: float, tokens_per_s: float) -> float | None:
    """Return $ per million tokens at a steady rate, or None when nothing is served.

    3,000 tokens/s on a machine of 6.76 $/h: 10.8 million tokens an hour, 0.626 $ a million.
    """
    return per_hour / (tokens_per_s * 3600) * 1e6 if tokens_per_s > 0 else None


def tokens_per_day(tokens_per_s: float) -> float:
    """Return tokens of a day at a steady rate: 3,000/s are 259.2 million, not more."""
    return tokens_per_s * 86_400


def cost(
    per_hour: float, *, output_per_s: float, tokens_per_s: float, used: float, hours_a_month: float = HOURS_A_MONTH
) -> Cost:
    """Return the cost of machines of `per_hour` that serve these tokens, idle time included."""
    return Cost(
        per_hour=per_hour,
        per_month=per_hour * hours_a_month,
        per_million_output=dollars_per_million(per_hour, output_per_s),
        per_million_tokens=dollars_per_million(per_hour, tokens_per_s),
        used=used,
    )


def break_even_tokens(per_month: float, api_per_million: float) -> float:
    """Return the tokens a month above which own machines are cheaper than an API of that price (as long as they cope).

    Raises:
        UsageError: the price is not above zero.

    """
    if api_per_million <= 0:
        raise UsageError("the API's price must be above zero")
    return per_month / api_per_million * 1e6


def blended_price(input_price: float, output_price: float, prompt: float, output: float) -> float:
    """Return $ per million tokens of a mix of prompt and answer tokens, from an API's two prices."""
    return (input_price * prompt + output_price * output) / (prompt + output)


def per_gpu(throughput: float, gpus: int) -> float:
    """Return throughput for each GPU: what decides between one wide server and several narrow ones."""
    return throughput / gpus


def pareto(points: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """Return the places of points that no other beats in both numbers (smaller is better), in the order given."""
    kept = []
    for place, (first, second) in enumerate(points):
        beaten = any(
            (one <= first and two <= second) and (one < first or two < second) for one, two in points
        )
        if not beaten:
            kept.append(place)
    return tuple(kept)
