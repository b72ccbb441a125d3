"""Simulated trials and calibration: what a study of a machine unlike the published ones teaches the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.fakes import plans
from tuner.app.calibration import Calibration, calibrate
from tuner.app.plan import make_plan
from tuner.app.plan_ask import PlanAsk
from tuner.app.plan_files import load_study
from tuner.app.simulated import simulated_outcome
from tuner.capacity.latency import Coefficients, coefficients
from tuner.cli.main import app
from tuner.domain.engine import EngineConfig
from tuner.domain.hardware import Hardware
from tuner.domain.plan import Arm, Plan
from tuner.domain.slo import parse_slo
from tuner.domain.study import StudySpec
from tuner.domain.trial import Infeasible, LatencySummary, Measured
from tuner.domain.workload import ClosedLoop, Fixed, Lognormal, Workload
from tuner.errors import UsageError
from tuner.facts.catalog import model_by_alias
from tuner.facts.gpus import parse_hardware
from tuner.output.bundle import emit

pytestmark = pytest.mark.unit

SLOW = coefficients().model_copy(update={"layer_us": 80.0, "bandwidth": 0.55, "compute_16": 0.45})
"""A machine that is unlike the ones of the fit."""


def study(clients: int = 64, hardware: Hardware | None = None) -> StudySpec:
    workload = Workload(name="chat", input_tokens=Lognormal(median=300, sigma=0.6, high=2000), requests=300,
                        output_tokens=Lognormal(median=120, sigma=0.5, high=600),
                        arrivals=ClosedLoop(concurrency=clients))
    return plans.study(model=model_by_alias("llama-3-8b"), hardware=hardware or parse_hardware("h100x4"),
                       workload=workload, slo=parse_slo("p95 ttft<=2s"))


def measured(spec: StudySpec, config: EngineConfig, found: Coefficients | None = None) -> Measured:
    outcome = simulated_outcome(spec, config, found=found)
    assert isinstance(outcome, Measured)
    return outcome


def arm(spec: StudySpec, label: str, number: int, config: EngineConfig) -> Arm:
    return plans.arm(label, number, config, 1000.0, rounds=(measured(spec, config, SLOW).measurement,))


def p95(summary: LatencySummary | None) -> float:
    assert summary is not None
    return summary.p95.value


CONFIGS = (plans.config(("max-num-seqs", 32)), plans.config(("tensor-parallel-size", 2), ("max-num-seqs", 64)),
           plans.config(("tensor-parallel-size", 4)), plans.config(("max-num-seqs", 8)))


def measured_plan() -> Plan:
    spec = study()
    arms = tuple(arm(spec, label, number, config) for number, (label, config) in enumerate(
        zip(("default", "baseline", "best", "runner-up"), CONFIGS, strict=True)))
    return plans.make_plan(study=spec, config=CONFIGS[2], arms=arms)


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> tuple[Calibration, Path]:
    folder = tmp_path_factory.mktemp("study")
    emit(measured_plan(), folder)
    return calibrate(load_study(folder)), folder


def test_a_simulated_trial_is_read_like_a_live_one() -> None:
    found = measured(study(), CONFIGS[0]).measurement
    assert found.completed == 300
    assert found.ttft_ms is not None
    assert found.itl_ms is not None
    assert found.ttft_ms.p50.value < found.ttft_ms.p99.value
    assert 0 < found.output_tokens_per_s.low < found.output_tokens_per_s.high
    assert found.limits["p95 ttft<=2000ms"].value > 0
    assert not [warning for warning in found.warnings if warning.kind in ("client_limited", "errors")]


def test_a_simulated_trial_says_so_and_refuses_what_cannot_work() -> None:
    assert measured(study(), CONFIGS[0]).startup.resolved["source"] == "SIMULATED"
    tight = plans.study(model=model_by_alias("llama-3-70b"), hardware=parse_hardware("h100"))
    outcome = simulated_outcome(tight, plans.config())
    assert isinstance(outcome, Infeasible)
    assert outcome.rule == "memory"


def test_knobs_change_what_is_simulated() -> None:
    spec = study(clients=128)
    few, many = (measured(spec, plans.config(("max-num-seqs", limit))).measurement for limit in (8, 256))
    assert many.output_tokens_per_s.value > 2 * few.output_tokens_per_s.value
    long = spec.model_copy(update={"workload": spec.workload.model_copy(update={
        "input_tokens": Fixed(tokens=6000), "output_tokens": Fixed(tokens=100)})})
    small, large = (measured(long, plans.config(("max-num-batched-tokens", budget), ("max-num-seqs", 64))).measurement
                    for budget in (512, 8192))
    assert small.itl_ms is not None
    assert large.itl_ms is not None
    assert small.itl_ms.p99.value < large.itl_ms.p99.value


def test_four_configurations_teach_the_terms_of_a_machine(calibration: tuple[Calibration, Path]) -> None:
    found = calibration[0]
    assert found.arms == 4
    assert found.before > 20
    assert found.after < 10
    assert found.moved
    assert "each predicted from the others" in found.text


def test_configurations_that_were_not_run_are_predicted(calibration: tuple[Calibration, Path]) -> None:
    """Twelve others, against the machine itself: throughput to 10 %, p95 of ITL and TTFT to 20 % in the median."""
    errors: dict[str, list[float]] = {"throughput": [], "itl": [], "ttft": []}
    for clients in (16, 64):
        for tensor in (1, 2, 4):
            for sequences in (16, 128):
                spec = study(clients)
                config = plans.config(("tensor-parallel-size", tensor), ("max-num-seqs", sequences))
                truth = measured(spec, config, SLOW).measurement
                guess = measured(spec, config, calibration[0].found).measurement
                errors["throughput"].append(guess.output_tokens_per_s.value / truth.output_tokens_per_s.value - 1)
                errors["itl"].append(p95(guess.itl_ms) / p95(truth.itl_ms) - 1)
                errors["ttft"].append(p95(guess.ttft_ms) / p95(truth.ttft_ms) - 1)
    medians = {name: float(np.median(np.abs(values))) for name, values in errors.items()}
    assert len(errors["itl"]) == 12
    assert medians["throughput"] <= 0.10, medians
    assert medians["itl"] <= 0.20, medians
    assert medians["ttft"] <= 0.20, medians


def test_plan_from_a_study_uses_and_names_it(calibration: tuple[Calibration, Path]) -> None:
    ask = {"model": "llama-3-8b", "gpu": "h100", "rate": "20/s", "lossless": True}
    plain = make_plan(PlanAsk.model_validate(ask))
    taught = make_plan(PlanAsk.model_validate(ask), load_study(calibration[1]))
    assert (taught.answer.options[0].capacity_per_replica or 0) < (plain.answer.options[0].capacity_per_replica or 0)
    assert any("calibrated with 4 measured" in note for note in taught.answer.notes)
    assert "study's own configurations" in taught.answer.options[0].band.of


def test_a_study_of_something_else_is_refused(calibration: tuple[Calibration, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the study measured llama-3-8b"):
        make_plan(PlanAsk(model="qwen3-8b", gpu="h100", rate="1/s"), load_study(calibration[1]))
    with pytest.raises(UsageError, match="predictions"):
        calibrate(plans.predicted_plan())
    with pytest.raises(UsageError, match="does not cover"):
        calibrate(plans.make_plan())
    words = ["plan", "--model", "llama-3-8b", "--gpu", "h100", "--rate", "1/s", "--from-study"]
    assert CliRunner().invoke(app, [*words, str(calibration[1])]).exit_code == 0
    assert isinstance(CliRunner().invoke(app, [*words, str(tmp_path)]).exception, UsageError)
