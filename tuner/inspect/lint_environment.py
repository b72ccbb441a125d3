"""Rules about environment variables: what the engine does not read, what it reads as something else, and secrets."""

from __future__ import annotations

import re
from typing import Any

from packaging.version import Version

from tuner.domain.engine import ENV_PREFIX
from tuner.errors import FlagError
from tuner.facts.flags import flag_table, parse_version
from tuner.inspect.issue import Report, Word
from tuner.inspect.view import View, facts

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|SECRET_KEY|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|CREDENTIALS?|HUB_TOKEN)$", re.IGNORECASE
)
SECRET_VALUE = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|nvapi-[\w-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16})\b"
)
_KEY_FLAG = re.compile(r"(--(?:api-key|hf-token)['\"]?[ =,]+['\"]?)[^\s'\",\]]+")
_PLACEHOLDER = re.compile(r"^(?:<.*>|\[.*\]|your[-_ ].*|.*your[-_].*|x{3,}.*|\.{3}|todo|replace.*)$", re.IGNORECASE)
_NONE = ("", "none", "null", "empty", "dummy", "no-key", "sk-no-key-required", "not-needed", "na", "n/a", "token")
_DEFAULTS = ("changeme", "change-me", "change_me", "password", "secret", "admin", "test", "123456")


def environment(view: View, report: Report) -> None:
    """Say of each variable of a server what the engine makes of it."""
    for name, word in view.server.env.items():
        variable(name, word, report)
        if view.server.engine == "vllm":
            _engine_variable(view, name, word, report)
    _key_in_arguments(view, report)


def variable(name: str, word: Word, report: Report) -> None:
    """Say what is wrong with a variable in whatever environment it stands."""
    entry = facts()["environment"].get(name)
    if entry is not None:
        report.say(entry["severity"], word.line, "env-unread", (f"{name} {entry['says']}", entry["fix"]))
    secret(name, word, report)


def secret(name: str, word: Word, report: Report) -> None:
    """Say that a secret stands in the file, or that its default is known to everybody."""
    value = word.text.strip().strip("\"'")
    if SECRET_VALUE.search(value):
        report.error(
            word.line,
            "secret-in-clear",
            f"{name} holds a token in clear; whoever sees this file can use it",
            "revoke it, and pass it from a secret or an env file that is not committed",
        )
    elif not _SECRET_NAME.search(name) or "tokenizer" in name.lower():
        return
    elif value.lower() in _DEFAULTS:
        report.warning(
            word.line,
            "secret-default",
            f"{name} is {value!r} unless somebody sets it: a key that everybody knows",
            "make it required: ${NAME:?set NAME} in Compose, a Secret in Kubernetes",
        )
    elif word.open or value.lower() in _NONE or "$" in value:
        return
    elif _PLACEHOLDER.match(value):
        report.warning(
            word.line,
            "secret-place",
            f"{name} waits here for a secret in clear",
            "take it from a secret or from the environment instead",
        )
    else:
        report.error(
            word.line,
            "secret-in-clear",
            f"{name} is written in clear",
            "pass it from a secret or an env file that is not committed",
        )


def _key_in_arguments(view: View, report: Report) -> None:
    for flag in ("api-key", "hf-token"):
        word = view.arguments.words.get(flag)
        if word is not None and not word.open:
            secret("API_KEY", word, report)


def _engine_variable(view: View, name: str, word: Word, report: Report) -> None:
    if name == "VLLM_PORT":
        report.warning(
            word.line,
            "env-port",
            "VLLM_PORT is the first of vLLM's internal ports, not the port of the API",
            "use --port for the API, and another name for your own variable",
        )
    elif name == "CUDA_VISIBLE_DEVICES" and word.text.startswith("MIG-"):
        message = (
            f"vllm {view.version} reads CUDA_VISIBLE_DEVICES as numbers and fails on {word.text[:12]}...: "
            '"invalid literal for int()" or "architectures failed to be inspected" (vllm issue 41848)'
        )
        fix = "run in a container that gets only this slice, as device 0; plan with the slice's memory"
        known = view.is_stated and not view.at_least("0.20.2")
        report.say("error" if known else "warning", word.line, "env-mig", (message, fix))
    else:
        engine_variable(name, word, view.version, report, certain=_reads_directly(view))


def _reads_directly(view: View) -> bool:
    image = view.server.image
    return image is None or image.is_official


def engine_variable(name: str, word: Word, version: str, report: Report, *, certain: bool) -> None:
    """Say whether this version of vLLM reads a variable. Not `certain`: the image may turn variables into flags."""
    table = flag_table("vllm", version)
    replaced: dict[str, Any] | None = facts()["vllm_environment"].get(name)
    try:
        table.check(ENV_PREFIX + name, word.text)
    except FlagError as error:
        flag = table.find("--" + name.removeprefix("VLLM_").lower().replace("_", "-"))
        gone = error.message.endswith("(any more)")
        instead = f"use {replaced['instead']}" if replaced else f"use --{flag.name}" if flag else error.hint or ""
        report.say(
            "error" if gone or certain else "warning",
            word.line,
            "env-removed" if gone else "env-unread",
            (
                f"vllm {version} does not read {name}{' any more' if gone else ''}; nothing says so at the start"
                + ("" if certain or gone else " (unless this image turns it into a flag)"),
                instead,
            ),
        )
        return
    if replaced is not None and parse_version(version) >= Version(str(replaced["deprecated"])):
        report.warning(
            word.line,
            "env-deprecated",
            f"{name} is deprecated in {version} and goes in a later release than its warning says",
            f"use {replaced['instead']}",
        )
    _flag_as_variable(name, word, version, report)


def _flag_as_variable(name: str, word: Word, version: str, report: Report) -> None:
    """Some images turn MAX_MODEL_LEN into --max-model-len; what became of the flag then matters."""
    if name.startswith(("VLLM_", "HF_", "NCCL_", "CUDA_", "NVIDIA_")) or "_" not in name or not name.isupper():
        return
    table = flag_table("vllm", version)
    try:
        table.require("--" + name.lower().replace("_", "-"))
    except FlagError as error:
        if "no longer has" in error.message:
            report.say(
                "error", word.line, "env-removed", (f"{name} stands for a flag: {error.message}", error.hint or "")
            )


def masked(text: str) -> str:
    """Return the text with token-shaped words and values of key flags hidden, for showing it to people."""
    hidden = SECRET_VALUE.sub("<hidden>", text)
    return _KEY_FLAG.sub(r"\1<hidden>", hidden)
