"""How long one step of an engine on CPU cores takes, where nothing is published: a few terms that live trials fit.

The server's front end and the client share the cores with the engine, so what they spend on a token or a request
lengthens the step in which it happens. Every number is PREDICTED.

step = step + read x (weight bytes) + sequence x decoding + token x prompt tokens + context x tokens of cache
       + look x (prompt tokens x tokens before them) + request x requests that came
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tuner.domain.record import Record

NAMES = ("step_us", "sequence_us", "token_us", "context_ns", "look_ns", "request_us", "outside_us")


class HostTerms(Record):
    """What a fit decides, for one model on one host."""

    step_us: float
    """For each step: scheduling, launch of the kernels, reading the weights, waking the other processes."""
    sequence_us: float
    """For each decoding sequence: its arithmetic, sampling, and its token on the way through server and client."""
    token_us: float
    """For each token of a prompt."""
    context_ns: float
    """For each token of cache that a decoding sequence reads."""
    look_ns: float
    """For each token of a prompt and each token before it."""
    request_us: float
    """For each request: what server and client do with it while the step waits for the core."""
    outside_us: float
    """From the client to the engine's queue and from the engine to the client, together."""
    step_factor: float = 1.0
    """On `step_us`, of the settings that change the arithmetic (a wider type, another kernel)."""
    work_factor: float = 1.0
    """The same on sequences, prompt tokens, context and look."""


PRIOR: Mapping[str, tuple[float, float]] = {
    # start, and the factor by which it may well be off
    "step_us": (15_000.0, 4.0), "sequence_us": (1_000.0, 4.0), "token_us": (250.0, 5.0), "context_ns": (500.0, 4.0),
    "look_ns": (50.0, 4.0), "request_us": (3_000.0, 3.0), "outside_us": (5_000.0, 2.0),
}
"""Where a fit begins: a small model on one core. Wide, because hosts and models differ by orders of magnitude."""


class HostStep:
    """Seconds of a step, as `StepTime` gives them for GPUs."""

    def __init__(self, terms: HostTerms) -> None:
        """Turn the terms into seconds."""
        us, ns = 1e-6 * terms.work_factor, 1e-9 * terms.work_factor
        self.terms = terms
        self._fixed = terms.step_us * 1e-6 * terms.step_factor
        self._sequence, self._token = terms.sequence_us * us, terms.token_us * us
        self._context, self._look = terms.context_ns * ns, terms.look_ns * ns
        self.arrival_s = terms.request_us * 1e-6
        """Seconds by which a request that comes lengthens the step."""
        self.request_s = terms.outside_us * 1e-6
        """Seconds of a request outside of all steps."""
        self.turn_s = self.request_s
        """Seconds after its answer's last step in which a client's next request reaches the queue."""

    def seconds(
        self, sequences: float, context: float, prompt: float = 0.0, looked_back: float = 0.0, queries: float = 1.0
    ) -> float:
        """Return the time of one step; the arguments are those of `StepTime.seconds`."""
        tokens = sequences * queries
        return (self._fixed + self._sequence * tokens + self._token * prompt + self._context * context
                + self._look * looked_back)


def terms_of(vector: Mapping[str, float]) -> HostTerms:
    """Return the terms of logarithms by name."""
    return HostTerms(**{name: math.exp(value) for name, value in vector.items()})
