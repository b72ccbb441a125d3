"""What SkyPilot and dstack share: the server as bash in a container, and hardware by the names that clouds use."""

from __future__ import annotations

import math

from tuner.domain.plan import Plan
from tuner.facts.gpus import facts_of
from tuner.output.container import FILES, pod_container, program_name, with_model
from tuner.output.launch_files import launch_files
from tuner.output.pod import GIB, weight_bytes
from tuner.output.quoting import Block, shell
from tuner.output.scripts import argument_lines

_DISK_SPARE = 60 * GIB
_EOF = "LLMTUNE_END_OF_FILE"


def refusal(plan: Plan) -> str | None:
    """Say what a cloud needs and the plan lacks; None when it can be written."""
    if plan.launch.image is None:
        return "it names no container image; tune again with --image NAME:VERSION"
    if plan.launch.nodes is not None and plan.launch.nodes.launcher:
        return f"MPI starts its server on {plan.launch.nodes.count} hosts; use slurm"
    gpus = plan.study.hardware.gpus
    if plan.launch.devices and (not gpus or facts_of(gpus[0].name) is None):
        return f"no cloud's name is known for {gpus[0].name if gpus else 'its GPUs'}"
    return None


def gpu_name(plan: Plan) -> str | None:
    """Return the GPU as clouds call it, e.g. H100, A100-80GB; None without GPUs."""
    if not plan.launch.devices:
        return None
    found = facts_of(plan.study.hardware.gpus[0].name)
    if found is None:
        return None
    family = found.name.split("-")[0].replace(" ", "")
    return f"{family}-80GB" if family == "A100" and found.nominal_gb > 60 else family


def gpu_gb(plan: Plan) -> int | None:
    """Return the GPU's memory by its label, in GB."""
    found = facts_of(plan.study.hardware.gpus[0].name) if plan.launch.devices else None
    return None if found is None else round(found.nominal_gb)


def disk_gb(plan: Plan) -> int:
    """Return the disk for image, weights twice over and caches, in steps of 50 GB."""
    return math.ceil((2 * (weight_bytes(plan) or 100 * GIB) + _DISK_SPARE) / 50e9) * 50


def commands(plan: Plan, nodes: tuple[str, str] | None = None) -> Block:
    """Return bash that writes the program's files and starts it; `nodes` are expansions for rank and leader."""
    launch = plan.launch
    box = pod_container(plan)
    if box is None:
        raise TypeError("a plan without an image has no commands")
    arguments = with_model(launch, box.model_target, files=FILES) if box.model_target else launch.in_folder(FILES)
    bound = tuple(part.format(host="0.0.0.0", port=launch.port) for part in launch.bind)  # noqa: S104
    lines = ["set -euo pipefail"]
    lines += _files(plan)
    lines += [f"export {name}={shell(value)}" for name, value in box.env.items()]
    lines += ["args=("] + [f"  {line}" for line in argument_lines((*arguments, *bound))]
    if launch.nodes and nodes:
        rank, leader = nodes
        lines += [f'  "{word.format(count=launch.nodes.count, rank=rank, leader=leader)}"'
                  for word in launch.nodes.arguments]
    lines.append(")")
    if launch.nodes and nodes and launch.nodes.follower:
        words = " ".join(map(shell, launch.nodes.follower))
        lines += [f'if [[ "{nodes[0]}" != 0 ]]; then', f"  args+=({words})", "fi"]
    start = " ".join(shell(word) for word in (program_name(launch), *launch.program[1:]))
    return Block("\n".join([*lines, f'exec {start} "${{args[@]}}"']) + "\n")


def _files(plan: Plan) -> list[str]:
    """Return bash that writes the files which the arguments name. Their text never holds the end mark."""
    texts = launch_files(plan)
    named = [file.name for file in plan.launch.files if file.mark in plan.launch.arguments]
    lines: list[str] = [f"mkdir -p {FILES}"] if named else []
    for name in named:
        lines += [f"cat >{FILES}/{name} <<'{_EOF}'", texts[name].rstrip("\n"), _EOF]
    return lines
