"""The bundles under docs/examples are what today's code writes from their plan.json."""

from pathlib import Path

import pytest

from tuner.output import bundle

pytestmark = pytest.mark.golden

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
FOLDERS = sorted(path.parent for path in EXAMPLES.glob("*/plan.json"))


@pytest.fixture(params=FOLDERS, ids=[folder.name for folder in FOLDERS])
def folder(request, update_golden):
    if update_golden:
        bundle.emit(bundle.load_plan(request.param), request.param)
    return request.param


def test_an_example_has_no_drift(folder):
    assert bundle.check(bundle.load_plan(folder), folder) == ""


def test_both_examples_are_there():
    assert [folder.name for folder in FOLDERS] == ["live-study-vllm-cpu", "plan-llama-3-70b-h100"]


def test_the_live_study_shows_what_a_study_does():
    """An example of early drops, of a knee found on one start, and of a verdict from fresh servers."""
    plan = bundle.load_plan(EXAMPLES / "live-study-vllm-cpu")
    outcomes = [trial.outcome for trial in plan.trials]
    assert plan.measured
    assert len(outcomes) >= 12
    assert outcomes.count("dropped") >= 1
    assert all(len(arm.levels) >= 3 and any(level.meets_slo for level in arm.levels) for arm in plan.arms)
    assert plan.verdict.kind == "winner"
