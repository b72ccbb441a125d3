"""Rules that need model and hardware: what cannot work together, and what does not fit into memory."""

from __future__ import annotations

import re

from tuner.capacity.memory import MemoryPlan, memory_plan
from tuner.capacity.remedies import remedies
from tuner.domain.engine import ENV_PREFIX, EngineConfig, Setting, plain
from tuner.domain.finding import Judged
from tuner.domain.hardware import Gpu, Hardware
from tuner.domain.model import ModelSpec
from tuner.engines import ENGINES
from tuner.inspect.issue import Report, Severity
from tuner.inspect.view import View
from tuner.rules import findings

_NEED_HARDWARE = ("world_fits_devices",)
_FLAG = re.compile(r"--([a-z][a-z0-9-]+)")


def lint_fit(view: View, report: Report) -> None:
    """Apply the rules of validity, and plan memory when model and GPU are known."""
    hardware = view.context.hardware
    config = config_of(view)
    say_rules(view, config, report)
    if hardware is None or view.spec is None:
        return
    if view.context.judge is not None:
        _say_judged(view.context.judge(config, view.spec, hardware), view, report)
    say_memory(view, config, report)


def say_rules(view: View, config: EngineConfig, report: Report, *, but: tuple[str, ...] = ()) -> None:
    """Say what the rules of the config's engine find, but those that are said better elsewhere."""
    hardware = view.context.hardware
    skipped = but if hardware is not None else (*but, *_NEED_HARDWARE)
    for finding in findings(config, view.spec or _unknown(view), hardware or _enough(view)):
        if finding.rule in skipped:
            continue
        line = next((view.flag_line(name) for name in _FLAG.findall(finding.reason + finding.fix)), view.line)
        report.say(finding.severity, line, finding.rule.replace("_", "-"), (finding.reason, finding.fix))


def say_memory(view: View, config: EngineConfig, report: Report) -> None:
    """Plan memory when model and GPU are known, and say what would be enough where it is not."""
    hardware, model = view.context.hardware, view.spec
    if hardware is None or model is None:
        return
    footprint = ENGINES[config.engine].footprint(model, config)
    plan = memory_plan(model, footprint, hardware)
    if not isinstance(plan, MemoryPlan) or plan.verdict == "fits":
        return
    said = "may not fit" if plan.fits else "does not fit"
    steps = remedies(model, footprint, hardware, plan, engine=config.engine)
    fix = "PREDICTED to be enough, least harm first: " + "; or ".join(steps)
    severity: Severity = "warning" if plan.fits else "error"
    report.say(severity, view.line, "memory", (f"{said} {hardware.label}: {plan.text}", fix))


def _say_judged(judged: Judged, view: View, report: Report) -> None:
    """Say what the installed engine answered."""
    match judged.verdict:
        case "refused":
            line = next((view.flag_line(name) for name in _FLAG.findall(judged.reason)), view.line)
            report.error(line, "engine-refuses", f"the installed engine refuses this: {judged.reason}")
        case "accepted":
            shown = ", ".join(f"{flag} {plain(value)}" for flag, value in judged.resolved.items())
            report.note(view.line, "engine-accepts", f"the installed engine accepts this and would use: {shown}")
        case "cannot_say":
            report.note(view.line, "engine-silent", f"the installed engine was not asked: {judged.reason}")


def config_of(view: View) -> EngineConfig:
    """Return what the file asks of the engine, unknown values left out."""
    values = {**view.arguments.values}
    for name, word in view.server.env.items():
        if name.startswith("VLLM_") and not word.open:
            values[ENV_PREFIX + name] = word.text
    settings = tuple(Setting(flag=flag, value=value, source="user") for flag, value in values.items())
    return EngineConfig(engine="vllm", version=view.version, settings=settings)


def _unknown(view: View) -> ModelSpec:
    name = view.model.text if view.model is not None else "unknown"
    return ModelSpec(requested=name, name=name, location=name, source="hub")


def _enough(view: View) -> Hardware:
    """As many GPUs of no known kind as the server wants, so that only rules about the configuration speak."""
    image = view.server.image
    if (image is not None and image.is_cpu) or "VLLM_CPU_KVCACHE_SPACE" in view.server.env:
        return Hardware(kind="cpu", cpu_features=("avx2", "avx512f", "amx_tile"))
    count = view.arguments.world or 1
    return Hardware(
        kind="cuda", gpus=tuple(Gpu(name="any", memory_bytes=0, index=index) for index in range(min(count, 1024)))
    )
