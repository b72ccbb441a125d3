"""What to do about each warning that a measurement can carry."""

from __future__ import annotations

from tuner.domain.trial import Warn

ADVICE: dict[Warn, str] = {
    Warn.CLIENT_LIMITED: (
        "The load generator was the bottleneck, so these are not the server's numbers: give it more cores or less load."
    ),
    Warn.FEW_REQUESTS: "The tail rests on a handful of requests: send more, or read p50 only.",
    Warn.NOT_STEADY: "The load never settled, so ramps are in the numbers: send more requests for this concurrency.",
    Warn.SATURATED: (
        "Requests came faster than they were answered and the queue grew, so latencies depend on the length of the "
        "run: lower the rate."
    ),
    Warn.TRUNCATED: (
        "Answers ended early although told not to: check max-model-len and whether the server takes ignore_eos."
    ),
    Warn.COUNT_MISMATCH: "The server's token counts disagree with what arrived: token rates may be wrong.",
    Warn.NO_USAGE: "The server sent no token counts, so chunks were counted: a chunk may hold several tokens.",
    Warn.PREEMPTIONS: "The server ran out of KV cache and computed requests again: fewer sequences or more cache.",
    Warn.PREFIX_HITS: "Prompts that should be new were found in the prefix cache: the numbers flatter the server.",
    Warn.HOST_BUSY: "Something else used the machine during the run: measure again when it is quiet.",
    Warn.LENGTHS_OFF: (
        "Prompts came out longer or shorter than the workload says: measure the words of this server first, or send "
        "token ids."
    ),
    Warn.THROTTLED: "A GPU held its clocks down during the run: check cooling and power limit, and measure again.",
    Warn.ERRORS: "Requests failed: the latencies are those of the answers that survived; see the kinds and the log.",
}


def advice(kind: Warn) -> str:
    """Return what the warning means and what helps."""
    return ADVICE[kind]
