"""systemd/NAME.service: the installed engine as a unit, under a user of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tuner.domain.plan import Plan
from tuner.output.container import HUB_TOKEN, needs_hub_token, program_name, secret_names, start_period_s, with_model
from tuner.output.header import header_lines
from tuner.output.pod import name_of
from tuner.output.quoting import comment, mark
from tuner.output.scripts import check_environment

FOLDER = "systemd"
_MARK = re.compile("(\0[a-z]+\0)")
_PLAIN = re.compile(r"[A-Za-z0-9_@+=:,./-]+")
_VARIABLES = {"model": "MODEL_DIR", "host": "HOST", "port": "PORT", "here": "LLMTUNE_DIR", "program": "PROGRAM"}
_STOP_S = 60
_NOFILE = 65536


class SystemdEmitter:
    """A unit for the engine that is installed on the machine."""

    name = "systemd"
    summary = "a systemd unit for the installed engine"

    def refusal(self, plan: Plan) -> str | None:
        """Say that one unit is one host."""
        return f"its server takes {plan.launch.nodes.count} hosts" if plan.launch.nodes else None

    def files(self, plan: Plan) -> Mapping[str, str]:
        """Return the unit, or nothing."""
        if self.refusal(plan):
            return {}
        check_environment(plan.launch)
        name = name_of(plan)
        lines = [*map(comment, (*header_lines(plan), *_usage(plan, name))), "", "[Unit]", *_unit(plan),
                 "", "[Service]", *_service(plan, name), "", "[Install]", "WantedBy=multi-user.target"]
        return {f"{FOLDER}/{name}.service": "\n".join(lines) + "\n"}


def unit_word(text: str) -> str:
    """Quote as one word of `ExecStart=`; marks become variables, nothing else is expanded (systemd.service(5))."""
    if _PLAIN.fullmatch(text):
        return text
    parts = [f"${{{_VARIABLES[part[1:-1]]}}}" if _MARK.fullmatch(part) else _escape(part).replace("$", "$$")
             for part in _MARK.split(text) if part]
    return f'"{"".join(parts)}"'


def unit_assignment(name: str, value: str) -> str:
    """Return one `Environment=` line, in which `$` means nothing."""
    return f'Environment="{name}={_escape(value)}"'


def _escape(text: str) -> str:
    found = []
    for ch in text:
        if ch in '"\\':
            found.append("\\" + ch)
        elif ch == "%":
            found.append("%%")
        elif ch.isprintable():
            found.append(ch)
        else:
            found.append({"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(ch) or _hexadecimal(ch))
    return "".join(found)


def _hexadecimal(ch: str) -> str:
    return f"\\u{ord(ch):04x}" if ord(ch) < 0x10000 else f"\\U{ord(ch):08x}"


def _unit(plan: Plan) -> list[str]:
    window = 4 * start_period_s(plan.sizing.start_s)
    described = "".join(ch if ch.isprintable() else "?" for ch in plan.study.model.name).replace("%", "%%")
    return [
        f"Description={plan.config.engine} {plan.config.version} with {described.rstrip(chr(92))}".rstrip(),
        "Wants=network-online.target", "After=network-online.target",
        f"StartLimitIntervalSec={window}", "StartLimitBurst=3",
    ]


def _service(plan: Plan, name: str) -> list[str]:
    launch = plan.launch
    lines = ["Type=exec", "DynamicUser=yes", f"CacheDirectory=llmtune-{name}"]
    lines += [f"Environment=HOME=%C/llmtune-{name}", f"Environment=XDG_CACHE_HOME=%C/llmtune-{name}"]
    if not launch.model_is_local:
        lines.append(f"Environment=HF_HOME=%C/llmtune-{name}/huggingface")
    lines += [unit_assignment("PROGRAM", f"/usr/local/bin/{program_name(launch)}"),
              "Environment=HOST=127.0.0.1", f"Environment=PORT={launch.port}"]
    if _named_files(plan):
        lines.append(f"Environment=LLMTUNE_DIR=/etc/llmtune/{name}")
    lines += [unit_assignment(key, value) for key, value in sorted(launch.env.items())]
    lines.append(f"EnvironmentFile=-/etc/llmtune/{name}.env")
    if needs_hub_token(plan):
        lines += ["LoadCredential=hf_token:/etc/llmtune/hf_token", "Environment=HF_TOKEN_PATH=%d/hf_token"]
    lines += _command(plan)
    lines += [
        "Restart=on-failure", "RestartSec=10", "KillMode=mixed", f"TimeoutStopSec={_STOP_S}",
        f"TimeoutStartSec={start_period_s(plan.sizing.start_s)}", "LimitMEMLOCK=infinity", f"LimitNOFILE={_NOFILE}",
        "NoNewPrivileges=yes", "ProtectSystem=strict", "ProtectHome=read-only", "PrivateTmp=yes",
    ]
    return lines


def _command(plan: Plan) -> list[str]:
    """Return `ExecStart=`, a flag and its value on one line. `env` finds the program, whose path is a variable."""
    launch = plan.launch
    here = mark("here")
    arguments = with_model(launch, mark("model"), files=here) if launch.model_is_local else launch.in_folder(here)
    bound = tuple(part.format(host=mark("host"), port=mark("port")) for part in launch.bind)
    words = [unit_word(word) for word in (mark("program"), *launch.program[1:], *arguments, *bound)]
    lines: list[str] = ["ExecStart=/usr/bin/env"]
    for raw, word in zip((mark("program"), *launch.program[1:], *arguments, *bound), words, strict=True):
        if raw.startswith("-") or len(lines) == 1:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return [f"{line} \\" for line in lines[:-1]] + [lines[-1]]


def _named_files(plan: Plan) -> list[str]:
    return [file.name for file in plan.launch.files if file.mark in plan.launch.arguments]


def _usage(plan: Plan, name: str) -> tuple[str, ...]:
    launch = plan.launch
    lines = ["", f"Install: cp {name}.service /etc/systemd/system/, then systemctl enable --now {name}"]
    variables = ["PROGRAM", "HOST", "PORT", *(["MODEL_DIR (required)"] if launch.model_is_local else [])]
    lines.append(f"Variables, one NAME=VALUE a line, in /etc/llmtune/{name}.env: {', '.join(variables)}.")
    if _named_files(plan):
        lines.append(f"Copy {', '.join(_named_files(plan))} to /etc/llmtune/{name}/.")
    if needs_hub_token(plan):
        lines.append("Put the Hugging Face token into /etc/llmtune/hf_token, mode 600, owned by root.")
    secrets = [item for item in secret_names(plan) if not (item == HUB_TOKEN and needs_hub_token(plan))]
    if secrets:
        lines.append(f"Secrets, mode 600, in the same file when they are needed: {', '.join(secrets)}.")
    if plan.sizing.replicas > 1:
        lines.append(f"The plan is for {plan.sizing.replicas} servers on this machine; this unit is one. Copy it "
                     "under other names, each with PORT and CUDA_VISIBLE_DEVICES of its own in its .env.")
    lines.append(f"Changes belong in a drop-in: systemctl edit {name}.")
    return tuple(lines)
