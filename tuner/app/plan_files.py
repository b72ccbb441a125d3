"""The deployment files of the best option of `plan`, every header marked PREDICTED."""

from __future__ import annotations

from pathlib import Path

from tuner import __version__
from tuner.app.plan import Answer, Option, Planned
from tuner.domain.plan import Change, Plan, Sizing, Verdict
from tuner.domain.study import Budget, EngineInstall, StudySpec
from tuner.engines import ENGINES
from tuner.errors import UsageError
from tuner.facts.read import bundled
from tuner.output import bundle
from tuner.search.spaces import load_space

_START_S, _START_BYTES_S = 150.0, 5e8


def load_study(path: Path) -> Plan:
    """Read the plan of a study, to calibrate with.

    Raises:
        UsageError: there is no plan.
        SpaceError: it is not one.

    """
    return bundle.load_plan(path)


def emit_planned(planned: Planned, out: Path) -> tuple[Path, ...]:
    """Write the deployment files of the best option into `out`, every header marked PREDICTED.

    Raises:
        UsageError: no option is enough.
        OutputError: the directory cannot be written, or holds files that are not ours.

    """
    if not planned.answer.options[0].enough:
        raise UsageError("no option serves this load within the limits, so there is nothing to write",
                         hint="loosen the SLO, lower the rate, or name other GPUs")
    plan = predicted_plan(planned)
    return bundle.emit(plan, bundle.bundle_directory(out, plan.study.model.name, plan.study.name))


def predicted_plan(planned: Planned) -> Plan:
    """Return the best option as a plan of which nothing was measured."""
    question, best, option = planned.question, planned.found[0], planned.answer.options[0]
    candidate = best.candidate
    install = EngineInstall(engine="vllm", version=question.version, build="cuda", program=("vllm", "serve"))
    spec = StudySpec(
        name=f"plan-{question.workload.name}-{candidate.devices}x{candidate.gpu.aliases[0]}".replace("@", "-"),
        model=question.model, hardware=candidate.hardware, engine=install, workload=question.workload,
        slo=question.slo, space=load_space(bundled("search_spaces") / "vllm.yaml", question.version),
        budget=Budget(trials=1), sources={"hardware": "option --gpu", "engine_version": "the newest known release"},
    )
    weights = candidate.memory.weights * candidate.devices
    return Plan(
        tool_version=__version__, complete=True, measured=False, study=spec, config=candidate.config,
        launch=ENGINES["vllm"].launch(question.model, candidate.config, install),
        sizing=Sizing(start_s=_START_S + weights / _START_BYTES_S, start_n=0),
        verdict=Verdict(kind="not_verified", reference="none", text=_verdict(planned.answer, option)),
        changes=tuple(Change(flag=setting.flag, before=None, after=str(setting.value), why=setting.why)
                      for setting in candidate.config.settings),
        warnings=(*planned.answer.errors, *planned.answer.notes),
        command=question.command,
    )


def _verdict(answer: Answer, option: Option) -> str:
    predicted = option.predicted
    return (
        f"PREDICTED, nothing was measured: {option.replicas} replica{'s' if option.replicas > 1 else ''} of these "
        f"files on {option.gpus} {option.gpu} serve {answer.load} with {option.total_output_tokens_per_s:.0f} output "
        f"tokens/s, p95 TTFT {predicted.ttft_ms.get('p95', 0):.0f} ms and p95 ITL {predicted.itl_ms['p95']:.1f} ms. "
        f"TPOT of {option.band.of} was off by {option.band.mape:g} % in the mean."
    )
