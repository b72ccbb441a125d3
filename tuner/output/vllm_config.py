"""vllm/: config.yaml for `vllm serve --config`, env.sh, and start.sh that starts the engine with both.

What vLLM's reader makes of a value decides how it is written (vllm/utils/argparse_utils.py): `false` is dropped, so a
switch that is off is `no-<flag>: true`; null becomes the word None, so there is none; a mapping becomes JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuner.domain.plan import Plan
from tuner.output.container import program_name, secret_names
from tuner.output.flags import json_object, take_apart
from tuner.output.header import header_lines
from tuner.output.quoting import comment, dump_yaml, mark, shell
from tuner.output.render import render
from tuner.output.scripts import argument_lines, check_environment, node_words, program_variable
from tuner.output.words import directory_name

FOLDER = "vllm"
_INTEGER = re.compile(r"0|-?[1-9]\d{0,15}")
_DECIMAL = re.compile(r"-?\d{1,8}\.\d{1,8}")


class VllmConfigEmitter:
    """The pair of files that vLLM's own recipes use, and a script that starts it."""

    name = "vllm-config"
    summary = "vLLM's config.yaml with its environment and a start script"

    def refusal(self, plan: Plan) -> str | None:
        """Say that the engine is another."""
        if plan.config.engine != "vllm":
            return f"its engine is {plan.config.engine}"
        return None if take_apart(plan.launch.arguments).named else "it sets no flag"

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `vllm/config.yaml`, `vllm/env.sh` and `vllm/start.sh`, or nothing."""
        if self.refusal(plan):
            return {}
        launch = plan.launch
        check_environment(launch)
        split = take_apart(launch.arguments)
        kept = {name: words for name, words in split.named.items() if not any(word.startswith("-") for word in words)
                or all(_INTEGER.fullmatch(word) for word in words)}
        left = [word for name, words in split.named.items() if name not in kept
                for word in (f"--{name}={words[0]}", *words[1:])]
        header = header_lines(plan)
        rest = [mark("model") if launch.model_is_local and word == launch.model else word for word in split.rest]
        if split.rest == (launch.model,) and not launch.model_is_local:
            rest, kept = [], {"model": split.rest, **kept}
        return {
            f"{FOLDER}/config.yaml": _config(kept, header),
            f"{FOLDER}/env.sh": _environment(plan, header),
            f"{FOLDER}/start.sh": _script(plan, (*rest, "--config", mark("here") + "/config.yaml", *left), header),
        }


def config_document(named: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    """Return flags and values as vLLM's config file holds them."""
    return {name: _value(words) for name, words in named.items()}


def _value(words: tuple[str, ...]) -> object:
    if not words:
        return True
    if len(words) > 1:
        return list(words)
    word = words[0]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _DECIMAL.fullmatch(word) and str(float(word)) == word:
        return float(word)
    found = json_object(word)
    return word if found is None else found


def _config(named: Mapping[str, tuple[str, ...]], header: tuple[str, ...]) -> str:
    command = "vllm serve" if "model" in named else "vllm serve MODEL"
    usage = ("", f"Start: ./start.sh in this directory, or: {command} --config config.yaml",
             "A switch that is off is `no-<flag>: true`: vLLM drops `false`. The command line wins over this file.")
    head = "\n".join(map(comment, (*header, *usage)))
    return f"{head}\n{dump_yaml(config_document(named))}"


def _environment(plan: Plan, header: tuple[str, ...]) -> str:
    lines = ["#!/usr/bin/env bash", *map(comment, header), "#", "# Read by start.sh; secrets are not in it.",
             "set -euo pipefail"]
    lines += [f"export {name}={shell(value)}" for name, value in sorted(plan.launch.env.items())]
    return "\n".join(lines) + "\n"


def _script(plan: Plan, words: tuple[str, ...], header: tuple[str, ...]) -> str:
    launch = plan.launch
    bound = tuple(part.format(host=mark("host"), port=mark("port")) for part in launch.bind)
    return render(
        "serve.sh.j2",
        header=header,
        script="start.sh",
        program_variable=program_variable(launch),
        program=shell(program_name(launch)),
        program_text=program_name(launch),
        subcommand=[shell(word) for word in launch.program[1:]],
        local=launch.model_is_local,
        nodes=launch.nodes.count if launch.nodes else 0,
        launcher=[],
        ranks=launch.devices,
        replicas=plan.sizing.replicas,
        devices=launch.devices,
        follower=[shell(word) for word in launch.nodes.follower] if launch.nodes else [],
        needs_files=True,
        model_name=directory_name(launch.model),
        port=launch.port,
        exports=[],
        source="env.sh",
        secrets=secret_names(plan),
        lines=argument_lines((*words, *bound, *node_words(launch))),
    )
