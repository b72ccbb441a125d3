"""Templates to text. The only home of jinja2.

Templates print what `tuner.output` gives them and know no engine; every value goes through a filter that fits its
place (`sh`, `comment`, `md`, `code`, `fenced`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jinja2

from tuner.output import quoting

_PACKAGE = Path(__file__).resolve().parent.parent


def template_directory() -> Path:
    """Return the directory of the templates: inside an installed wheel, or at the top of a source tree."""
    bundled = _PACKAGE / "_bundled" / "templates"
    return bundled if bundled.is_dir() else _PACKAGE.parent / "templates"


def render(template: str, **context: object) -> str:
    """Fill the template of this name. A name that the template uses and the context lacks is an error.

    In `.html.j2` templates every value is escaped for HTML.

    The result ends in exactly one newline and has no space at the end of a line.
    """
    environment = _html_environment() if template.endswith(".html.j2") else _environment()
    text = environment.get_template(template).render(**context)
    return "\n".join(line.rstrip(" ") for line in text.strip("\n").split("\n")) + "\n"


@cache
def _environment() -> jinja2.Environment:
    return _with_filters(autoescape=False)


@cache
def _html_environment() -> jinja2.Environment:
    return _with_filters(autoescape=True, finalize=_seen)


def _seen(value: object) -> object:
    """Show every character of a text in HTML, and leave what is HTML already."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return quoting.visible(re.sub(r"\s+", " ", str(value))) if is_text else value


def _with_filters(*, autoescape: bool, finalize: Callable[[object], object] | None = None) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_directory()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=autoescape,  # noqa: S701  (off where no HTML is made: there each value passes a filter of its place)
        finalize=finalize,
    )
    environment.filters.update(
        sh=quoting.shell, comment=quoting.comment, md=quoting.md, code=quoting.code, fenced=quoting.fenced,
    )
    return environment
