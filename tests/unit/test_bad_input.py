"""What is wrong with an option or a file is one line that names it, whichever command reads it: never a traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tuner.app.check import check_paths
from tuner.app.plan import make_plan
from tuner.app.plan_ask import PlanAsk, resolve_plan
from tuner.app.studies import list_studies
from tuner.cli import main as command_line
from tuner.cli.main import app
from tuner.domain.json_text import parse_json
from tuner.errors import LlmtuneError, OutputError, SpaceError
from tuner.facts.flags import flag_table, newest_version
from tuner.facts.located import load_document
from tuner.inspect.view import Context
from tuner.output.files import write_text
from tuner.output.trial_table import write_table

pytestmark = pytest.mark.unit

DEEP = "[" * 100_000
LONG = "1" * 5_000
PLAN = ("plan", "--model", "llama-3-70b", "--rate", "2/s", "--gpu", "h100")
DRY = ("optimize", "--dry-run", "--model", "llama-3-70b", "--gpu", "h100x8")
GOLDEN = Path(__file__).parents[1] / "golden" / "cpu-local" / "plan.json"


def refused(*words: str) -> LlmtuneError:
    done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, LlmtuneError), (done.output, done.exception)
    assert "\n" not in done.exception.message
    return done.exception


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((*PLAN, "--gpus", "100000"), 2, "--gpus 100000: should be less than or equal to 1024"),
        ((*PLAN, "--headroom", "nan"), 2, "--headroom nan"),
        ((*PLAN, "--headroom", "0.9999999999999999"), 2, "--headroom 0.9999999999999999 is not a share"),
        ((*PLAN, "--rate", "9" * 20 + "/s"), 2, "more than 1,000,000 requests a second"),
        ((*PLAN, "--price", "h100x8=20"), 2, "'h100x8' is a number of GPUs"),
        ((*PLAN, "--gpus", "4", "--gpu", "h100x8"), 2, "say different numbers"),
        ((*PLAN, "--gpu", "h100x2,8xh100"), 2, "names H100-SXM5-80GB twice"),
        ((*PLAN, "--gpu", f"h100x{LONG}"), 2, "no GPU of that name"),
        ((*PLAN[:3], "--gpu", "h100", "--workload", "512x256@1e300/s"), 2, "rate_per_s"),
        ((*PLAN[:3], "--gpu", "h100", "--workload", f"{LONG}x1"), 2, "workload"),
        ((*DRY, "--gpu-hours", "-1"), 2, "--gpu-hours -1.0: should be greater than 0"),
        ((*DRY, "--gpu-hours", "nan"), 2, "--gpu-hours nan: should be a finite number"),
        ((*DRY, "--gpu-hours", "inf"), 2, "--gpu-hours inf"),
        ((*DRY, "--price", "-1"), 2, "--price -1.0"),
        ((*DRY, "--price", "inf"), 2, "--price inf"),
        ((*DRY, "--trials", "99999999"), 2, "--trials 99999999"),
        ((*DRY, "--finalists", "99999999"), 2, "--finalists 99999999"),
        ((*DRY, "--verify-rounds", "99999999"), 2, "--verify-rounds 99999999"),
        ((*DRY, "--requests", "99999999999"), 2, "--requests 99999999999"),
        ((*DRY, "--soak", "9999d"), 2, "longer than a year"),
        ((*DRY, "--set", "max-num-seqs=" + "9" * 26), 5, "--max-num-seqs is far below 2^63"),
        ((*DRY, "--set", f"speculative-config={DEEP}"), 5, "takes a JSON object"),
        ((*DRY, "--set", "env:="), 5, "'' is no name of a variable"),
        ((*DRY, "--set", "env:A B=1"), 5, "'A B' is no name of a variable"),
        ((*DRY, "--gpu", "h100,h200"), 2, "one machine has one type of GPU"),
        ((*DRY, "--baseline", "nosuchfile"), 6, "nosuchfile: no such file, and no `vllm serve`"),
        ((*DRY, "--storage", "foo"), 8, "is not a URL"),
        ((*DRY, "--storage", "foo://bar"), 8, "no storage of this kind"),
        ((*DRY, "--out", "/proc/llmtune"), 9, "cannot write /proc/llmtune"),
        (("emit", "x", "--check", "--frozen"), 2, "--check and --frozen exclude one another"),
        (("emit", "x", "--list", "--force"), 2, "--list and --force exclude one another"),
        (("bench", "--url", "http://127.0.0.1:1", "--requests", "99999999999"), 2, "--requests 99999999999"),
    ],
)  # fmt: skip
def test_an_option_is_refused_by_name(words: tuple[str, ...], code: int, says: str) -> None:
    error = refused(*words)
    assert says in error.message
    assert error.exit_code == code


@pytest.mark.parametrize("text", [DEEP, "[" * 150 + "]" * 150, LONG, '{"a": ' * 5_000, b"\xff", "{"])
def test_json_of_others_is_a_value_error_at_worst(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
    assert parse_json("[" * 50 + "NaN" + "]" * 50, constant=str)


@pytest.mark.parametrize("text", [DEEP, "- " * 5_000 + "a", "{a: " * 300 + "1" + "}" * 300, f"a: {LONG}"])
def test_yaml_of_others_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    with pytest.raises(SpaceError, match=r"w\.yaml"):
        load_document(path)


def test_anchors_that_multiply_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = tmp_path / "w.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(SpaceError, match="too large once its anchors are followed"):
        load_document(path)


@pytest.mark.parametrize("text", [DEEP, LONG, b"\xff\xfe", "{}", "[]", "null", '{"schema_version": 1}'])
def test_files_of_llmtunes_own_kinds_that_are_none(tmp_path: Path, text: str | bytes) -> None:
    raw = text if isinstance(text, bytes) else text.encode()
    for name in ("plan.json", "bench.json", "workload.yaml", "study.yaml", "config.json", "prices.yaml"):
        (tmp_path / name).write_bytes(raw)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    place = str(tmp_path)
    for words in (
        ("emit", place), ("compare", place, place), (*PLAN[:3], "--gpu", "h100", "--workload", f"{place}/workload.yaml"),
        (*PLAN[:1], "--model", place, *PLAN[3:]), (*DRY, "--warm-start", place), (*PLAN, "--from-study", place),
        (*PLAN, "--prices", f"{place}/prices.yaml"),
    ):  # fmt: skip
        assert refused(*words).exit_code in (2, 3, 5, 6), words
    if not isinstance(text, str) or not text.startswith(("{", "null")):
        assert refused(*DRY, "--study-file", f"{place}/study.yaml").exit_code == 6
        assert refused(*DRY, "--baseline", f"{place}/study.yaml").exit_code == 6


def test_a_result_that_is_none_names_its_fields(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("{}")
    assert "url: Field required" in refused("compare", str(tmp_path), str(tmp_path)).message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 10**23 - 1), ("num_hidden_layers", 10**20 - 1), ("num_hidden_layers", 10_001),
        ("vocab_size", 10**12), ("rope_theta", 1e300), ("num_attention_heads", -(10**30)),
    ],
)  # fmt: skip
def test_sizes_that_no_model_has_are_named(tmp_path: Path, key: str, value: float) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000,
              "num_attention_heads": 32, "intermediate_size": 11008, "max_position_embeddings": 4096}
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_max_length": int(1e30)}))
    resolve_plan(PlanAsk(model=str(tmp_path), gpu="h100", rate="1/s"))
    (tmp_path / "config.json").write_text(json.dumps({**config, key: value}))
    error = refused("plan", "--model", str(tmp_path), *PLAN[3:])
    assert f"config.json: {key} is " in error.message
    assert error.exit_code == 3


def test_classes_that_are_no_list(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("classes: {a: 1}\narrivals: {kind: open, rate_per_s: 1}\nrequests: 5\n")
    assert "w.yaml:" in refused("plan", "--model", "llama-3-70b", "--gpu", "h100", "--workload", str(path)).message


def test_the_number_of_gpus_in_their_name_counts() -> None:
    ask = PlanAsk(model="llama-3-8b", gpu="h100x1,l40s", rate="200/s")
    assert resolve_plan(ask).counts == {"H100-SXM5-80GB": 1}
    options = make_plan(ask).answer.options
    assert {option.gpus for option in options if option.gpu.startswith("H100")} == {1}
    assert max(option.gpus for option in options if option.gpu.startswith("L40S")) > 1


def test_a_release_that_is_not_known_is_said_everywhere() -> None:
    newest = newest_version("vllm")
    doubt = f"vllm 99.9 is not known here: its flags and defaults are taken from {newest}"
    assert flag_table("vllm", newest).doubt is None
    assert flag_table("vllm", "99.9").doubt == doubt
    assert doubt in resolve_plan(PlanAsk(model="llama-3-8b", gpu="h100", rate="1/s", engine_version="99.9")).notes
    shown = CliRunner().invoke(app, [*DRY, "--engine-version", "99.9"]).output
    assert doubt in " ".join(shown.split())


def test_check_says_that_a_release_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve a/b --port 8000\n")
    for version, expected in (("99.9", True), (newest_version("vllm"), False)):
        (item,) = check_paths([path], Context(version=version))
        assert any(issue.rule == "version-new" for issue in item.issues) is expected
    assert "version-new" in CliRunner().invoke(app, ["check", str(path), "--engine-version", "99.9"]).output


def test_a_space_in_which_nothing_can_work_is_refused() -> None:
    error = refused(*DRY[:-1], "l4x1")
    assert "every configuration is ruled out, most of them by memory" in error.message


def test_soak_and_limits_of_time_are_in_the_estimate() -> None:
    def work(*more: str) -> dict[str, float]:
        found: dict[str, float] = json.loads(CliRunner().invoke(app, [*DRY, "--json", *more]).stdout)
        return found

    plain, soaked, short, hours = work(), work("--soak", "2h"), work("--budget", "2h"), work("--gpu-hours", "24")
    assert soaked["seconds"] > plain["seconds"] + 7200
    assert soaked["starts"] == plain["starts"] + 1
    assert short["starts"] < plain["starts"]
    assert short["seconds"] == pytest.approx(7200, rel=0.15)
    assert hours["seconds"] == pytest.approx(3 * 3600, rel=0.15)


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for write in (lambda: write_table([{"a": 1}], "csv", pipe), lambda: write_text(pipe, "x")):
        with pytest.raises(OutputError, match="no regular file"):
            write()
    assert pipe.is_fifo()


def test_journals_that_hold_nothing_are_listed(tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("cut", b'{"op_code'), ("noise", b"\x8a\x00\xff" * 50)):
        (tmp_path / "m" / name).mkdir(parents=True)
        (tmp_path / "m" / name / "study.journal").write_bytes(content)
    rows = {row.place: row.problem for row in list_studies(tmp_path, None)}
    assert set(rows) == {"m/empty", "m/cut", "m/noise"}
    assert "holds no study" in rows["m/empty"]
    assert all(rows.values())


def test_a_lock_that_cannot_be_read_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(GOLDEN.read_bytes())
    assert "is not there" in refused("emit", str(tmp_path), "--frozen").message
    (tmp_path / "llmtune.lock.json").write_text("{")
    assert "cannot be read" in refused("emit", str(tmp_path), "--frozen").message


def test_a_plan_that_was_edited_is_not_written_over(tmp_path: Path) -> None:
    out = str(tmp_path)
    assert CliRunner().invoke(app, ["emit", str(GOLDEN), "--out", out]).exit_code == 0
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace('"seed": 0,', '"seed":  1,'))
    assert "plan.json is no longer what llmtune wrote" in refused("emit", out).message


class _Full(io.TextIOBase):
    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_standard_output_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["llmtune", "models"])
    monkeypatch.setattr(sys, "stdout", _Full())
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 9
    assert "cannot use the standard output: No space left on device" in capsys.readouterr().err


def test_a_closed_standard_output_is_no_fault() -> None:
    line = f"{sys.executable} -m tuner models >&-"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fault_of_our_own_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(command_line, "app", broken)
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 70
    shown = capsys.readouterr().err
    assert "ZeroDivisionError: a bug" in shown
    assert "this is a fault of llmtune" in shown


@pytest.mark.parametrize("service", ["{image: vllm, command: 5}", "{image: vllm, command: {a: b}}", "3", "{image: [1]}"])
def test_a_baseline_of_the_wrong_kind(tmp_path: Path, service: str) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(f"services:\n  v: {service}\n")
    assert "compose.yaml:" in refused(*DRY, "--baseline", str(path)).message
    path.write_text("services:\n  v: {image: vllm, command: [org/m, --max-num-seqs, 8], environment: [5]}\n")
    assert CliRunner().invoke(app, [*DRY, "--model", "org/m", "--baseline", str(path)]).exit_code == 0
