"""Rules about Python that builds an engine: arguments of LLM(...) and EngineArgs(...) are flags by other names."""

from __future__ import annotations

import ast
import warnings

from tuner.errors import EngineError, FlagError
from tuner.facts.flags import flag_table
from tuner.inspect.issue import Report

_CLASSES = ("LLM", "AsyncLLM", "EngineArgs", "AsyncEngineArgs", "LLMEngine", "AsyncLLMEngine")


def lint_python(text: str, version: str, report: Report) -> bool:
    """Check calls that build an engine; return whether there were any. The text is parsed, never run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        table = flag_table("vllm", version)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        report.note(getattr(error, "lineno", None) or 1, "unreadable", f"not valid Python: {error}")
        return False
    except EngineError as error:
        report.note(1, "version-old", f"{error.message}: arguments were not checked")
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name(node.func) in _CLASSES]
    for call in calls:
        for argument in call.keywords:
            if argument.arg is None:
                continue
            name = argument.arg.replace("_", "-")
            line = argument.value.lineno
            try:
                table.require(name)
            except FlagError as error:
                if "no longer has" in error.message:
                    message = f"{_name(call.func)}({argument.arg}=...): {error.message}"
                    report.error(line, "flag-removed", message, error.hint or "")
            if name == "enforce-eager" and isinstance(argument.value, ast.Constant) and argument.value.value is True:
                report.warning(line, "eager-mode", "enforce_eager=True switches CUDA graphs and compilation off")
    return bool(calls)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
