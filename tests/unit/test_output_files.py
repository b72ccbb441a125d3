"""Files appear whole or not at all, and an error says which path and what helps."""

import errno
import os
from pathlib import Path

import pytest

from tuner.errors import OutputError
from tuner.output import files

pytestmark = pytest.mark.unit


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_text_is_written_with_parents_and_modes(tmp_path):
    files.write_text(tmp_path / "a" / "b" / "run.sh", "#!/bin/sh\n")
    files.write_text(tmp_path / "a" / "plan.json", "{}\n")
    assert (tmp_path / "a/b/run.sh").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "a/b/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "a/plan.json").stat().st_mode & 0o777 == 0o644
    assert everything(tmp_path) == ["a", "a/b", "a/b/run.sh", "a/plan.json"]


def test_newlines_are_kept_as_they_are(tmp_path):
    files.write_text(tmp_path / "x", "a\r\nb\n\N{SNOWMAN}")
    assert (tmp_path / "x").read_bytes() == "a\r\nb\n\N{SNOWMAN}".encode()


@pytest.mark.parametrize(("call", "code", "hint"), [
    ("os.fsync", errno.ENOSPC, "make room"),
    ("os.fsync", errno.EDQUOT, "make room"),
    ("os.fchmod", errno.EPERM, "may write to"),
    ("pathlib.Path.replace", errno.EACCES, "may write to"),
    ("tempfile.mkstemp", errno.EROFS, "may write to"),
    ("pathlib.Path.mkdir", errno.ENOTDIR, "each other's place"),
    ("tempfile.mkstemp", errno.EIO, "choose another directory"),
])
def test_a_failing_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, call, code, hint):
    target = tmp_path / "plan.json"
    target.write_text("old")

    def fail(*_args, **_options):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(call, fail)
        with pytest.raises(OutputError, match=os.strerror(code)) as raised:
            files.write_text(target, "new")
    assert str(target) in raised.value.message
    assert hint in raised.value.hint
    assert target.read_text() == "old"
    assert everything(tmp_path) == ["plan.json"]


def test_an_error_of_the_writer_itself_passes_and_leaves_nothing(tmp_path):
    def write():
        with files.atomic_file(tmp_path / "x") as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert everything(tmp_path) == []


def test_a_directory_in_the_place_of_a_file_is_an_error(tmp_path):
    (tmp_path / "x" / "y").mkdir(parents=True)
    with pytest.raises(OutputError, match="cannot write"):
        files.write_text(tmp_path / "x", "text")
    assert everything(tmp_path) == ["x", "x/y"]


def test_text_that_is_not_unicode_is_refused_before_anything_is_touched(tmp_path):
    with pytest.raises(OutputError, match="Unicode"):
        files.write_text(tmp_path / "new" / "x", "\udcff")
    assert everything(tmp_path) == []


def test_a_writable_directory_is_left_as_it_was(tmp_path):
    files.check_writable(tmp_path)
    files.check_writable(tmp_path / "not" / "there" / "yet")
    assert everything(tmp_path) == []


def test_a_file_in_the_way_is_found_before_the_study(tmp_path):
    (tmp_path / "outputs").write_text("a file")
    with pytest.raises(OutputError, match=r"cannot write .*outputs") as raised:
        files.check_writable(tmp_path / "outputs" / "model")
    assert "each other's place" in raised.value.hint


def test_a_read_only_directory_is_found_before_the_study(tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    with pytest.raises(OutputError, match="Permission denied") as raised:
        files.check_writable(tmp_path / "new")
    assert "--out" in raised.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_an_error(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        files.check_writable(closed / "study")


def test_the_hint_for_a_full_disk_says_how_much_is_free():
    error = files.output_error(Path("/tmp/x/plan.json"), OSError(errno.ENOSPC, "No space left on device"))
    assert "MiB are free" in error.hint
    assert error.exit_code == 9
