"""Turns options into a checked record: what does not fit is one error that names the option."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from tuner.domain.record import Record
from tuner.errors import UsageError

R = TypeVar("R", bound=Record)


def given(kind: type[R], **values: Any) -> R:  # noqa: ANN401  (whatever the options hold)
    """Return the record that the options make.

    Raises:
        UsageError: a value that does not fit, with the option's name.

    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        option = f"--{str(first['loc'][0]).replace('_', '-')}"
        message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
        hint = "llmtune COMMAND --help says what it takes"
        raise UsageError(f"{option} {first['input']}: {message}", hint=hint) from None
