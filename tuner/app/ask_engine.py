"""Screening by the engine itself: what its configuration layer refuses is ruled out before a launch costs minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from tuner.domain.engine import EngineConfig
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.domain.trial import Infeasible
from tuner.errors import UsageError
from tuner.inspect.model_dir import cached_folder
from tuner.inspect.view import Context
from tuner.runtime.ask_engine import EngineJudge
from tuner.runtime.installs import detect_engine

RULE = "engine_refuses"


def engine_judge(install: EngineInstall) -> AbstractContextManager[EngineJudge]:
    """Give a judge of this installation, which finds the files of hub models in the hub's cache on this machine.

    Nothing starts before its first question; leaving the context ends what was started.
    """
    return EngineJudge.open(install, cached_folder)


def judged_infeasible(
    judge: EngineJudge, config: EngineConfig, model: ModelSpec, hardware: Hardware
) -> Infeasible | None:
    """Return the engine's own refusal, or None when it accepts the configuration or cannot be asked.

    Ask after `search.screen.screen`, which needs no process and gives fixes. The first question takes some seconds of
    imports, each other 10 to 40 ms.
    """
    said = judge.judge(config, model, hardware)
    if said.verdict != "refused":
        return None
    return Infeasible(rule=RULE, reason=f"vLLM {judge.install.version} refuses it: {said.reason}")


@contextmanager
def asking(context: Context, engine_command: str | None) -> Iterator[Context]:
    """Give the context of a check that asks the installed vLLM too, and takes its release where files name none.

    Raises:
        UsageError: no hardware is given to ask about.
        EngineError: no vLLM is found.

    """
    if context.hardware is None:
        raise UsageError("--ask-engine needs to know the hardware", hint="say it with --gpu, e.g. --gpu h100x8")
    install = detect_engine("vllm", engine_command)
    with engine_judge(install) as judge:
        yield replace(context, judge=judge.judge, assumed=install.version)
