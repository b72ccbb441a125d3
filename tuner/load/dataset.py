"""The user's own prompts, one JSON object a line.

Forms: `{"prompt": "..."}` or `{"prompt": [ids]}` or `{"messages": [{"role": ..., "content": ...}]}` or ShareGPT's
`{"conversations": [{"from": "human", "value": ...}]}`; each with `output_tokens` (or `max_tokens`) and `group` where
wanted. Without `output_tokens` the workload's distribution is drawn from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.domain.json_text import parse_json
from tuner.domain.workload import Workload
from tuner.errors import SpaceError
from tuner.load.prompts import Message, Prompt, Request
from tuner.load.shapes import Role, draw_lengths

ROLES: dict[str, Role] = {
    "system": "system", "user": "user", "human": "user", "assistant": "assistant", "gpt": "assistant",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file of prompts."""

    prompt: Prompt
    output_tokens: int | None = None
    group: str = ""


def read_prompts(path: Path, *, sha256: str = "") -> list[Row]:
    """Read the file's rows.

    Raises:
        SpaceError: it cannot be read, is not the file that was meant, holds nothing, or a line is wrong.

    """
    try:
        data = path.expanduser().read_bytes()
    except OSError as error:
        raise SpaceError(f"cannot read the prompts {path}: {error.strerror}", hint="check the path") from error
    digest = hashlib.sha256(data).hexdigest()
    if sha256 and sha256 != digest:
        raise SpaceError(f"{path} is not the file that was meant: its SHA-256 is {digest}",
                         hint=f"the workload says {sha256}")
    lines = data.decode("utf-8-sig", errors="replace").split("\n")
    rows = [_row(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not rows:
        raise SpaceError(f"{path} holds no prompt", hint='write one object a line, e.g. {"prompt": "..."}')
    return rows


def requests_from_rows(workload: Workload, rows: Sequence[Row], *, seed: int) -> list[Request]:
    """Return the workload's number of requests from the rows, in a seeded order, again from the start when they end.

    Warm-up takes rows of its own as long as there are enough. Prompts are sent as they are, so a server that has seen
    them before answers from its prefix cache. Their length in tokens is known for ids only, otherwise 0.
    """
    rng = np.random.default_rng([seed, 0xDA7A])
    order = rng.permutation(len(rows))
    count = workload.warmup_requests + workload.requests
    drawn = draw_lengths(workload.output_tokens, count, rng)
    made = []
    for number in range(count):
        row = rows[int(order[number % len(rows)])]
        warmup = number < workload.warmup_requests
        name = f"w{number}" if warmup else f"r{number - workload.warmup_requests}"
        known = len(row.prompt) if _is_ids(row.prompt) else 0
        made.append(Request(id=name, prompt=row.prompt, input_tokens=known, group=row.group, warmup=warmup,
                            output_tokens=int(drawn[number]) if row.output_tokens is None else row.output_tokens))
    return made


def _is_ids(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and isinstance(prompt[0], int)


def _row(where: str, line: str) -> Row:
    try:
        data = parse_json(line)
    except ValueError as error:
        raise SpaceError(f"{where}: not JSON: {error}", hint="one object a line") from error
    if not isinstance(data, dict):
        raise SpaceError(f"{where}: not an object", hint='write e.g. {"prompt": "..."}')
    length = data.get("output_tokens", data.get("max_tokens"))
    if length is not None and (not isinstance(length, int) or isinstance(length, bool) or length < 1):
        raise SpaceError(f"{where}: output_tokens is {length!r}", hint="a whole number above zero")
    return Row(_prompt(where, data), length, str(data.get("group", "")))


def _prompt(where: str, data: dict[str, Any]) -> Prompt:
    prompt = data.get("prompt")
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(part) is int and part >= 0 for part in prompt):
        return tuple(prompt)
    for key, role, text in (("messages", "role", "content"), ("conversations", "from", "value")):
        if isinstance(data.get(key), list):
            return _messages(where, data[key], role, text)
    raise SpaceError(f"{where}: no prompt", hint='write {"prompt": "..."}, a list of ids, or {"messages": [...]}')


def _messages(where: str, items: list[Any], role: str, text: str) -> tuple[Message, ...]:
    made = []
    for item in items:
        if not isinstance(item, dict) or item.get(role) not in ROLES or not isinstance(item.get(text), str):
            raise SpaceError(f"{where}: a message without a known {role} and a text {text}",
                             hint=f"roles are {', '.join(ROLES)}")
        made.append(Message(ROLES[item[role]], item[text]))
    while made and made[-1].role == "assistant":
        made.pop()  # the answer is what the server is asked for
    if not made:
        raise SpaceError(f"{where}: no message to answer", hint="the last message must be the user's")
    return tuple(made)
