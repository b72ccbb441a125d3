"""Which formats are written, what the lock file keeps, and what counts as drift."""

import json

import pytest
from typer.testing import CliRunner

from tests.fakes.cases import two_hosts
from tests.fakes.plans import make_plan, no_image_plan
from tuner.app.emit import check_plan, emit_plan, list_targets
from tuner.cli.main import app
from tuner.domain.plan import Plan
from tuner.errors import DriftError, OutputError, UsageError
from tuner.output import bundle
from tuner.output.emitters import ALWAYS, DEFAULT_TARGETS, EMITTERS, choose
from tuner.output.lock import LOCK, Lock, content_digest

pytestmark = pytest.mark.unit


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_only_the_targets_that_were_asked_for_are_written_and_the_lock_keeps_them(tmp_path):
    bundle.emit(make_plan(), tmp_path, targets=("serve",))
    assert "deploy/serve.sh" in names(tmp_path)
    assert "deploy/compose.yaml" not in names(tmp_path)
    assert json.loads((tmp_path / LOCK).read_text())["targets"] == ["serve"]
    bundle.emit(make_plan(complete=False), tmp_path)
    assert "deploy/compose.yaml" not in names(tmp_path)


def test_other_targets_replace_the_files_of_the_old_ones(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    bundle.emit(make_plan(), tmp_path, targets=("compose",))
    assert "deploy/serve.sh" not in names(tmp_path)
    assert bundle.check(make_plan(), tmp_path) == ""


def test_the_usual_targets_leave_no_trace_in_the_lock(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    assert json.loads((tmp_path / LOCK).read_text())["targets"] == []


@pytest.mark.parametrize(("asked", "said"), [(["nope"], "no target named 'nope'"), ([""], "no target is named")])
def test_a_target_that_is_not_there_is_refused(asked, said):
    with pytest.raises(UsageError, match=said):
        choose(asked, make_plan())


def test_a_target_that_the_plan_cannot_be_written_in_is_refused_with_the_reason():
    with pytest.raises(OutputError, match="names no container image"):
        choose(["compose"], no_image_plan())


def test_every_emitter_says_what_it_writes_and_refuses_what_it_does_not():
    for emitter in EMITTERS.values():
        assert emitter.summary
        for plan in (make_plan(), no_image_plan()):
            assert bool(emitter.files(plan)) != bool(emitter.refusal(plan)) or emitter.name in ALWAYS


def test_list_shows_every_target_and_why_a_plan_does_not_fit(tmp_path):
    bundle.emit(no_image_plan(), tmp_path)
    rows = {name: remark for name, _, remark in list_targets(tmp_path)}
    assert set(rows) == set(EMITTERS) - set(ALWAYS)
    assert rows["serve"] == "default"
    assert "image" in rows["compose"]
    shown = CliRunner().invoke(app, ["emit", "--list"])
    assert shown.exit_code == 0
    assert all(name in shown.output for name in rows)


def test_the_command_needs_a_plan():
    run = CliRunner().invoke(app, ["emit"])
    assert isinstance(run.exception, UsageError)


def test_targets_are_given_with_commas_or_again_and_again(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    written = emit_plan(tmp_path, tmp_path / "new", targets=["serve,compose", "docker-run"])
    assert {path.name for path in written} >= {"serve.sh", "compose.yaml", "docker-run.sh"}


def test_one_changed_byte_a_changed_plan_and_a_missing_file_are_drift(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    for name in names(tmp_path):
        path = tmp_path / name
        if name == bundle.PLAN:
            continue
        old = path.read_bytes()
        path.write_bytes(old[:-1] + b" \n")
        with pytest.raises(DriftError):
            check_plan(tmp_path, None)
        path.unlink()
        with pytest.raises(DriftError):
            check_plan(tmp_path, None)
        path.write_bytes(old)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
    check_plan(tmp_path, None)
    assert bundle.check(make_plan(warnings=("another",)), tmp_path) != ""
    plan = tmp_path / bundle.PLAN
    plan.write_text(plan.read_text() + " ")
    assert bundle.check(make_plan(), tmp_path) != ""


def as_another_version(folder):
    """Rewrite plan.json as a version would that does not know the newest fields, lock file and all."""
    path = folder / bundle.PLAN
    raw = json.loads(path.read_text())
    del raw["sizing"]["knee_in_flight"]
    del raw["launch"]["nodes"]
    path.write_text(json.dumps(raw, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    lock = json.loads((folder / LOCK).read_text())
    lock["files"][bundle.PLAN] = content_digest(path.read_bytes())
    del lock["targets"]
    (folder / LOCK).write_text(json.dumps(lock, indent=2, sort_keys=True) + "\n")


def test_a_tree_of_an_older_version_is_no_drift_when_the_output_is_the_same(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    as_another_version(tmp_path)
    check_plan(tmp_path, None)
    lock = tmp_path / LOCK
    lock.write_text(lock.read_text().replace("\n", "\n ", 1))
    with pytest.raises(DriftError):
        check_plan(tmp_path, None)


def test_a_field_that_is_at_its_default_does_not_change_the_plan_id():
    plan = make_plan()
    raw = plan.model_dump(mode="json")
    del raw["launch"]["nodes"]
    assert Plan.model_validate(raw).plan_id == plan.plan_id


def test_frozen_restores_what_the_lock_says_and_nothing_else(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    (tmp_path / "deploy/serve.sh").unlink()
    bundle.emit(make_plan(), tmp_path, frozen=True)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before
    with pytest.raises(DriftError, match="not those of"):
        bundle.emit(make_plan(warnings=("another",)), tmp_path, frozen=True)
    with pytest.raises(DriftError, match="is not there"):
        bundle.emit(make_plan(), tmp_path / "empty", frozen=True)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_frozen_keeps_the_plan_of_another_version(tmp_path):
    bundle.emit(make_plan(), tmp_path)
    as_another_version(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    bundle.emit(make_plan(), tmp_path, frozen=True)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_a_lock_of_before_targets_means_the_usual_ones(tmp_path):
    lock = Lock.model_validate({"plan_id": "x", "files": {}})
    assert (lock.targets or DEFAULT_TARGETS) == DEFAULT_TARGETS


def test_a_server_on_two_hosts_is_told_its_rank_and_not_its_size_twice():
    launch = two_hosts().launch
    assert (launch.nodes.count, launch.nodes.devices, launch.devices) == (2, 8, 16)
    assert "--nnodes" not in launch.arguments
    assert launch.nodes.follower == ("--headless",)
    assert "takes 2 hosts" in EMITTERS["compose"].refusal(two_hosts())
    assert EMITTERS["compose"].files(two_hosts()) == {}


def test_plans_of_before_nodes_and_the_knee_still_load():
    raw = make_plan().model_dump(mode="json")
    del raw["launch"]["nodes"]
    del raw["sizing"]["knee_in_flight"]
    assert Plan.model_validate(raw) == make_plan()
