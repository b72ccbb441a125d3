"""Every way a command can end badly, with its exit code and a hint.

    LlmtuneError                       1
      UsageError                       2   wrong option or option value
        SloError                       2   an SLO that cannot be parsed
      ModelError                       3   unknown alias, broken directory, unsupported architecture
      EngineError                      4   engine not found, wrong version
      FlagError                        5   a flag that this engine version does not have, or a value it does not take
      SpaceError                       6   a search space, study file or other input file that is wrong
      HardwareError                    7   no GPU for a model and engine that need one
      StudyError                       8   the study holds another question, is locked or corrupt
      OutputError                      9   a directory that cannot be written, a full disk, a file that is not ours
      PortError                       10   a port that is taken
      NothingMeasuredError                11   the study ended without one good measurement
      DriftError                      12   emitted files differ from their plan
      ServerError                     13   the server to be loaded cannot be reached or used
    InternalError                     70   a fault of llmtune itself
    InterruptedStudyError            130   Ctrl-C; says how to resume

Two commands also end with 1 without any of these: `check` when it found errors in the files, and `explain` when it
knows nothing that is in the log.

A failed trial is none of these: it is a value (`tuner.domain.trial.Failed`).
"""

from __future__ import annotations


class LlmtuneError(Exception):
    """Base of all errors that end a command.

    `hint` says what to do next; `exit_code` is what the process ends with.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LlmtuneError):
    """An option or its value is wrong."""

    exit_code = 2


class SloError(UsageError):
    """An SLO that cannot be parsed."""


class ModelError(LlmtuneError):
    """The model cannot be found, read or served."""

    exit_code = 3


class EngineError(LlmtuneError):
    """The engine cannot be found, or its version is not usable."""

    exit_code = 4


class FlagError(LlmtuneError):
    """A flag that this engine version does not have, or a value that it does not take."""

    exit_code = 5


class SpaceError(LlmtuneError):
    """An input file (search space, study file, workload) that is wrong; the message carries file and line."""

    exit_code = 6


class HardwareError(LlmtuneError):
    """The machine lacks what the model and engine need."""

    exit_code = 7


class StudyError(LlmtuneError):
    """The study's storage is locked, corrupt or holds another question."""

    exit_code = 8


class OutputError(LlmtuneError):
    """Something could not be written where it was asked for."""

    exit_code = 9


class PortError(LlmtuneError):
    """A port that is taken."""

    exit_code = 10


class NothingMeasuredError(LlmtuneError):
    """The study ended without one good measurement, so there is nothing to deploy."""

    exit_code = 11


class DriftError(LlmtuneError):
    """Emitted files differ from what their plan says."""

    exit_code = 12


class ServerError(LlmtuneError):
    """The server to be loaded cannot be reached, or it is not one that can be loaded."""

    exit_code = 13


class InternalError(LlmtuneError):
    """A fault of llmtune itself; the traceback stands above it."""

    exit_code = 70


class InterruptedStudyError(LlmtuneError):
    """The user stopped the command."""

    exit_code = 130
