"""What every emitter must keep, for any plan. Inherit in a class named Test..., with `emitter` and `plan` fixtures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePath, PurePosixPath

import yaml
import yamllint.config
import yamllint.linter

from tests.contract.readers import reader
from tuner.domain.plan import Plan
from tuner.output.base import Emitter

_TOKEN = re.compile(r"hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9]{8,}")
_CLOCK = re.compile(r"\b20\d\d-\d\d-\d\d|\b\d\d:\d\d:\d\d\b")
_BIN = Path(sys.executable).parent
_YAML_RULES = yamllint.config.YamlLintConfig(
    "{extends: relaxed, rules: {line-length: disable, document-start: disable}}")


class EmitterContract:
    """Holds for every emitter and every plan."""

    def test_the_same_plan_gives_the_same_bytes(self, emitter: Emitter, plan: Plan):
        again = Plan.model_validate_json(plan.model_dump_json())
        assert dict(emitter.files(plan)) == dict(emitter.files(again))

    def test_paths_are_plain_names_inside_the_bundle(self, emitter: Emitter, plan: Plan):
        for name in emitter.files(plan):
            path = PurePosixPath(name)
            assert not path.is_absolute()
            assert ".." not in path.parts
            assert re.fullmatch(r"[A-Za-z0-9._/-]+", name)

    def test_text_ends_in_one_newline_and_shows_every_character(self, emitter: Emitter, plan: Plan):
        for text in emitter.files(plan).values():
            assert text.endswith("\n")
            assert not text.endswith("\n\n")
            assert all(ch.isprintable() or ch == "\n" for ch in text)
            assert not any(line.endswith(" ") for line in text.split("\n"))

    def test_every_file_says_which_plan_it_is_from(self, emitter: Emitter, plan: Plan):
        for text in emitter.files(plan).values():
            assert plan.plan_id in text
            assert plan.tool_version in text

    def test_numbers_say_whether_they_were_measured(self, emitter: Emitter, plan: Plan):
        for name, text in emitter.files(plan).items():
            if name.endswith((".sh", ".yaml", ".md")):
                assert ("MEASURED" if plan.measured else "PREDICTED") in text
                if not plan.measured:
                    assert "MEASURED" not in text

    def test_nothing_of_the_tuning_machine_and_no_clock_and_no_token(self, emitter: Emitter, plan: Plan):
        private = [plan.launch.program[0], *plan.study.engine.program, plan.study.model.location, plan.launch.model]
        for text in emitter.files(plan).values():
            for path in private:
                assert not PurePath(path).is_absolute() or path not in text
            assert not _TOKEN.search(text)
            body = text.replace(plan.launch.image or "\0", "")
            # a location's own name may look like a date (Mistral-Small-3.2-24B-Instruct-2506)
            assert not _CLOCK.search(body)

    def test_scripts_are_bash_that_shellcheck_accepts(self, emitter: Emitter, plan: Plan, tmp_path: Path):
        for name, text in emitter.files(plan).items():
            if not name.endswith((".sh", ".sbatch")):
                continue
            script = tmp_path / PurePosixPath(name).name
            script.write_text(text)
            assert text.startswith("#!/usr/bin/env bash\n")
            assert "\nset -euo pipefail\n" in text
            for command in (["bash", "-n", script], [_BIN / "shellcheck", "-S", "style", script]):
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                assert run.returncode == 0, run.stdout + run.stderr

    def test_yaml_has_no_lint_and_no_anchor(self, emitter: Emitter, plan: Plan):
        for name, text in emitter.files(plan).items():
            if not name.endswith((".yaml", ".yml")):
                continue
            assert [str(problem) for problem in yamllint.linter.run(text, _YAML_RULES)] == []
            assert yaml.safe_load(text)

    def test_measured_is_emitted(self, emitter: Emitter, plan: Plan, tmp_path: Path):
        """Whatever an emitter writes to start a server starts it with the launch spec's arguments and variables."""
        files = emitter.files(plan)
        for name in files:
            read = reader(name)
            if read is not None:
                read(files, name, plan, tmp_path)

    def test_files_of_the_launch_say_what_was_measured(self, emitter: Emitter, plan: Plan):
        """A file that the program reads has the same content as the trial's, below the header."""
        emitted = emitter.files(plan)
        for file in plan.launch.files:
            if file.name in emitted:
                text = emitted[file.name]
                assert [line for line in text.splitlines() if not line.startswith("#")] == [
                    line for line in file.text.rstrip().splitlines() if not line.startswith("#")]
                if file.name.endswith(".yaml"):
                    assert yaml.safe_load(text) == yaml.safe_load(file.text)
