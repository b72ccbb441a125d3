"""Rules about the YAML that `vllm serve --config` reads.

The loader turns each entry into an argument: true becomes --key, false is dropped (vllm issue 51401; the fix of 0.32
looks the option up on the wrong parser), null becomes the text None, lists become several words, mappings become JSON.
"""

from __future__ import annotations

import json

from tuner.facts.flags import FlagTable, flag_table
from tuner.facts.read import data
from tuner.inspect.issue import Edit, Report, Word
from tuner.inspect.server import Server
from tuner.inspect.tree import Tree


def is_vllm_config(tree: Tree) -> bool:
    """Whether most keys of a mapping are flags of vLLM."""
    if not tree.is_map or tree.at("kind").exists or tree.at("services").exists:
        return False
    known = data("vllm/flags.json")["flags"]
    keys = [_plain(key) for key, _ in tree.items()]
    hits = sum(key in known or key.removeprefix("no-") in known or key == "model-tag" for key in keys)
    return bool(keys) and hits * 2 > len(keys)


def config_server(tree: Tree, file: str) -> Server:
    """Return the server that the file's entries ask for, each value at its own line."""
    words: list[Word] = []
    for key, node in tree.items():
        name = "--" + _plain(key)
        line = node.key_line
        if node.value is True:
            words.append(Word(name, line))
        elif node.value is False or not node.exists:
            continue
        elif node.is_map:
            words += [Word(name, line), Word(json.dumps(node.plain(), sort_keys=True, default=str), line)]
        elif node.is_list:
            words += [Word(name, line), *(Word(item.text, item.line) for item in node.each())]
        else:
            words += [Word(name, line), Word(node.text, line)]
    return Server(file, "the config", 1, "config", "vllm", "config", words)


def lint_config(tree: Tree, version: str, report: Report) -> None:
    """Check what only the YAML form gets wrong; flags and values are checked as arguments."""
    table = flag_table("vllm", version)
    for key, node in tree.items():
        line = node.key_line
        if not node.exists:
            report.error(line, "config-null", f"{key} is empty: the loader passes the text None on", "take the key out")
        elif node.value is False:
            _false(key, table, line, report)
        elif _plain(key) == "config":
            report.error(line, "config-nested", "a config file cannot name another one", "merge the files")


def _false(key: str, table: FlagTable, line: int, report: Report) -> None:
    plain = _plain(key)
    if plain.startswith("no-"):
        report.error(line, "config-false", f"{key}: false is dropped", f"write {plain.removeprefix('no-')}: true")
        return
    flag = table.find("--" + plain)
    if flag is None or not flag.negatable or flag.default == "False":
        report.note(line, "config-false", f"{key}: false is dropped, which changes nothing here", "take the key out")
        return
    report.error(
        line,
        "config-false",
        f"{key}: false is dropped by the loader, so the engine's default stays; nothing says so",
        f"write no-{plain}: true",
        edit=Edit(line=line, old=f"{key}: false", new=f"no-{plain}: true"),
    )


def _plain(key: str) -> str:
    return key.replace("_", "-")
