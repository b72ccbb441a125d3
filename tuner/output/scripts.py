"""serve.sh and docker-run.sh: the server as one bash command, every word quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tuner.domain.engine import LaunchSpec
from tuner.domain.plan import Plan
from tuner.errors import OutputError
from tuner.output.container import (
    HUB_TOKEN,
    Container,
    bind,
    container,
    container_refusal,
    program_name,
    secret_names,
    with_model,
)
from tuner.output.header import header_lines
from tuner.output.quoting import mark, shell, shell_word
from tuner.output.render import render
from tuner.output.words import directory_name

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAKEN = frozenset({"PATH", "HOME", "HOST", "PORT", "MODEL_DIR", "BASH", "ENV", "IFS", "SHELL", "USER", "DOCKER",
                    "NODE_RANK", "LEADER"})
_VARIABLES = {name: name for name in ("model", "host", "port", "here", "rank", "leader")}


class ServeScriptEmitter:
    """serve.sh: starts the engine that is installed on the machine."""

    name = "serve"
    summary = "starts the installed engine with the tuned settings"

    def refusal(self, plan: Plan) -> str | None:  # noqa: ARG002
        """Say nothing: every plan can be written so."""
        return None

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `serve.sh`."""
        launch = plan.launch
        check_environment(launch)
        here = mark("here")
        local = launch.model_is_local
        arguments = with_model(launch, mark("model"), files=here) if local else launch.in_folder(here)
        words = (*arguments, *bind(launch, mark("host"), mark("port")), *node_words(launch))
        text = render(
            "serve.sh.j2",
            header=header_lines(plan),
            script="serve.sh",
            source="",
            program_variable=program_variable(launch),
            program=shell(program_name(launch)),
            program_text=program_name(launch),
            subcommand=[shell(word) for word in launch.program[1:]],
            local=local,
            nodes=launch.nodes.count if launch.nodes else 0,
            launcher=[shell(word) for word in launch.nodes.launcher] if launch.nodes else [],
            ranks=launch.devices,
            replicas=plan.sizing.replicas,
            devices=launch.devices,
            follower=[shell(word) for word in launch.nodes.follower] if launch.nodes else [],
            needs_files=here in "".join(arguments),
            model_name=directory_name(launch.model),
            port=launch.port,
            exports=[(name, shell(value)) for name, value in sorted(launch.env.items())],
            secrets=secret_names(plan),
            lines=argument_lines(words),
        )
        return {"serve.sh": text}


class DockerRunEmitter:
    """docker-run.sh: the same server as one `docker run`. Nothing is emitted for a plan without an image."""

    name = "docker-run"
    summary = "the same server as one `docker run`"

    def refusal(self, plan: Plan) -> str | None:
        """Say what a container needs and the plan lacks."""
        return container_refusal(plan)

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return `docker-run.sh`, or nothing."""
        box = container(plan)
        if box is None:
            return {}
        check_environment(plan.launch)
        text = render(
            "docker-run.sh.j2",
            header=header_lines(plan),
            box=box,
            model_name=directory_name(plan.launch.model),
            options=_options(box),
            secrets=secret_names(plan),
            lines=argument_lines((*box.entrypoint[1:], *box.command)),
        )
        return {"docker-run.sh": text}


def program_variable(launch: LaunchSpec) -> str:
    """Return the name of the variable that says where the program is: `VLLM` for `vllm`."""
    name = re.sub(r"[^A-Z0-9]+", "_", program_name(launch).upper()).strip("_") or "PROGRAM"
    if name in _TAKEN or name in launch.env or not _IDENTIFIER.fullmatch(name):
        name = f"LLMTUNE_{name}"
    return name


def node_words(launch: LaunchSpec) -> tuple[str, ...]:
    """Return the arguments that tell a host which of several it is, with marks for its rank and the leader."""
    if launch.nodes is None:
        return ()
    return tuple(word.format(count=launch.nodes.count, rank=mark("rank"), leader=mark("leader"))
                 for word in launch.nodes.arguments)


def argument_lines(words: Sequence[str]) -> list[str]:
    """Return quoted words, a flag and the value after it on one line."""
    lines: list[str] = []
    open_flag = False
    for word in words:
        quoted = shell_word(word, _VARIABLES)
        is_flag = word.startswith("-")
        if open_flag and not is_flag:
            lines[-1] += f" {quoted}"
            open_flag = False
        else:
            lines.append(quoted)
            open_flag = is_flag and "=" not in word
    return lines


def _options(box: Container) -> list[str]:
    """Return the options of `docker run`, quoted, one line each."""
    several = box.replicas > 1
    name = f'"{box.name}-${{replica}}"' if several else shell(box.name)
    options = ["--rm", f"--name {name}", f"--stop-timeout {box.stop_grace_s}"]
    port = "${port}" if several else f"${{LLMTUNE_PORT:-{box.port}}}"
    options.append(f'--publish "${{LLMTUNE_BIND:-127.0.0.1}}:{port}:{box.port}"')
    if box.devices:
        # docker reads the value as CSV: only a quoted field keeps its commas
        options.append(r'--gpus "\"device=${devices}\""' if several else f"--gpus {box.devices}")
    if box.shared_memory:
        options.append("--ipc host")
    options += [f"--ulimit {shell(f'{name}={limit}')}" for name, limit in box.ulimits.items()]
    if box.model_target:
        # --mount is read as CSV: a quoted field keeps commas and quotes of the directory's name
        options.append(f'--mount "type=bind,\\"source=${{model//\\"/\\"\\"}}\\",target={box.model_target},readonly"')
    for name, target in box.files:
        options.append(f'--mount "type=bind,\\"source=${{here//\\"/\\"\\"}}/{name}\\",target={target},readonly"')
    if box.hub_cache:
        options.append(f'--volume "${{LLMTUNE_HF_CACHE:-llmtune-hf-cache}}:{box.hub_cache}"')
    volume, path = box.engine_cache
    options.append(f'--volume "{volume}-${{replica}}:{path}"' if several else f"--volume {shell(f'{volume}:{path}')}")
    options += [f"--env {shell(f'{name}={value}')}" for name, value in box.env.items()]
    secrets = dict.fromkeys((HUB_TOKEN, *box.pass_env) if box.hub_token else box.pass_env)
    options += [f"--env {name}" for name in secrets]
    options += [
        f"--health-cmd {shell(f'curl -f -sS {shell(box.health_url)}')}",
        "--health-interval 10s", "--health-timeout 10s", "--health-retries 6",
        f"--health-start-period {box.start_period_s}s",
    ]
    if box.entrypoint:
        options.append(f"--entrypoint {shell(box.entrypoint[0])}")
    return options


def check_environment(launch: LaunchSpec) -> None:
    """Refuse variables that a shell cannot set.

    Raises:
        OutputError: with the name.

    """
    for name in (*launch.env, *launch.secret_env):
        if not _IDENTIFIER.fullmatch(name):
            raise OutputError(f"a shell cannot set an environment variable named {name!r}",
                              hint="names are letters, digits and _, and do not start with a digit")
