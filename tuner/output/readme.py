"""deploy/README.md, .env.example and .gitignore: how to start what was emitted, and with which variables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tuner.domain.engine import LaunchFile
from tuner.domain.plan import Plan
from tuner.output import numbers
from tuner.output.base import Emitter
from tuner.output.container import (
    HUB_TOKEN,
    container_refusal,
    needs_hub_token,
    program_name,
    secret_names,
    start_period_s,
)
from tuner.output.header import header_lines, provenance
from tuner.output.quoting import comment, shell
from tuner.output.render import render
from tuner.output.scripts import program_variable
from tuner.output.words import VERDICTS, doubts, public

_FLOATING = re.compile(r"(?:latest|nightly|main|dev|stable)(?:[-_.].*)?")
_NO_IMAGE = (
    "the plan names no container image. Tune again with `--image NAME:VERSION`, an image that runs exactly the engine "
    "version above, and `llmtune emit` writes both."
)


class ReadmeEmitter:
    """What a person reads first, and the variables they may set.

    `targets` are the other formats of the bundle, each with the files that it gave.
    """

    name = "readme"
    summary = "README.md, .env.example and .gitignore"

    def __init__(self, targets: Sequence[tuple[Emitter, tuple[str, ...]]] = ()) -> None:
        self._targets = tuple(targets)

    def refusal(self, plan: Plan) -> str | None:  # noqa: ARG002
        """Say nothing: every plan has a README."""
        return None

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `README.md`, `.env.example` and `.gitignore`."""
        variables = _variables(plan)
        return {
            "README.md": _readme(plan, variables, self._targets),
            ".env.example": render("env.example.j2", header=header_lines(plan)[:2], variables=variables),
            ".gitignore": "\n".join(map(comment, header_lines(plan)[:1])) + "\n.env\n",
        }


def is_pinned(image: str) -> bool:
    """Whether an image names a digest or a tag that does not float."""
    if "@sha256:" in image:
        return True
    tag = image.rpartition("/")[2].partition(":")[2]
    return bool(tag) and not _FLOATING.fullmatch(tag)


def _readme(
    plan: Plan, variables: list[tuple[str, str, str]], targets: Sequence[tuple[Emitter, tuple[str, ...]]],
) -> str:
    launch = plan.launch
    names = {emitter.name for emitter, written in targets if written}
    required = bool(launch.model_is_local or needs_hub_token(plan))
    model_dir = "MODEL_DIR=/path/to/the/model " if launch.model_is_local else ""
    status = [f"Performance numbers of this plan are {numbers.label(plan)}."]
    if not plan.complete:
        status.append("The study behind it is not complete.")
    return render(
        "deploy-README.md.j2",
        model_name=plan.study.model.name,
        verdict_words=VERDICTS[plan.verdict.kind],
        verdict=public(plan, plan.verdict.text),
        doubts=doubts(plan),
        downloads=not launch.model_is_local,
        replicas=numbers.replica_words(plan) if plan.sizing.replicas > 1 else "",
        status=" ".join(status),
        files=_files(plan, targets),
        image=launch.image,
        compose="compose" in names,
        docker_run="docker-run" in names,
        serve="serve" in names,
        hosts=launch.nodes.count if launch.nodes and not launch.nodes.launcher else 0,
        others=sorted(names - {"compose", "docker-run", "serve"}),
        pinned=launch.image is None or is_pinned(launch.image),
        no_image=_NO_IMAGE,
        required=required,
        engine=f"{plan.config.engine} {plan.config.version}",
        compose_start=f"{'cp -n .env.example .env' + chr(10) if required else ''}docker compose up --detach --wait",
        docker_start=_each(plan, f"{model_dir}./docker-run.sh"),
        serve_start=_each(plan, f"{_before(plan)}{model_dir}./serve.sh"),
        start_label=numbers.start_label(plan),
        start_words=numbers.start_words(plan),
        start_period_s=start_period_s(plan.sizing.start_s),
        ask=_ask(plan),
        variables=variables,
        provenance="\n".join(f"{label:<10} {text}" for label, text in provenance(plan)),
    )


def _before(plan: Plan) -> str:
    """Return what starts serve.sh on several hosts."""
    nodes = plan.launch.nodes
    if nodes is None:
        return ""
    return f"mpirun -np {plan.launch.devices} --hostfile HOSTS " if nodes.launcher else "NODE_RANK=0 LEADER=ADDRESS "


def _each(plan: Plan, command: str) -> str:
    """Return the command, once for each replica."""
    replicas = plan.sizing.replicas
    if replicas == 1:
        return command
    return f"for replica in {{0..{replicas - 1}}}; do REPLICA=$replica {command} & done; wait"


def _files(plan: Plan, targets: Sequence[tuple[Emitter, tuple[str, ...]]]) -> list[tuple[str, str]]:
    files = [(_shown(written), emitter.summary) for emitter, written in targets if written]
    files += [(file.name, _file_words(plan, file)) for file in plan.launch.files]
    return [*files, (".env.example", "the variables you may set; copy it to `.env`")]


def _shown(written: tuple[str, ...]) -> str:
    """Name the files of a format, or their folder when they are many."""
    folders = {name.partition("/")[0] for name in written}
    return f"{folders.pop()}/" if len(written) > 2 and len(folders) == 1 else ", ".join(written)


def _file_words(plan: Plan, file: LaunchFile) -> str:
    if file.mark in plan.launch.arguments:
        return "the settings, which the files above pass to the engine"
    return "run by hand; its first lines say when"


def _variables(plan: Plan) -> list[tuple[str, str, str]]:
    """Return name, what it is for, and what an empty value means."""
    launch = plan.launch
    rows: list[tuple[str, str, str]] = []
    in_container = container_refusal(plan) is None
    everything = "compose.yaml, docker-run.sh, serve.sh" if in_container else "serve.sh"
    containers = "compose.yaml, docker-run.sh"
    if launch.model_is_local:
        rows.append(("MODEL_DIR", everything, "refused; it is the directory of the model"))
    gated = "refused by the hub: the model is gated"
    meaning = {HUB_TOKEN: gated if needs_hub_token(plan) else "anonymous download"}
    rows += [(name, everything, meaning.get(name, "not set")) for name in secret_names(plan)]
    if in_container:
        rows += [
            ("LLMTUNE_BIND", containers, "127.0.0.1, this machine only"),
            ("LLMTUNE_PORT", containers, str(launch.port)),
        ]
        rows += [(f"LLMTUNE_PORT_{index}", "compose.yaml", str(launch.port + index))
                 for index in range(1, plan.sizing.replicas)]
        if not launch.model_is_local:
            rows.append(("LLMTUNE_HF_CACHE", containers, "a volume; or give the absolute path of a Hugging Face cache"))
    rows += [
        ("HOST", "serve.sh", "127.0.0.1, this machine only"),
        ("PORT", "serve.sh", str(launch.port)),
        *([("REPLICA", "docker-run.sh, serve.sh", "the first server")] if plan.sizing.replicas > 1 else []),
        (program_variable(launch), "serve.sh", f"{program_name(launch)} from PATH"),
    ]
    return rows


def _ask(plan: Plan) -> str:
    body = json.dumps({"max_tokens": 16, "model": plan.launch.served_name, "prompt": "The capital of France is"},
                      sort_keys=True)
    url = f"http://127.0.0.1:{plan.launch.port}"
    return (f"curl -f -sS {url}{plan.launch.health_path}\n"
            f"curl -f -sS {url}/v1/completions -H 'Content-Type: application/json' -d {shell(body)}")


