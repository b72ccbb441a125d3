"""What a model and a workload are that somebody named in a word: without anything that a search or a server needs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import ValidationError

from tuner.domain.model import ModelSpec
from tuner.domain.workload import MOST_REQUESTS, ClosedLoop, Fixed, OpenLoop, Workload
from tuner.errors import UsageError
from tuner.facts.catalog import model_by_alias, model_by_hub_id, workload_preset
from tuner.facts.located import load_document
from tuner.inspect.model_dir import cached_config, read_model_dir, with_config

SHORT = re.compile(r"^(\d{1,12})x(\d{1,12})(?:@(?:c(\d{1,12})|(\d+(?:\.\d+)?(?:e\d+)?)/s))?$", re.IGNORECASE)
"""The short form of a workload."""


def resolve_model(text: str, name: str | None) -> ModelSpec:
    """Resolve a directory, an alias (exact match) or a hub id.

    Raises:
        ModelError: none of these, or a broken directory.

    """
    path = os.path.expanduser(text)  # noqa: PTH111  (pathlib raises for homes that are not there)
    if os.path.isdir(path) or text.startswith((".", "/", "~")):  # noqa: PTH112  (and for what is too long)
        return read_model_dir(Path(path), requested=text, name=name)
    model = model_by_alias(text) or model_by_hub_id(text)
    if model.architecture is None:
        config = cached_config(model.location)
        model = with_config(model, config) if config else model
    return model.model_copy(update={"name": name}) if name else model


def resolve_workload(text: str, requests: int | None) -> Workload:
    """Resolve a preset, a YAML file, or a short form: `512x256`, `512x256@c64`, `512x256@10/s`.

    Raises:
        UsageError: none of these.
        SpaceError: a file that is wrong.

    """
    short = SHORT.match(text)
    if short:
        workload = _short_workload(short)
    elif Path(text).suffix in (".yaml", ".yml"):
        workload = _workload_file(Path(text))
    else:
        workload = workload_preset(text)
    if requests and requests > MOST_REQUESTS:
        raise UsageError(f"--requests {requests} is more than {MOST_REQUESTS:,}", hint="fewer, and repeat the run")
    return workload.model_copy(update={"requests": requests}) if requests else workload


def _short_workload(short: re.Match[str]) -> Workload:
    try:
        arrivals = OpenLoop(rate_per_s=float(short[4])) if short[4] else ClosedLoop(concurrency=int(short[3] or 64))
        parallel = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else int(arrivals.rate_per_s * 10)
        return Workload(
            name=short[0],
            input_tokens=Fixed(tokens=int(short[1])),
            output_tokens=Fixed(tokens=int(short[2])),
            arrivals=arrivals,
            requests=max(64, 8 * parallel),
            warmup_requests=min(parallel, 64),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UsageError(
            f"--workload {short[0]}: {first['loc'][-1]}: {first['msg']}", hint="write for example 512x256@c64"
        ) from None


def _workload_file(path: Path) -> Workload:
    document = load_document(path)
    if not isinstance(document.data, dict):
        raise document.error((), "a workload is a mapping with input_tokens, output_tokens and arrivals")
    raw = {key: value for key, value in document.data.items() if key not in ("schema_version", "why")}
    try:
        return Workload.model_validate({"name": path.stem, **raw})
    except ValidationError as error:
        raise document.invalid(error) from None
