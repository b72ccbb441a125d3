"""A trial's folder holds what was launched, what came of it and every request, whole or not at all."""

import array
import errno
import gzip
import json

import pytest

from tests.fakes.plans import config, launch, measurement
from tuner.domain.engine import LaunchSpec, StartupFacts
from tuner.domain.load_record import RequestRecord
from tuner.domain.trial import Environment, Failed, FailureKind, Measured, Phase, Trial
from tuner.errors import OutputError
from tuner.output.evidence import TrialFolder, trial_folder

pytestmark = pytest.mark.unit


def request_record(number: int) -> RequestRecord:
    return RequestRecord(
        id=f"r{number}", group="g", warmup=False, asked_input_tokens=8, asked_output_tokens=2, scheduled_ns=1,
        start_ns=2, sent_ns=3, end_ns=9, chunk_ns=array.array("q", [5, 9]), chunk_tokens=(1, 1), input_tokens=8,
        output_tokens=2, from_usage=True, count_mismatch=False, finish_reason="length", status=200, error=None,
    )


def lines(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_folders_are_numbered_and_named_relative_to_the_study(tmp_path):
    folder = trial_folder(tmp_path / "study", 3)
    assert folder.path == tmp_path / "study" / "trials" / "0003"
    assert folder.path.is_dir()
    assert folder.relative == "trials/0003"
    assert trial_folder(tmp_path / "study", 3) == folder


def test_launch_and_outcome_read_back_as_the_same_records(tmp_path):
    folder = trial_folder(tmp_path, 0)
    outcome = Measured(measurement=measurement(100.0), startup=StartupFacts(kv_cache_tokens=64), start_s=40.0)
    trial = Trial(number=0, purpose="default", config=config(("max-num-seqs", 8)), outcome=outcome,
                  phases=(Phase(name="launch", seconds=0.1, own=True),), evidence=folder.relative)
    folder.write_launch(launch())
    folder.write_outcome(trial)
    assert LaunchSpec.model_validate_json((folder.path / "launch.json").read_text()) == launch()
    assert Trial.model_validate_json((folder.path / "outcome.json").read_text()) == trial


def test_a_later_outcome_replaces_the_earlier_one(tmp_path):
    folder = trial_folder(tmp_path, 0)
    for reason in ("first", "second"):
        outcome = Failed(failure=FailureKind.MACHINE, reason=reason, phase="launch")
        folder.write_outcome(Trial(number=0, purpose="search", config=config(), outcome=outcome))
    assert json.loads((folder.path / "outcome.json").read_text())["outcome"]["reason"] == "second"


def test_environment_before_and_after(tmp_path):
    folder = trial_folder(tmp_path, 0)
    folder.write_environment(Environment(load_1m=0.5))
    assert set(json.loads((folder.path / "environment.json").read_text())) == {"before"}
    folder.write_environment(Environment(load_1m=0.5), Environment(load_1m=1.5))
    assert json.loads((folder.path / "environment.json").read_text())["after"]["load_1m"] == 1.5


def test_every_request_is_one_line(tmp_path):
    folder = trial_folder(tmp_path, 0)
    assert folder.write_requests(iter([request_record(0), request_record(1)])) == 2
    first, second = lines(folder.path / "requests.jsonl.gz")
    assert (first["id"], second["id"]) == ("r0", "r1")
    assert first["chunk_ns"] == [5, 9]
    assert first["error"] is None


def test_the_same_requests_give_the_same_bytes_at_any_time(tmp_path, monkeypatch):
    folder = trial_folder(tmp_path, 0)
    folder.write_requests([{"id": "a"}], "first")
    monkeypatch.setattr("time.time", lambda: 2e9)
    folder.write_requests([{"id": "a"}], "second")
    assert (folder.path / "first.jsonl.gz").read_bytes() == (folder.path / "second.jsonl.gz").read_bytes()


@pytest.mark.parametrize("bad", [{"x": float("nan")}, {"x": object()}])
def test_a_record_that_json_cannot_hold_leaves_no_file(tmp_path, bad):
    folder = trial_folder(tmp_path, 0)
    with pytest.raises(OutputError, match=r"requests\.jsonl\.gz"):
        folder.write_requests([{"x": 1}, bad])
    assert list(folder.path.iterdir()) == []


def test_a_disk_that_fills_up_in_the_middle_leaves_no_half_file(tmp_path, monkeypatch):
    folder = trial_folder(tmp_path, 0)

    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OutputError, match="No space left") as raised:
        folder.write_requests({"n": n} for n in range(1000))
    assert "run the same command again" in raised.value.hint
    assert list(folder.path.iterdir()) == []


def test_a_reader_that_fails_passes_its_error_and_leaves_no_half_file(tmp_path):
    folder = trial_folder(tmp_path, 0)

    def records():
        yield {"n": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write_requests(records())
    assert list(folder.path.iterdir()) == []


def test_a_study_directory_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "study").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        trial_folder(tmp_path / "study", 1)


def test_a_folder_that_vanished_comes_back(tmp_path):
    folder = TrialFolder(tmp_path / "trials" / "0001")
    folder.write_launch(launch())
    assert (tmp_path / "trials/0001/launch.json").exists()
