"""Figures as SVG text for a page: the only home of matplotlib, which is loaded when the first figure is drawn.

Text stays text and colours are CSS variables with a fallback, so that one drawing is right in the light, in the dark
and on paper. The same data and the same matplotlib give the same bytes: settings of the user, ids, dates and the last
digits of coordinates are left out.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from tuner.output.quoting import visible

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 5.2
"""Inches; as many points as a phone has pixels, so that text keeps its size there."""


class Colour(NamedTuple):
    """One colour of the page: its CSS variable, and what it is in the light, in the dark and on paper."""

    name: str
    light: str
    dark: str
    paper: str


PALETTE = (
    Colour("ink", "#1a1d21", "#e6e8eb", "#000000"),
    Colour("soft", "#5b636d", "#a3abb5", "#444444"),
    Colour("line", "#d9dde2", "#3a4149", "#bbbbbb"),
    Colour("paper", "#ffffff", "#15181c", "#ffffff"),
    Colour("panel", "#f5f7f9", "#1e2329", "#f3f3f3"),
    Colour("good", "#0b7a4b", "#5fd39b", "#006644"),
    Colour("bad", "#b3261e", "#ff8a80", "#990000"),
    Colour("mark", "#1a5fb4", "#8ab8f5", "#113355"),
    Colour("amber", "#a65300", "#f0a050", "#8a4500"),
    Colour("violet", "#7b3fa0", "#c792ea", "#5a2d77"),
    Colour("range", "#9dbde3", "#34547d", "#aaaacc"),
)
_SENTINELS = {colour.name: f"#0{index:01x}fe{index:01x}1" for index, colour in enumerate(PALETTE)}
INK, SOFT, LINE, PAPER, PANEL, GOOD, BAD, MARK, AMBER, VIOLET, RANGE = _SENTINELS.values()
"""What drawings name their colours by; each stands for a variable of the page."""

_SETTINGS: dict[Any, object] = {
    "font.family": "DejaVu Sans", "font.size": 11, "axes.titlesize": 11, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "axes.labelsize": 10, "xtick.labelsize": 10, "ytick.labelsize": 10,
    "legend.fontsize": 10, "legend.frameon": False, "text.parse_math": False, "text.color": INK,
    "axes.edgecolor": SOFT, "axes.labelcolor": SOFT, "axes.facecolor": "none", "axes.axisbelow": True,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.7,
    "xtick.color": SOFT, "ytick.color": SOFT, "figure.facecolor": "none", "savefig.facecolor": "none",
    "lines.linewidth": 1.6, "lines.markersize": 6, "svg.fonttype": "none", "axes.formatter.useoffset": False,
}
_COORDINATES = re.compile(r'(?<= )(d|x|y|transform|viewBox|points)="([^"]*)"')
_LONG = re.compile(r"(-?\d+\.\d{3,})(?!\d)")
_IDS = re.compile(r' id="([^"]*)"')
_USED = re.compile(r'(?:(?<=url\(#)|(?<=href="#))[^")]+')


def draw(name: str, title: str, height: float, paint: Callable[[Figure], None], *, width: float = WIDTH) -> str:
    """Return the SVG element that `paint` fills; `height` and `width` are inches.

    `name` keeps ids of several figures on one page apart; `title` is what a screen reader says.
    """
    import matplotlib as mpl  # noqa: PLC0415  (half a second that only a report needs)
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    text = io.StringIO()
    with warnings.catch_warnings(), mpl.rc_context():
        warnings.simplefilter("ignore")  # a glyph that the font lacks: the browser has it
        mpl.rcdefaults()
        mpl.rcParams.update({**_SETTINGS, "svg.hashsalt": f"llmtune-{name}"})
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        paint(figure)
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return _for_a_page(text.getvalue(), name, title)


def log_ticks(axis: Axis) -> None:
    """Put ticks at 1, 2 and 5 of each decade, written as people do."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter  # noqa: PLC0415

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_locator(NullLocator())


def whole_ticks(axis: Axis) -> None:
    """Put ticks at whole numbers."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))


def label(text: str, length: int = 40) -> str:
    """Return text that is safe on an axis: one line, no character that the font's metrics do not know."""
    line = visible(" ".join(text.split())).encode("ascii", "backslashreplace").decode()
    return line if len(line) <= length else f"{line[: length - 3]}..."


def style() -> str:
    """Return the CSS that gives the variables of the page their colours."""
    dark = "@media (prefers-color-scheme: dark) { @media screen { :root { " + _rules("dark") + " } } }"
    return f":root {{ {_rules('light')} }}\n{dark}\n@media print {{ :root {{ {_rules('paper')} }} }}"


def _rules(which: str) -> str:
    return " ".join(f"--{colour.name}: {getattr(colour, which)};" for colour in PALETTE)


def _for_a_page(svg: str, name: str, title: str) -> str:
    """Take out what only a file of its own needs, and what would leak into the page around it.

    Ids become numbers: matplotlib makes them from all digits of a coordinate, whose last ones differ between machines.
    """
    body = svg[svg.index("<svg"):]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]*"', body)
    opening = (f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
               f'aria-label="{escape(visible(title))}" {view[0] if view else ""} '
               'style="stroke-linejoin: round; stroke-linecap: butt">')
    body = re.sub(r"<svg[^>]*>", lambda _: opening, body, count=1)
    body = _COORDINATES.sub(lambda found: f'{found[1]}="{" ".join(_LONG.sub(_rounded, found[2]).split())}"', body)
    for colour in PALETTE:
        body = body.replace(_SENTINELS[colour.name], f"var(--{colour.name}, {colour.light})")
    body = body.replace("'DejaVu Sans'", "system-ui, sans-serif")
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    numbers = {used: f"{prefix}-{number}" for number, used in enumerate(dict.fromkeys(_USED.findall(body)), 1)}
    body = _IDS.sub(lambda found: f' id="{numbers[found[1]]}"' if found[1] in numbers else "", body)
    body = _USED.sub(lambda found: numbers[found[0]], body)
    return "\n".join(line.strip() for line in body.splitlines() if line.strip())


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[1]):.2f}".rstrip("0").rstrip(".")
