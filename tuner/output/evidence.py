"""The evidence of a trial: what was launched, what came of it, every request, and the state of the machine.

    STUDY/trials/0003/launch.json        the launch spec
                      outcome.json       the trial with its outcome, phases and configuration
                      environment.json   readings of the machine
                      requests.jsonl.gz  one request a line
                      memory.json        memory as predicted and as the engine said, on GPUs
                      engine.log         written by the launcher

Every file appears whole or not at all.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner.domain.engine import LaunchSpec
from tuner.domain.load_record import RequestRecord
from tuner.domain.record import Record
from tuner.domain.trial import Environment, Trial
from tuner.errors import OutputError
from tuner.output.files import atomic_file, check_writable, output_error, write_text
from tuner.output.quoting import dump_json

TRIALS = "trials"

__all__ = ["TRIALS", "TrialFolder", "check_writable", "trial_folder"]


@dataclasses.dataclass(frozen=True)
class TrialFolder:
    """The folder of one trial."""

    path: Path

    @property
    def relative(self) -> str:
        """The folder relative to its study's, as `Trial.evidence` holds it."""
        return f"{TRIALS}/{self.path.name}"

    def write_launch(self, spec: LaunchSpec) -> None:
        """Write launch.json.

        Raises:
            OutputError: it cannot be written.

        """
        self._record("launch.json", spec)

    def write_outcome(self, trial: Trial) -> None:
        """Write outcome.json.

        Raises:
            OutputError: it cannot be written.

        """
        self._record("outcome.json", trial)

    def write_memory(self, pairs: Iterable[Record]) -> None:
        """Write memory.json: what was predicted of the device's memory beside what the engine said after its start.

        Raises:
            OutputError: it cannot be written.

        """
        write_text(self.path / "memory.json", dump_json([pair.model_dump(mode="json") for pair in pairs]))

    def write_environment(self, before: Environment, after: Environment | None = None) -> None:
        """Write environment.json with the readings around the load.

        Raises:
            OutputError: it cannot be written.

        """
        readings = {"before": before, "after": after}
        write_text(self.path / "environment.json", dump_json(
            {name: reading.model_dump(mode="json") for name, reading in readings.items() if reading is not None}
        ))

    def write_requests(
        self, records: Iterable[RequestRecord | Mapping[str, object]], name: str = "requests"
    ) -> int:
        """Write `<name>.jsonl.gz`, one request a line, while `records` are read; return how many there were.

        Raises:
            OutputError: it cannot be written, or a record holds what JSON cannot.

        """
        path = self.path / f"{name}.jsonl.gz"
        lines = 0
        with atomic_file(path) as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            for record in records:
                packed.write(_line(path, record))
                lines += 1
        return lines

    def _record(self, name: str, record: Record) -> None:
        write_text(self.path / name, dump_json(record.model_dump(mode="json")))


def trial_folder(study: Path, number: int) -> TrialFolder:
    """Make the folder of trial `number` under the study's directory, if it is not there yet.

    Raises:
        OutputError: it cannot be made.

    """
    path = study / TRIALS / f"{number:04d}"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(path, error) from error
    return TrialFolder(path)


def _line(path: Path, record: RequestRecord | Mapping[str, object]) -> bytes:
    fields = record if isinstance(record, Mapping) else _fields(record)
    try:
        text = json.dumps(fields, separators=(",", ":"), allow_nan=False, default=list)
    except (TypeError, ValueError) as error:
        raise OutputError(f"cannot write {path}: a request holds {error}") from error
    return text.encode() + b"\n"


def _fields(record: RequestRecord) -> dict[str, object]:
    """Return the fields without copying the long sequences, as `dataclasses.asdict` would."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
