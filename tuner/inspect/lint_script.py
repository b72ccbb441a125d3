"""Rules about shell scripts around a server."""

from __future__ import annotations

import re
from functools import lru_cache

from tuner.inspect.issue import Report, Word
from tuner.inspect.lint_environment import SECRET_VALUE, secret, variable
from tuner.inspect.read_scripts import ReadScript
from tuner.inspect.shell import Command
from tuner.inspect.view import View

_FROM_OUTSIDE = re.compile(
    r"^(?:HOME|USER|PWD|PATH|HOSTNAME|TMPDIR|LD_LIBRARY_PATH|PYTHONPATH|SHELL|UID|EUID|RANDOM|OLDPWD|LANG|VIRTUAL_ENV"
    r"|CONDA_\w+|HF_\w+|CUDA_\w+|NVIDIA_\w+|NCCL_\w+|SLURM_\w+|LWS_\w+|RANK|WORLD_SIZE|MASTER_\w+|DSTACK_\w+|SKYPILOT_\w+"
    r"|BASH_\w+|FUNCNAME|LINENO|PPID|XDG_\w+|DOCKER|OPENAI_API_KEY|VLLM_\w+|\d)$"
)
_HOME_PATH = re.compile(r"^/(?:home|Users)/[^/\s]+/")


def lint_script(read: ReadScript, views: list[View], report: Report) -> None:
    """Check a script as a whole."""
    for problem in read.script.problems:
        report.error(problem.line, "shell-syntax", f"{problem.message}: bash refuses the script", "close it")
    strict = any(_is_strict(command) for command in read.script.commands)
    for view in views:
        _unset(view, strict=strict, report=report)
        _paths(view, report)
    known = {name for view in views for name in view.server.env}
    for name, word in read.script.exported.items():
        if name not in known:
            variable(name, word, report)
    for name, words in read.script.assigned.items():
        if name not in known and name not in read.script.exported and words:
            secret(name, words[0], report)
    for word in read.script.assigned.get("LD_LIBRARY_PATH", []):
        if "/ollama/" in word.text:
            _borrowed(word, report)
    lines = {view.line for view in views if view.server.form == "shell"}
    for command in read.script.commands:
        _command(command, bool(views), report)
        if any(word.line in lines for word in command.words):
            _unseen(command, views[0].text, report)


def _is_strict(command: Command) -> bool:
    words = [word.text for word in command.words]
    return words[:1] == ["set"] and any(re.fullmatch(r"-\w*u\w*|nounset", word) for word in words[1:])


def _unset(view: View, *, strict: bool, report: Report) -> None:
    said: set[str] = set()
    image = [view.server.image.word] if view.server.image is not None else []
    for word in [*view.server.args, *image]:
        for name in word.unset:
            if name in said or _FROM_OUTSIDE.match(name) or strict:
                continue
            said.add(name)
            is_model = view.model is not None and name in view.model.unset
            effect = "the server starts with its default model" if is_model else "the word is empty then"
            report.warning(
                word.line,
                "variable-unset",
                f"${name} is never set in this script; if the environment does not set it, {effect}",
                f'set it above, or refuse to start without it: "${{{name}:?set {name}}}"',
            )


def _paths(view: View, report: Report) -> None:
    for word in view.server.args:
        if _HOME_PATH.match(word.text):
            report.note(
                word.line,
                "path-home",
                f"{word.text} exists for one user on one machine",
                "take it from a variable: ${MODEL_DIR:?set MODEL_DIR}",
            )


def _command(command: Command, starts_server: bool, report: Report) -> None:
    texts = [word.text for word in command.words]
    program = texts[0].rsplit("/", 1)[-1]
    if starts_server and program in ("pkill", "killall") and any("vllm" in text or "python" in text for text in texts):
        report.warning(
            command.line,
            "kill-by-name",
            f"{' '.join(texts[:3])}: kills every server of that name, also other people's",
            "keep the process id and end that one",
        )
    joined = " ".join(texts)
    install = re.search(r"\bpip3? install\b", joined)
    if install and starts_server and "==" not in joined and "-r" not in texts and "vllm" in joined:
        lint_unpinned(command.line, report)
    for word in command.words:
        if SECRET_VALUE.search(word.text):
            secret("a word of the command", word, report)
    for name, word in command.env.items():
        if name == "LD_LIBRARY_PATH" and "/ollama/" in word.text:
            _borrowed(word, report)


def lint_unpinned(line: int, report: Report) -> None:
    """Say that vLLM is installed in whatever release is the newest."""
    report.warning(
        line,
        "install-unpinned",
        "vllm is installed without a version: each run may get another engine with other flags",
        "pip install vllm==<version>",
    )


def _unseen(command: Command, text: str, report: Report) -> None:
    """Say where a server's words go that nobody may see, and that nothing waits for a server in the background."""
    target = command.output
    if target is not None and not target.text.startswith("/dev/") and "tail -f" not in text:
        report.note(
            target.line,
            "log-file",
            f"what the server says goes to {target.text} alone: neither the terminal nor a service manager sees it, "
            "and nothing rotates it",
            f"2>&1 | tee -a {target.text}, or run it as a unit and read it with journalctl",
        )
    if command.background and not re.search(r"/health|/v1/models|^\s*wait\b", text, re.MULTILINE):
        report.note(
            command.line,
            "start-unwatched",
            "the server is started in the background and nothing waits until it answers",
            "ask /health in a loop before what needs the server",
        )


def _borrowed(word: Word, report: Report) -> None:
    report.warning(
        word.line,
        "libraries-borrowed",
        "CUDA libraries of another program are put in front: an update there breaks this server",
        "use the libraries that the engine's own packages bring",
    )


def lint_install_at_start(view: View, report: Report) -> None:
    """Packages that are installed at the start of a container make every start another one."""
    before = view.server.before
    texts = " ".join(word.text for word in [*before, *view.server.args])
    for text, line in ((texts, view.line), *_shell_words(view)):
        if re.search(r"\bpip3? install\b|\bapt(?:-get)? install\b", text):
            report.warning(
                line,
                "install-at-start",
                "packages are installed at each start: it needs the network, takes time and may bring other versions",
                "build an image that holds them",
            )
            return


def _shell_words(view: View) -> list[tuple[str, int]]:
    found = _install_line(view.text) if view.server.in_container and view.server.form != "docker" else None
    return [found] if found is not None else []


@lru_cache(maxsize=16)
def _install_line(text: str) -> tuple[str, int] | None:
    found = re.search(r"^[^#\n]*\bpip3? install\b[^\n]*$", text, re.MULTILINE)
    return (found[0], text.count("\n", 0, found.start()) + 1) if found else None
