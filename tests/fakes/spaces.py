"""Open search spaces for tests: by hand, and any for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tuner.domain.engine import Setting
from tuner.search.spaces import Dimension, OpenSpace

VERSION = "0.32.0"


def dimensions(*items: tuple[str, tuple[Any, ...], dict[str, tuple[Any, ...]]], pins: Any = ()) -> OpenSpace:
    return OpenSpace(
        engine="vllm", version=VERSION, pins=pins, closed=(),
        dimensions=tuple(Dimension(flag=f, values=v, needs=n) for f, v, n in items),
    )


VALUES = st.lists(st.one_of(st.none(), st.booleans(), st.integers(2, 9), st.sampled_from(["x", "y"])),
                  min_size=1, max_size=4, unique=True)


@st.composite
def spaces(draw: st.DrawFn) -> OpenSpace:
    """Up to four dimensions with pins and needs between them."""
    flags = ["a", "b", "c", "d"][: draw(st.integers(1, 4))]
    values = {flag: tuple(draw(VALUES)) for flag in flags}
    pins = tuple(Setting(flag=flag, value=1) for flag in draw(st.sets(st.sampled_from(["p", "q"]))))
    items = []
    for flag in flags:
        others = [other for other in flags if other != flag] + [pin.flag for pin in pins]
        needed = draw(st.one_of(st.none(), st.sampled_from(others))) if others else None
        allowed = [value for value in values.get(needed or "", (1,)) if value is not None]
        items.append((flag, values[flag], {needed: tuple(allowed[:2])} if needed and allowed else {}))
    return dimensions(*items, pins=pins)
