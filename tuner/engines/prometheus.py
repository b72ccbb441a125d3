"""Reads Prometheus text, the little of it that engines export."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line: labels and value."""

    labels: dict[str, str]
    value: float


class Samples(dict[str, list[Sample]]):
    """All samples of one scrape by metric name."""

    def total(self, name: str) -> float | None:
        """Return the sum over all label sets, or None when the metric is not there."""
        samples = self.get(name)
        return sum(sample.value for sample in samples) if samples else None

    def mean(self, name: str) -> float | None:
        """Return the mean over all label sets, or None when the metric is not there."""
        samples = self.get(name)
        return sum(sample.value for sample in samples) / len(samples) if samples else None


def parse(text: str) -> Samples:
    """Read a scrape; lines that are not samples are left out."""
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for line in text.splitlines():
        match = None if line.startswith("#") else _LINE.match(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        found[match[1]].append(Sample(dict(_LABEL.findall(match[2] or "")), value))
    return Samples(found)
