"""Rules about TensorRT-LLM: its server's options, its YAML, and the build scripts of the releases that had a build.

Facts: NVIDIA/TensorRT-LLM docs/source/legacy/tensorrt-backend-removal.md, llm_args.py (unknown keys are errors, the
YAML wins over options) and the issues that each rule names.
"""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from typing import Any

from packaging.version import Version

from tuner.domain.engine import EngineConfig, Setting, Value
from tuner.engines.trtllm_config import read_yaml
from tuner.errors import EngineError, FlagError
from tuner.facts.flags import flag_table, human_int, parse_version
from tuner.facts.read import data
from tuner.inspect.arguments import Arguments
from tuner.inspect.command import parse_value
from tuner.inspect.issue import Report, Word
from tuner.inspect.read_scripts import ReadScript
from tuner.inspect.server import Server
from tuner.inspect.shell import Command
from tuner.inspect.tree import Tree
from tuner.inspect.view import Context

_BUILD_GONE = Version("1.3.0rc22")
_LIMITS = ("--max_batch_size", "--max_seq_len", "--max_num_tokens")
_RUNNERS = ("run.py", "summarize.py", "launch_triton_server.py", "trtllm-serve", "trtllm-bench", "trtllm-eval")
SAID_OF_THE_YAML = ("whole_prompt_fits",)
"""Rules of validity that speak of what is said here at its own line."""
_MARKS = {
    "kv_cache_config",
    "cuda_graph_config",
    "moe_config",
    "free_gpu_memory_fraction",
    "max_num_tokens",
    "build_config",
}


def is_trtllm_yaml(tree: Tree) -> bool:
    """Whether a mapping looks like the YAML of `trtllm-serve --config`."""
    keys = {key for key, _ in tree.items()}
    return bool(keys & _MARKS) and not tree.at("services").exists and not tree.at("kind").exists


def options_of(server: Server) -> dict[str, Word]:
    """Return the options of a `trtllm-serve` or `trtllm-build` command: name without dashes, and its value."""
    found: dict[str, Word] = {}
    words, position = server.args, 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.text.startswith("--"):
            if word.text != "serve":
                found.setdefault("", word)
            continue
        name, equals, value = word.text.partition("=")
        if equals:
            found[name] = word._replace(text=value)
        elif position < len(words) and not words[position].text.startswith("--"):
            found[name] = words[position]
            position += 1
        else:
            found[name] = word._replace(text="true")
    return found


def trtllm_arguments(options: dict[str, Word], yaml: Tree | None) -> Arguments:
    """Return model, port and parallel sizes in vLLM's words, so that the rules about containers can read them."""
    found = Arguments(model=options.get(""))
    elsewhere = next((options[name] for name in ("--config", "--extra_llm_api_options") if name in options), None)
    for flag, key, names in (
        ("tensor-parallel-size", "tensor_parallel_size", ("--tp_size", "--tensor_parallel_size")),
        ("pipeline-parallel-size", "pipeline_parallel_size", ("--pp_size", "--pipeline_parallel_size")),
        ("port", "port", ("--port",)),
    ):
        word = next((options[name] for name in names if name in options), None)
        inside = yaml.at(key) if yaml is not None else Tree(1)
        if inside.exists:
            word = Word(inside.text, inside.line)
        if word is None and yaml is None and flag != "port":
            word = elsewhere
        if word is not None:
            found.words[flag] = word
            if word.text.isdigit():
                found.values[flag] = int(word.text)
    return found


def config_of(options: dict[str, Word], yaml: Tree | None, version: str) -> EngineConfig:
    """Return what command and file ask for, without what this release does not take: the rules say that.

    Raises:
        EngineError: a release older than all that are known.

    """
    table = flag_table("trtllm", version)
    values: dict[str, Value] = {}
    for name, word in options.items():
        with suppress(FlagError):
            if name and not word.open:
                flag = table.require(name)
                is_on = not name.startswith("--no-")
                values[flag.name] = is_on if flag.kind == "bool" else parse_value(flag, word.text)
    inside = yaml.plain() if yaml is not None and yaml.is_map else {}
    for key, value in inside.items():
        with suppress(FlagError):
            values |= read_yaml({key: value}, version)
    settings = tuple(Setting(flag=flag, value=value) for flag, value in values.items())
    return EngineConfig(engine="trtllm", version=version, settings=settings)


def version_of(server: Server, context: Context) -> str | None:
    """Return the release that the user or the image's tag names."""
    return context.version or (server.image.version if server.image is not None else None)


def lint_trtllm_server(server: Server, context: Context, yaml: Tree | None, text: str, report: Report) -> None:
    """Check a server's command; `yaml` is the file that it reads, when it is at hand."""
    version = version_of(server, context)
    options = options_of(server)
    if server.entry == "trtllm-build":
        _build(server, options, version, report)
        return
    _address(server, options, report)
    _engine_directory(options, version, report)
    _formats(options.get("", Word("", server.line)), context, text, report)
    if version is not None:
        _options_exist(options, version, report)
    if yaml is not None:
        _set_twice(options, yaml, report)
    chunked = "--enable_chunked_prefill" in options or (yaml is not None and yaml.at("enable_chunked_prefill").exists)
    named = {"--config", "--extra_llm_api_options"} & set(options)
    if not chunked and (yaml is not None or not named):
        report.note(
            server.line,
            "trtllm-chunked-prefill",
            "chunked prefill is off by default here (vLLM: on): prompts above max_num_tokens (8192) are refused",
            "enable_chunked_prefill: true in the YAML",
        )


def _address(server: Server, options: dict[str, Word], report: Report) -> None:
    host = options.get("--host")
    if server.in_container and (host is None or host.text in ("localhost", "127.0.0.1")):
        report.error(
            host.line if host else server.line,
            "host-loopback",
            "trtllm-serve listens on localhost unless told otherwise, which nobody outside the container can reach",
            "--host 0.0.0.0",
        )
    port = options.get("--port", Word("8000", server.line))
    box = server.box
    if box is not None and box.ports and port.text.isdigit() and int(port.text) not in {p.inside for p in box.ports}:
        report.error(
            box.ports[0].line,
            "port-mismatch",
            f"the file speaks of port {box.ports[0].inside}, but the server listens on {port.text}",
            f"use {port.text} in both places, or add --port {box.ports[0].inside}",
        )


def _engine_directory(options: dict[str, Word], version: str | None, report: Report) -> None:
    model, backend = options.get(""), options.get("--backend")
    if model is None or not re.search(r"engine", model.text.rsplit("/", 1)[-1] if "/" in model.text else ""):
        return
    gone = version is not None and parse_version(version) >= _BUILD_GONE
    if (backend is None or backend.text != "tensorrt") or gone:
        report.error(
            model.line,
            "trtllm-engine",
            f"{model.text} looks like a TensorRT engine, but since 1.0 the PyTorch backend is the default and reads "
            "checkpoints; the engine does not load (issue 8223)"
            + ("; this release has no other backend" if gone else ""),
            "serve the Hugging Face checkpoint itself" + ("" if gone else ", or pass --backend tensorrt (1.0 to 1.2)"),
        )


def _formats(model: Word, context: Context, text: str, report: Report) -> None:
    if "nvfp4" not in model.text.lower() and "fp4" not in model.text.lower():
        return
    hardware = context.hardware
    capability = hardware.capability if hardware is not None else None
    older = re.search(r"\b(H100|H200|A100|L40S?|A10G?)\b", text) if hardware is None else None
    if capability is not None and capability < 10.0:
        report.error(
            model.line,
            "format-fp4",
            f"{model.text} holds NVFP4 weights, which need Blackwell (capability 10.0); this GPU has {capability}",
            "use an FP8 checkpoint",
        )
    elif older is not None:
        report.warning(
            model.line,
            "format-fp4",
            f"{model.text} holds NVFP4 weights, which are native on Blackwell only; the file speaks of {older[1]}",
            "use an FP8 checkpoint on Hopper",
        )


def _options_exist(options: dict[str, Word], version: str, report: Report) -> None:
    try:
        table = flag_table("trtllm", version)
    except EngineError as error:
        report.note(1, "version-old", f"{error.message}: its options were not checked")
        return
    known = data("trtllm/flags.json")["flags"]
    spellings = {name for entry in known.values() for name in _spellings(entry)}
    alive = {name for key, entry in known.items() if table.find(key) for name in _spellings(entry)}
    for name, word in options.items():
        if name and name not in alive and name not in ("--config", "--extra_llm_api_options", "--backend"):
            elsewhere = " in this release" if name in spellings else ""
            report.error(word.line, "flag-unknown", f"trtllm-serve {version} has no option {name}{elsewhere}")


def _spellings(entry: dict[str, Any]) -> tuple[str, ...]:
    return (*entry.get("cli", ()), *entry.get("aliases", ()))


def _set_twice(options: dict[str, Word], yaml: Tree, report: Report) -> None:
    """The YAML wins over options, silently (PR 7551)."""
    for key, entry in data("trtllm/flags.json")["flags"].items():
        node = yaml.at(*key.split("."))
        for name in _spellings(entry):
            if name in options and node.exists and node.text != options[name].text:
                report.error(
                    options[name].line,
                    "set-twice",
                    f"{name} is {options[name].text} here and {key} is {node.text} in the YAML, which wins silently",
                    "set it in one place",
                )


def lint_trtllm_yaml(tree: Tree, version: str | None, report: Report) -> None:
    """Check the YAML against the keys of a release, or of any release when it is not known."""
    if not tree.is_map:
        report.error(
            tree.line, "trtllm-yaml", "the YAML must be a mapping of settings, not a list", "write `key: value`"
        )
        return
    try:
        table = flag_table("trtllm", version or str(data("trtllm/flags.json")["versions"][-1]))
    except EngineError as error:
        report.note(1, "version-old", f"{error.message}: its keys were not checked")
        return
    known: dict[str, Any] = data("trtllm/flags.json")["flags"]
    sections = {key.split(".")[0] for key in known if "." in key}
    for key, node in tree.items():
        for full, part in [(f"{key}.{k}", n) for k, n in node.items()] if key in sections else [(key, node)]:
            if not any(name == full or name.startswith(full + ".") for name in known):
                _unknown_key(full, part.key_line, report)
            elif version is not None and full in known:
                try:
                    table.require(full)
                except FlagError as error:
                    report.error(part.key_line, "trtllm-key", error.message, error.hint or "")
    _prompt_room(tree, report)


def _unknown_key(key: str, line: int, report: Report) -> None:
    table = data("trtllm/flags.json")
    last = key.rsplit(".", 1)[-1]
    nested = next((name for name in table["flags"] if name != key and name.rsplit(".", 1)[-1] == last), None)
    near = difflib.get_close_matches(key, table["flags"], n=2)
    hint = f"write it as {nested}" if nested else f"did you mean {', '.join(near)}?" if near else "take it out"
    never = table["never"].get(last)
    message = never or "no release has this key here"
    report.error(line, "trtllm-key", f"{key}: {message}; an unknown key stops the start", hint)


def _prompt_room(tree: Tree, report: Report) -> None:
    tokens = human_int(tree.at("max_num_tokens").value)
    longest = human_int(tree.at("max_input_len").value) or human_int(tree.at("max_seq_len").value)
    chunked = tree.at("enable_chunked_prefill")
    if chunked.value is True:
        return
    if tokens is not None and (longest is None or longest > tokens):
        shown = f"and up to {longest} are allowed" if longest else "and nothing limits them to that"
        report.warning(
            tree.at("max_num_tokens").key_line,
            "trtllm-prompt-room",
            f"without chunked prefill a prompt must fit max_num_tokens ({tokens}), {shown} (issue 9277)",
            "enable_chunked_prefill: true, or a larger max_num_tokens",
        )


def _build(server: Server, options: dict[str, Word], version: str | None, report: Report) -> None:
    line = server.line
    if version is not None and parse_version(version) >= _BUILD_GONE:
        report.error(line, "trtllm-build", f"TensorRT-LLM {version} has no trtllm-build", "trtllm-serve CHECKPOINT")
    else:
        pin = "" if version is not None else "; nothing here pins a release that has it"
        report.warning(
            line,
            "trtllm-build",
            f"trtllm-build exists up to 1.2.x only{pin}",
            "pin 1.2.1, or serve the checkpoint with trtllm-serve",
        )
    missing = [name for name in _LIMITS if name not in options]
    if missing:
        report.warning(
            line,
            "trtllm-build-limits",
            f"trtllm-build without {', '.join(missing)}: memory is planned for the defaults (batch 2048, tokens 8192, "
            "the model's whole context), and the build or the first start runs out of it (issue 1543)",
            "state all three, as small as the use allows",
        )


def lint_trtllm_script(read: ReadScript, report: Report) -> None:
    """Ranks of convert, build and run must be the same number (issues 108, 1796, 1992, 2058)."""
    built: tuple[int, int] | None = None
    for command in read.script.commands:
        texts = [word.text for word in command.words]
        names = {text.rsplit("/", 1)[-1] for text in texts}
        if names & {"convert_checkpoint.py", "quantize.py"}:
            ranks = (_option(command, "--tp_size") or 1) * (_option(command, "--pp_size") or 1)
            built = (ranks, command.line)
        if built is None or not names & set(_RUNNERS) or not any("engine" in text for text in texts):
            continue
        started = _ranks(command)
        if started != built[0]:
            report.error(
                command.line,
                "trtllm-ranks",
                f"the engine is made for {built[0]} ranks (line {built[1]}), but {started} start here: it fails with "
                "mpiSize == tp * pp",
                f"mpirun -n {built[0]} --allow-run-as-root ...",
            )


def _option(command: Command, name: str) -> int | None:
    words = [word.text for word in command.words]
    for index, text in enumerate(words):
        value = text.partition("=")[2] if text.startswith(name + "=") else words[index + 1 : index + 2]
        if text.partition("=")[0] == name:
            number = value if isinstance(value, str) else "".join(value)
            return int(number) if number.isdigit() else None
    return None


def _ranks(command: Command) -> int:
    names = [word.text.rsplit("/", 1)[-1] for word in command.words]
    if "mpirun" in names or "mpiexec" in names:
        return _option(command, "-n") or _option(command, "-np") or 1
    return _option(command, "--world_size") or _option(command, "--tp_size") or 1
