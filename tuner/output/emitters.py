"""Every output format by name."""

from __future__ import annotations

from tuner.output.base import Emitter
from tuner.output.compose import ComposeEmitter
from tuner.output.launch_files import LaunchFilesEmitter
from tuner.output.readme import ReadmeEmitter
from tuner.output.scripts import DockerRunEmitter, ServeScriptEmitter

EMITTERS: dict[str, Emitter] = {
    "compose": ComposeEmitter(),
    "docker-run": DockerRunEmitter(),
    "serve": ServeScriptEmitter(),
    "files": LaunchFilesEmitter(),
    "readme": ReadmeEmitter(),
}
