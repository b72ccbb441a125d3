"""What a container needs to serve a plan, worked out once for Compose, `docker run` and whatever comes later.

Built from the launch spec and the measured sizing alone; nothing here knows a flag of an engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import PurePath

from tuner.domain.engine import LaunchSpec
from tuner.domain.plan import Plan
from tuner.output.quoting import slug
from tuner.output.words import directory_name

HUB_TOKEN = "HF_TOKEN"  # noqa: S105  (the variable's name)
TOKEN_FILE = "/run/secrets/hf_token"  # noqa: S105  (a path)
FILES = "/etc/llmtune"
"""Where the files that the program reads are mounted."""
_START_STEPS_S = (60, 90, 120, 180, 240, 300, 420, 600)
_START_STEP_S = 300
_STOP_GRACE_S = 45


@dataclass(frozen=True)
class Container:
    """One server in a container. Paths are the container's; nothing is quoted yet."""

    name: str
    image: str
    entrypoint: tuple[str, ...]
    """Empty: the image's own entry point runs the program."""
    command: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    """Files beside the emitted ones, each with where it is mounted read-only."""
    env: dict[str, str]
    pass_env: tuple[str, ...]
    """Secret variables passed through by name, when they are set."""
    hub_token: bool
    """Whether the server cannot start without a Hugging Face token."""
    model_target: str | None
    """Where MODEL_DIR is mounted read-only; None when the model comes from the hub."""
    hub_cache: str | None
    engine_cache: tuple[str, str]
    """Volume and path of the engine's compile cache."""
    port: int
    health_url: str
    start_period_s: int
    stop_grace_s: int
    devices: int
    shared_memory: bool
    ulimits: dict[str, int]
    replicas: int = 1
    """Such containers that fill the machine, each with `devices` of its own."""


def container(plan: Plan) -> Container | None:
    """Return the container of a plan on one host, or None when there is none."""
    return pod_container(plan) if container_refusal(plan) is None else None


def pod_container(plan: Plan) -> Container | None:
    """Return the container of a plan, of each host where it takes several; None when the plan names no image."""
    launch = plan.launch
    if launch.image is None:
        return None
    model_target = f"/models/{slug(directory_name(launch.model))}" if launch.model_is_local else None
    entrypoint, rest = _entry(launch)
    arguments = with_model(launch, model_target, files=FILES) if model_target else launch.in_folder(FILES)
    return Container(
        name=slug(plan.study.model.name),
        image=launch.image,
        entrypoint=entrypoint,
        command=(*rest, *arguments, *bind(launch, "0.0.0.0", str(launch.port))),  # noqa: S104  (published on loopback)
        files=tuple((file.name, f"{FILES}/{file.name}") for file in launch.files if file.mark in launch.arguments),
        env={name: model_target if model_target and value == launch.model else value
             for name, value in sorted(launch.env.items())},
        pass_env=tuple(name for name in secret_names(plan) if not (name == HUB_TOKEN and needs_hub_token(plan))),
        hub_token=needs_hub_token(plan),
        model_target=model_target,
        hub_cache=None if launch.model_is_local else "/root/.cache/huggingface",
        engine_cache=(f"llmtune-{slug(plan.config.engine)}-cache", f"/root/.cache/{slug(plan.config.engine)}"),
        port=launch.port,
        health_url=f"http://localhost:{launch.port}{launch.health_path}",
        start_period_s=start_period_s(plan.sizing.start_s),
        stop_grace_s=_STOP_GRACE_S,
        devices=launch.nodes.devices if launch.nodes else launch.devices,
        shared_memory=launch.needs_shared_memory,
        ulimits=dict(sorted(launch.ulimits.items())),
        replicas=plan.sizing.replicas,
    )


def container_refusal(plan: Plan) -> str | None:
    """Say why one container on one host cannot serve the plan; None when it can."""
    if plan.launch.image is None:
        return "it names no container image; tune again with --image NAME:VERSION"
    if plan.launch.nodes is not None:
        return f"its server takes {plan.launch.nodes.count} hosts"
    return None


def needs_hub_token(plan: Plan) -> bool:
    """Whether the server fetches weights that nobody gets without a Hugging Face token."""
    return not plan.launch.model_is_local and plan.study.model.gated


def secret_names(plan: Plan) -> tuple[str, ...]:
    """Return the variables that carry secrets. A server of local weights is never handed a token."""
    names = dict.fromkeys(plan.launch.secret_env)
    if needs_hub_token(plan):
        names = {HUB_TOKEN: None, **names}
    if plan.launch.model_is_local:
        names.pop(HUB_TOKEN, None)
    return tuple(names)


def start_period_s(start_s: float) -> int:
    """Return how long a start may take before a failed health check counts: twice the measured start, rounded up.

    Never under 60 s; steps are round numbers, so that a slightly slower measurement does not change the file.
    """
    wanted = 2 * start_s
    for step in _START_STEPS_S:
        if wanted <= step:
            return step
    return math.ceil(wanted / _START_STEP_S) * _START_STEP_S


def with_model(launch: LaunchSpec, path: str, *, files: str = "") -> tuple[str, ...]:
    """Return the arguments with the model's directory replaced by `path`, and files looked for in the folder `files`.

    When clients call the model by the very text of its path, only the first such argument is the path.
    """
    replaced: list[str] = []
    once = launch.served_name == launch.model
    done = False
    for argument in launch.in_folder(files):
        flag, equals, value = argument.partition("=")
        if done and once:
            replaced.append(argument)
        elif argument == launch.model:
            replaced.append(path)
            done = True
        elif equals and flag.startswith("-") and value == launch.model:
            replaced.append(f"{flag}={path}")
            done = True
        else:
            replaced.append(argument)
    return tuple(replaced)


def bind(launch: LaunchSpec, host: str, port: str) -> tuple[str, ...]:
    """Return the arguments that say where to listen."""
    return tuple(part.format(host=host, port=port) for part in launch.bind)


def program_name(launch: LaunchSpec) -> str:
    """Return the program without the directory it had on the machine that tuned."""
    return PurePath(launch.program[0]).name


def _entry(launch: LaunchSpec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the program into an entry point to set and words that come before the arguments."""
    program = (program_name(launch), *launch.program[1:])
    if launch.image_runs_commands:
        return (), program
    known = launch.image_program
    if known and program[: len(known)] == known:
        return (), program[len(known):]
    return program[:1], program[1:]
