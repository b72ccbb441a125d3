"""Every output format by name, which are written without being asked for, and all of them put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner.domain.plan import Plan
from tuner.errors import OutputError, UsageError
from tuner.output.base import Emitter
from tuner.output.compose import ComposeEmitter
from tuner.output.dstack import DstackEmitter
from tuner.output.grafana import GrafanaEmitter
from tuner.output.kserve import KserveEmitter
from tuner.output.kubernetes import HpaEmitter, KubernetesEmitter
from tuner.output.launch_files import LaunchFilesEmitter
from tuner.output.llmd import LlmdEmitter
from tuner.output.production_stack import ProductionStackEmitter
from tuner.output.readme import ReadmeEmitter
from tuner.output.rules import PrometheusEmitter
from tuner.output.scripts import DockerRunEmitter, ServeScriptEmitter
from tuner.output.skypilot import SkypilotEmitter
from tuner.output.slurm import SlurmEmitter
from tuner.output.systemd import SystemdEmitter
from tuner.output.vllm_config import VllmConfigEmitter

_ALL: tuple[Emitter, ...] = (
    ComposeEmitter(),
    DockerRunEmitter(),
    ServeScriptEmitter(),
    LaunchFilesEmitter(),
    ReadmeEmitter(),
    VllmConfigEmitter(),
    SystemdEmitter(),
    KubernetesEmitter(),
    HpaEmitter(),
    PrometheusEmitter(),
    GrafanaEmitter(),
    ProductionStackEmitter(),
    KserveEmitter(),
    LlmdEmitter(),
    SkypilotEmitter(),
    DstackEmitter(),
    SlurmEmitter(),
)
EMITTERS: dict[str, Emitter] = {emitter.name: emitter for emitter in _ALL}
DEFAULT_TARGETS: tuple[str, ...] = ("compose", "docker-run", "serve")
"""What is written when nothing is asked for; what does not fit the plan is left out."""
ALWAYS: tuple[str, ...] = ("files", "readme")
"""What comes with every format: the files that programs read, and what a person reads first."""


def choose(names: Iterable[str], plan: Plan) -> tuple[str, ...]:
    """Return the targets that were asked for, each once, in the order of `EMITTERS`.

    Raises:
        UsageError: there is no such target, or none was named.
        OutputError: the plan cannot be written in that form.

    """
    wanted = {name.strip() for name in names} - {""} - set(ALWAYS)
    unknown = sorted(wanted - set(EMITTERS))
    if unknown or not wanted:
        said = f"no target named {', '.join(map(repr, unknown))}" if unknown else "no target is named"
        raise UsageError(said, hint="`llmtune emit --list` shows them all")
    for name, emitter in EMITTERS.items():
        reason = emitter.refusal(plan) if name in wanted else None
        if reason:
            raise OutputError(f"this plan cannot be written for {name}: {reason}", hint="leave that target out")
    return tuple(name for name in EMITTERS if name in wanted)


def deploy_files(plan: Plan, targets: Sequence[str]) -> dict[str, str]:
    """Return relative path to text of the files of these targets, and of what comes with every target."""
    files: dict[str, str] = {}
    tables: list[tuple[Emitter, tuple[str, ...]]] = []
    for name in targets:
        written = EMITTERS[name].files(plan)
        files.update(written)
        tables.append((EMITTERS[name], tuple(written)))
    files.update(EMITTERS["files"].files(plan))
    files.update(ReadmeEmitter(tables).files(plan))
    return files
