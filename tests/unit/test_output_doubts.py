"""What a person at 2 a.m. must not miss: a plan that nothing confirmed says so at the top of every file."""

import pytest

from tests.fakes.cases import data_parallel, speculative
from tests.fakes.plans import make_plan, no_image_plan, predicted_plan
from tuner.domain.plan import Verdict
from tuner.output.emitters import EMITTERS
from tuner.output.page import page
from tuner.output.readme import ReadmeEmitter
from tuner.output.report import report
from tuner.output.words import doubts

pytestmark = pytest.mark.unit

UNVERIFIED = speculative().model_copy(update={
    "arms": (), "verdict": Verdict(kind="not_verified", reference="none", text="every finalist failed in the verification")})


@pytest.mark.parametrize(("plan", "word"), [
    (UNVERIFIED, "NOT VERIFIED"), (no_image_plan(), "NOT VERIFIED"), (data_parallel(), "MISSES THE SLO"), (predicted_plan(), "PREDICTED"),
], ids=["unverified", "unverified-cpu", "missed", "predicted"])
def test_every_file_says_it_in_its_first_lines(plan, word):
    seen = 0
    for emitter in EMITTERS.values():
        for name, text in emitter.files(plan).items():
            if name in (".gitignore", ".env.example"):
                continue
            top = text if name.endswith(".json") else "\n".join(text.splitlines()[:8])
            assert f"{word}:" in top, name
            seen += 1
    assert seen > 3
    assert f"{word}:" in report(plan).split("##")[0]
    assert f"{word}:" in page(plan).split("<h2>")[0]
    readme = ReadmeEmitter().files(plan)["README.md"]
    assert readme.index(f"**{word}:") < readme.index("## Start")
    assert "before users depend on these files" in readme


def test_a_sound_plan_has_none():
    assert doubts(make_plan()) == ()
    assert "NOT VERIFIED" not in report(make_plan())


def test_nothing_in_doubt_is_scaled_by_itself():
    """An autoscaler multiplies a mistake: without a trial that kept the SLO there is no threshold."""
    missed = UNVERIFIED.model_copy(update={"sizing": UNVERIFIED.sizing.model_copy(update={"knee_in_flight": None}), "trials": ()})
    assert not any("scaledobject" in name for name in EMITTERS["k8s"].files(missed))
