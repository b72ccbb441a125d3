"""How long a text is in the server's own tokens: asked of the server, so no tokenizer is needed here."""

from __future__ import annotations

import itertools

from tuner.domain.workload import ClosedLoop
from tuner.errors import NothingMeasuredError
from tuner.load.arrivals import Schedule
from tuner.load.driver import drive
from tuner.load.prompts import WORDS, Message, Request, TextScale
from tuner.load.target import Target

SHORT, LONG = len(WORDS), 3 * len(WORDS)
"""Whole rounds of the words, so that the slope is their average."""
TIMEOUT_S = 60.0


def calibrate(target: Target) -> TextScale:
    """Send two texts of known words and read from the usage how many tokens they were.

    The slope is the tokens of a word, the rest is what the chat template adds.

    Raises:
        NothingMeasuredError: when the server does not answer or does not count.

    """
    counts = []
    for number, words in enumerate((SHORT, LONG)):
        text = " ".join(itertools.islice(itertools.cycle(WORDS), words))
        request = Request(id=f"c{number}", prompt=(Message("user", text),), input_tokens=words, output_tokens=1)
        run = drive(target, [request], ClosedLoop(concurrency=1), Schedule(clients=(0.0,), connections=1),
                    timeout_s=TIMEOUT_S)
        record = run.records[0]
        if record.input_tokens is None:
            raise NothingMeasuredError(
                f"the server did not say how long a prompt was: {record.detail or 'no usage in its answer'}",
                hint="text prompts then have about as many tokens as words",
            )
        counts.append(record.input_tokens)
    per_word = max(0.1, (counts[1] - counts[0]) / (LONG - SHORT))
    return TextScale(tokens_per_word=per_word, overhead=max(0.0, counts[0] - per_word * SHORT))
