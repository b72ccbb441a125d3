"""Lookups in the tables of models, images and workload presets."""

from __future__ import annotations

import difflib
import re

from tuner.domain.model import ModelSpec
from tuner.domain.workload import Workload
from tuner.errors import ModelError, UsageError
from tuner.facts.flags import parse_version
from tuner.facts.read import data

_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")


def model_by_alias(alias: str) -> ModelSpec | None:
    """Return the model of a short name such as `llama-3-70b`; exact match only."""
    entry = data("models.json")["models"].get(alias)
    if entry is None:
        return None
    facts = {key: value for key, value in entry.items() if key not in ("hub", "also")}
    return ModelSpec(requested=alias, name=alias, location=entry["hub"], source="alias", **facts)


def model_by_hub_id(hub_id: str) -> ModelSpec:
    """Return a hub model, with its architecture where the table knows it.

    Raises:
        ModelError: not a hub id.

    """
    if not _HUB_ID.match(hub_id):
        raise ModelError(
            f"{hub_id!r} is neither a known alias, a directory nor a hub id (owner/name)",
            hint=_near_aliases(hub_id),
        )
    name = hub_id.split("/")[1].lower()
    for alias, entry in data("models.json")["models"].items():
        if hub_id.lower() in (known.lower() for known in (entry["hub"], *entry.get("also", ()))):
            known = model_by_alias(alias)
            if known is not None:
                return known.model_copy(
                    update={"requested": hub_id, "name": name, "location": hub_id, "source": "hub"}
                )
    return ModelSpec(requested=hub_id, name=name, location=hub_id, source="hub")


def _near_aliases(text: str) -> str:
    aliases = list(data("models.json")["models"])
    near = difflib.get_close_matches(text.lower()[:100], aliases, n=5, cutoff=0.0)
    return f"the nearest are {', '.join(near)}; `llmtune models` lists all"


def image_of(engine: str, version: str, build: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (image with the exact version, entry point) of an engine's build, or None when none is known."""
    entry = data("images.yaml")["images"].get(engine, {}).get(build)
    if entry is None:
        return None
    return entry["image"].format(version=parse_version(version)), tuple(entry["entrypoint"])


def workload_preset(name: str) -> Workload:
    """Return a workload preset by name.

    Raises:
        UsageError: no such preset; lists those there are.

    """
    table = data("workloads.yaml")["workloads"]
    entry = table.get(name)
    if entry is None:
        raise UsageError(
            f"unknown workload {name!r}",
            hint=f"a preset ({', '.join(table)}), a short form such as 512x256@c64, or a YAML file",
        )
    return Workload(name=name, **{key: value for key, value in entry.items() if key != "why"})


def architecture_problem(engine: str, version: str, architecture: str) -> tuple[str, bool] | None:
    """Say what speaks against an architecture: (reason, certain), or None.

    Known for the release that the table was read from. Uncertain means that the engine may still serve it through its
    generic back end.
    """
    table = data(f"{engine}/architectures.json")
    removed = table["removed_after"].get(architecture)
    if removed is not None and parse_version(version) > parse_version(removed):
        return f"{engine} {removed} was the last release that serves {architecture}", True
    if removed is not None or architecture in table["generate"]:
        return None
    generates = architecture.endswith(("ForCausalLM", "ForConditionalGeneration"))
    reason = f"{architecture} is not among the architectures of {engine} {table['version']} that generate text"
    return reason, not generates
