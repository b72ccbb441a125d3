"""Finds out what a running server is: which models it serves, which dialect it speaks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx

from tuner.app.events import Listener, Note
from tuner.engines import ENGINES
from tuner.engines.base import Engine
from tuner.errors import NothingMeasuredError, ServerError, UsageError
from tuner.load.calibrate import calibrate
from tuner.load.dialects import Dialect, dialect_of
from tuner.load.prompts import TextScale
from tuner.load.target import Api, parse_target


@dataclass(frozen=True)
class Found:
    """The server as it answered."""

    url: str
    model: str
    dialect: Dialect
    engine: Engine | None
    local: bool
    scale: TextScale | None = None
    """How words become tokens there, where prompts are text."""


def find_server(url: str, model: str | None, api_key: str | None) -> Found:
    """Ask the server what it serves.

    Raises:
        ServerError: not reachable, a TLS failure, 401, no list of models, or another model than asked for.
        UsageError: not a URL.

    """
    base = url.rstrip("/").removesuffix("/v1")
    parts = urlsplit(base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url {url!r} is not a URL", hint="write http://host:port")
    if parts.username or parts.password:
        raise UsageError("--url holds a password", hint="take it out; a key goes into a variable: --api-key-env NAME")
    shown = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
    served = _models(base, shown, api_key)
    names = [str(entry.get("id")) for entry in served]
    if model is not None and model not in names:
        raise ServerError(f"{shown} does not serve {model!r}", hint=f"it serves: {', '.join(names) or 'nothing'}")
    if model is None and len(names) != 1:
        raise ServerError(f"{shown} serves {len(names)} models", hint=f"say which with --model: {', '.join(names)}")
    chosen = next(entry for entry in served if model in (None, entry.get("id")))
    dialect = dialect_of(chosen.get("owned_by"))
    return Found(
        url=base,
        model=str(chosen["id"]),
        dialect=dialect,
        engine=ENGINES.get(dialect.name),
        local=parts.hostname in ("127.0.0.1", "localhost", "::1"),
    )


def _models(base: str, shown: str, api_key: str | None) -> list[dict[str, str]]:
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        answer = httpx.get(f"{base}/v1/models", headers=headers, timeout=10.0, trust_env=False)
    except httpx.ConnectError as error:
        hint = "is the certificate trusted here?" if "CERTIFICATE" in str(error).upper() else "is it running there?"
        raise ServerError(f"cannot connect to {shown}: {error}", hint=hint) from None
    except httpx.HTTPError as error:
        raise ServerError(f"{shown} gives no answer: {str(error) or type(error).__name__}") from None
    if answer.status_code in (401, 403):
        raise ServerError(
            f"{shown} answers {answer.status_code}: it wants a key",
            hint="put it in an environment variable and name that: --api-key-env NAME",
        )
    try:
        served = answer.json()["data"]
        return [dict(entry) for entry in served]
    except (ValueError, KeyError, TypeError):
        raise ServerError(
            f"{shown}/v1/models answers {answer.status_code} without a list of models",
            hint="bench loads servers with an OpenAI-style API; is this one?",
        ) from None


def calibrated(found: Found, api: Api, api_key: str | None, tell: Listener) -> Found:
    """Ask the server how long words are in its tokens, for prompts of text."""
    target = parse_target(found.url, found.model, api=api, api_key=api_key, dialect=found.dialect.name)
    try:
        return replace(found, scale=calibrate(target))
    except NothingMeasuredError as error:
        tell(Note(f"{error.message}; {error.hint}"))
        return found
