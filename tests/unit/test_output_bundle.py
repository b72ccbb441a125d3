"""A bundle is written whole, never over somebody else's file, and says when it drifted from its plan."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.fakes.plans import CASES, arm, config, make_plan, nasty_plan, no_image_plan
from tuner.domain.plan import Plan
from tuner.domain.trial import Estimate
from tuner.errors import OutputError, SpaceError, UsageError
from tuner.output import bundle
from tuner.output.lock import content_digest

pytestmark = pytest.mark.unit



@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def other_plan() -> Plan:
    return make_plan(warnings=("another plan",), config=config(("max-num-seqs", 8)))


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_plan_is_the_same_after_writing_and_loading(tmp_path, case):
    plan = CASES[case]()
    bundle.emit(plan, tmp_path)
    assert bundle.load_plan(tmp_path) == plan
    assert bundle.load_plan(tmp_path / "plan.json") == plan
    before = content(tmp_path)
    bundle.emit(bundle.load_plan(tmp_path), tmp_path)
    assert content(tmp_path) == before
    assert bundle.check(plan, tmp_path) == ""


def test_the_files_of_a_bundle(tmp_path):
    paths = bundle.emit(make_plan(), tmp_path / "tiny" / "chat")
    names = {
        "plan.json", "report.md", "report.html", "llmtune.lock.json", "deploy/compose.yaml", "deploy/docker-run.sh",
        "deploy/serve.sh",
        "deploy/README.md", "deploy/.env.example", "deploy/.gitignore",
    }
    assert {str(path.relative_to(tmp_path / "tiny" / "chat")) for path in paths} == names
    assert set(content(tmp_path / "tiny" / "chat")) == names
    assert os.access(tmp_path / "tiny/chat/deploy/serve.sh", os.X_OK)


def test_a_plan_without_an_image_has_no_container_files_and_says_why(tmp_path):
    bundle.emit(no_image_plan(), tmp_path)
    assert sorted(path.name for path in (tmp_path / "deploy").iterdir()) == [
        ".env.example", ".gitignore", "README.md", "serve.sh"]
    readme = (tmp_path / "deploy/README.md").read_text()
    assert "no `compose.yaml` and no `docker-run.sh`" in readme
    assert "--image" in readme


def test_files_that_the_new_plan_does_not_have_are_removed(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    bundle.emit(no_image_plan(), tmp_path)
    assert not (tmp_path / "deploy/compose.yaml").exists()
    assert bundle.check(no_image_plan(), tmp_path) == ""


def test_another_plan_replaces_untouched_files(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    bundle.emit(other_plan(), tmp_path)
    assert bundle.load_plan(tmp_path) == other_plan()
    assert bundle.check(other_plan(), tmp_path) == ""


def test_other_files_in_the_directory_are_never_touched(tmp_path):
    mine = {"journal.log": b"study", "trials/0001/outcome.json": b"{}", "deploy/compose.override.yaml": b"services: {}"}
    for name, text in mine.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text)
    bundle.emit(make_plan(), tmp_path)
    bundle.emit(other_plan(), tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in mine} == mine


@pytest.mark.parametrize("name", ["plan.json", "report.md", "llmtune.lock.json", "deploy/compose.yaml", "deploy/README.md"])
def test_a_file_that_llmtune_did_not_write_is_not_overwritten(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputError, match=f"{name} not written by llmtune") as raised:
        bundle.emit(make_plan(), tmp_path)
    assert "--force" in raised.value.hint
    assert content(tmp_path) == {name: b"mine"}
    bundle.emit(make_plan(), tmp_path, force=True)
    assert bundle.check(make_plan(), tmp_path) == ""


def test_an_edit_by_hand_is_not_overwritten(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    script = tmp_path / "deploy" / "serve.sh"
    script.write_text(script.read_text() + "# mine\n")
    before = content(tmp_path)
    with pytest.raises(OutputError, match=r"deploy/serve\.sh edited by hand"):
        bundle.emit(other_plan(), tmp_path)
    assert content(tmp_path) == before
    bundle.emit(other_plan(), tmp_path, force=True)
    assert bundle.check(other_plan(), tmp_path) == ""


def test_an_edited_file_is_not_removed_when_the_new_plan_does_not_have_it(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    (tmp_path / "deploy/compose.yaml").write_text("mine")
    with pytest.raises(OutputError, match="edited by hand"):
        bundle.emit(no_image_plan(), tmp_path)
    assert (tmp_path / "deploy/compose.yaml").read_text() == "mine"


def test_files_without_their_lock_are_ours_while_they_are_the_same(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    (tmp_path / "llmtune.lock.json").unlink()
    bundle.emit(make_plan(), tmp_path)
    assert bundle.check(make_plan(), tmp_path) == ""


@pytest.mark.parametrize("done", range(9))
def test_a_write_that_was_cut_off_goes_on_with_the_next_one(tmp_path, monkeypatch, done):
    bundle.emit(make_plan(), tmp_path)
    real = Path.replace
    renamed = []

    def cut_off(self, target):
        if ".llmtune-stage" in str(self) and ".llmtune-stage" not in str(target):
            if len(renamed) == done:
                raise KeyboardInterrupt
            renamed.append(target)
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut_off)
        with pytest.raises(KeyboardInterrupt):
            bundle.emit(other_plan(), tmp_path)
    assert len(renamed) == done
    third = make_plan(warnings=("third",))
    bundle.emit(third, tmp_path)
    assert bundle.check(third, tmp_path) == ""
    assert not list(tmp_path.glob(".llmtune*"))


def test_a_full_disk_leaves_the_old_bundle_as_it_was(tmp_path, monkeypatch):
    bundle.emit(make_plan(), tmp_path)
    before = content(tmp_path)
    calls = iter(range(100))

    def full(_descriptor):
        if next(calls) >= 6:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="No space left on device"):
            bundle.emit(other_plan(), tmp_path)
    assert content(tmp_path) == before


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "outputs").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        bundle.emit(make_plan(), tmp_path / "outputs" / "x")


def test_a_directory_in_the_place_of_a_file_is_an_error(tmp_path):
    (tmp_path / "report.md").mkdir()
    with pytest.raises(OutputError, match=r"report\.md"):
        bundle.emit(make_plan(), tmp_path)
    assert content(tmp_path) == {}


def test_a_lock_cannot_name_files_outside_the_bundle(tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("keep")
    folder = tmp_path / "bundle"
    bundle.emit(make_plan(), folder)
    lock = json.loads((folder / "llmtune.lock.json").read_text())
    for name in ("../outside.txt", str(outside), "deploy/../../outside.txt", "trials/x", ""):
        lock["files"][name] = content_digest(b"keep")
    (folder / "llmtune.lock.json").write_text(json.dumps(lock))
    bundle.emit(make_plan(), folder)
    assert outside.read_text() == "keep"


def test_check_shows_a_one_byte_edit_as_a_diff(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    script = tmp_path / "deploy" / "serve.sh"
    script.write_text(script.read_text().replace("--max-num-seqs 64", "--max-num-seqs 65"))
    diff = bundle.check(make_plan(), tmp_path)
    assert diff.startswith("--- deploy/serve.sh\n+++ deploy/serve.sh\n")
    assert "-  --max-num-seqs 65\n+  --max-num-seqs 64\n" in diff


def test_check_shows_a_missing_file_a_lost_mode_and_a_stale_file(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    (tmp_path / "report.md").unlink()
    (tmp_path / "deploy/serve.sh").chmod(0o644)
    diff = bundle.check(make_plan(), tmp_path)
    assert "--- /dev/null\n+++ report.md\n" in diff
    assert "deploy/serve.sh: not executable (mode 644)" in diff
    bundle.emit(make_plan(), tmp_path)
    assert "--- deploy/compose.yaml\n+++ /dev/null\n" in bundle.check(no_image_plan(), tmp_path)


def test_check_shows_a_changed_plan_and_a_lost_newline(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    assert "another plan" in bundle.check(other_plan(), tmp_path)
    readme = tmp_path / "deploy" / "README.md"
    readme.write_text(readme.read_text().rstrip("\n"))
    assert "\\ No newline at end of file" in bundle.check(make_plan(), tmp_path)


def test_check_survives_bytes_that_are_not_text(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    (tmp_path / "report.md").write_bytes(b"\xff\xfe\n")
    assert "\\xff" in bundle.check(make_plan(), tmp_path)


def test_check_changes_nothing(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    before = content(tmp_path)
    bundle.check(other_plan(), tmp_path)
    assert content(tmp_path) == before
    empty = tmp_path / "empty"
    assert bundle.check(make_plan(), empty).count("--- /dev/null") == 10
    assert not empty.exists()


@pytest.mark.parametrize(("text", "error", "says"), [
    (None, UsageError, "no plan at"),
    ("", SpaceError, "is not JSON"),
    ('{"schema_version": 1', SpaceError, "is not JSON.*line 1"),
    ("[]", SpaceError, "no schema_version"),
    ('{"a": 1}', SpaceError, "no schema_version"),
    ('{"schema_version": 2, "tool_version": "9.9"}', SpaceError, "schema version 2"),
    ('{"schema_version": 1}', SpaceError, "tool_version: Field required.*more"),
])
def test_a_plan_that_cannot_be_read_says_why(tmp_path, text, error, says):
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(error, match=says) as raised:
        bundle.load_plan(tmp_path)
    assert "plan.json" in raised.value.message
    assert raised.value.hint


def test_an_unknown_field_and_a_wrong_value_are_named(tmp_path):
    raw = json.loads(bundle.plan_text(make_plan()))
    raw["launch"]["prot"] = 8000
    raw["sizing"]["start_n"] = "many"
    (tmp_path / "plan.json").write_text(json.dumps(raw))
    with pytest.raises(SpaceError, match=r"launch\.prot: Extra inputs.*; sizing\.start_n: Input should be"):
        bundle.load_plan(tmp_path)


def test_a_plan_that_is_not_text_says_so(tmp_path):
    (tmp_path / "plan.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SpaceError, match="not UTF-8"):
        bundle.load_plan(tmp_path)


def test_a_number_that_is_not_finite_is_refused_before_writing(tmp_path):
    broken = arm("best", 1, config(), 1.0, score=Estimate(value=1.0, low=0.0, high=float("inf"), n=2))
    with pytest.raises(OutputError):
        bundle.emit(make_plan(arms=(broken,)), tmp_path)
    assert content(tmp_path) == {}


def test_bundle_directories_have_safe_names(tmp_path):
    assert bundle.bundle_directory(tmp_path, "Meta-Llama-3-70B", "chat") == tmp_path / "meta-llama-3-70b" / "chat"
    nasty = nasty_plan().study
    folder = bundle.bundle_directory(tmp_path, nasty.model.name, "../..")
    assert folder.relative_to(tmp_path).parts[1:] == ("study",)


def test_a_bundle_moved_elsewhere_still_checks(tmp_path):
    bundle.emit(make_plan(), tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    assert bundle.check(bundle.load_plan(tmp_path / "b"), tmp_path / "b") == ""


def moved(text):
    """What another release of matplotlib might draw: the same page, another place."""
    first = text.index("<svg ")
    return text[:first] + text[first:].replace('d="M ', 'd="M 0 0 M ', 1)


def lock_as_written(directory, name):
    lock = json.loads((directory / "llmtune.lock.json").read_text())
    lock["files"][name] = content_digest((directory / name).read_bytes())
    (directory / "llmtune.lock.json").write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n")


def test_figures_of_another_matplotlib_are_no_drift_and_frozen_keeps_them(tmp_path):
    plan = make_plan()
    bundle.emit(plan, tmp_path)
    page = tmp_path / "report.html"
    other = moved(page.read_text())
    assert other != page.read_text()
    page.write_text(other)
    assert "report.html" in bundle.check(plan, tmp_path)
    lock_as_written(tmp_path, "report.html")
    assert bundle.check(plan, tmp_path) == ""
    bundle.emit(plan, tmp_path, frozen=True)
    assert page.read_text() == other
    bundle.emit(plan, tmp_path)
    assert page.read_text() != other


def test_a_page_that_says_something_else_is_drift_whatever_the_lock_says(tmp_path):
    plan = make_plan()
    bundle.emit(plan, tmp_path)
    page = tmp_path / "report.html"
    page.write_text(page.read_text().replace("A clear winner", "A clear winner!"))
    lock_as_written(tmp_path, "report.html")
    assert "A clear winner!" in bundle.check(plan, tmp_path)
