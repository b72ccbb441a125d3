"""`llmtune studies`: what an onlooker sees of studies, and that looking changes nothing."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import plans
from tests.fakes.command_line import Llmtune, command_line, held, tree
from tests.unit.test_search_ledger import DROPPED, MACHINE, OOM, RULED_OUT
from tuner.app import studies
from tuner.app.studies import export_study, list_studies, show_study
from tuner.domain.engine import StartupFacts
from tuner.domain.plan import Importance
from tuner.domain.study import StudySpec
from tuner.domain.trial import Measured, Outcome, Trial
from tuner.errors import UsageError
from tuner.output import trial_table
from tuner.output.bundle import emit
from tuner.output.trial_table import write_table
from tuner.search import reading
from tuner.search.ledger import Ledger
from tuner.search.spaces import Dimension, OpenSpace

pytestmark = pytest.mark.unit

SPACE = OpenSpace(
    engine="vllm", version="0.32.0", pins=(), closed=(),
    dimensions=(
        Dimension(flag="max-num-seqs", values=(None, 64, 128)),
        Dimension(flag="gpu-memory-utilization", values=(None, 0.9, "auto")),
        Dimension(flag="enable-prefix-caching", values=(None, True, False)),
    ),
)
SLO = "p95 ttft<=500ms"


def measured(rate: float) -> Measured:
    return Measured(measurement=plans.measurement(rate), startup=StartupFacts(), start_s=31.5, peak_memory_bytes=5)


@contextmanager
def study(
    out: Path, spec: StudySpec | None = None, *, storage: str | None = None, name: str = "chat-1", keep_spec: bool = True,
    direction: Any = "maximize",
) -> Iterator[Callable[..., int]]:
    """Open a study; what is given tries a point, and without an outcome leaves it running."""
    spec = spec or plans.study(name=name)
    folder = out / spec.model.name / spec.name
    with Ledger.open(name=spec.name, question=spec.question, direction=direction, folder=folder, storage=storage,
                     spec=spec if keep_spec else None) as book:
        def tried(outcome: Outcome | None, score: float | None = None, missed: float = -0.5, **choices: Any) -> int:
            point = {dimension.flag: None for dimension in SPACE.dimensions} | {
                flag.replace("_", "-"): value for flag, value in choices.items()}
            config = SPACE.config(point)
            number = book.begin(config, point, SPACE, "search")
            if outcome is not None:
                violations = {SLO: missed} if score is not None else {}
                trial = Trial(number=number, purpose="search", config=config, outcome=outcome, evidence=f"trials/{number:04d}")
                book.finish(trial, score=score, violations=violations)
            return number

        yield tried


def example(out: Path, **changes: Any) -> None:
    with study(out, **changes) as tried:
        tried(measured(100), 100.0)
        tried(measured(140), 140.0, max_num_seqs=64, gpu_memory_utilization="auto")
        tried(measured(190), 190.0, 0.4, max_num_seqs=128, gpu_memory_utilization=0.9)
        tried(OOM, gpu_memory_utilization=0.9)
        tried(DROPPED, enable_prefix_caching=False)
        tried(RULED_OUT, enable_prefix_caching=True)
        tried(MACHINE, max_num_seqs=64)
        tried(None, max_num_seqs=64)


@pytest.fixture
def llmtune(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Llmtune]:
    with command_line(monkeypatch, capsys) as run:
        yield run


# --- list


def test_a_list_of_studies(tmp_path: Path) -> None:
    example(tmp_path)
    (row,) = list_studies(tmp_path, None)
    assert (row.name, row.place, row.model, row.engine) == ("chat-1", "tiny-15m/chat-1", "tiny-15m", "vllm 0.32.0")
    assert row.objective == "output_tokens_per_s"
    assert row.trials == {"cut off": 1, "dropped": 1, "failed": 2, "infeasible": 1, "measured": 3}
    assert row.best is not None
    assert (row.best.number, row.best.score, row.best.low, row.best.high) == (1, 140.0, 133.0, 147.0)
    assert row.working == ()
    assert row.last_activity is not None
    assert datetime.now(UTC) - row.last_activity < timedelta(minutes=5)


def test_the_best_of_a_study_that_minimises(tmp_path: Path) -> None:
    example(tmp_path, spec=plans.study(name="quick", objective="p95_ttft"), direction="minimize")
    (row,) = list_studies(tmp_path, None)
    assert row.best is not None
    assert (row.best.number, row.best.score) == (0, 100.0)
    assert row.best.low == pytest.approx(95.0), "the interval in the score's own scale"


def test_nothing_that_keeps_the_slo_is_no_best(tmp_path: Path, llmtune: Llmtune) -> None:
    with study(tmp_path) as tried:
        tried(measured(100), 100.0, 0.2)
    (row,) = list_studies(tmp_path, None)
    assert row.best is None
    assert "none keeps the SLO" in llmtune("studies", "list", "--out", str(tmp_path)).out
    assert "best so far none keeps the SLO" in llmtune("studies", "show", "chat-1", "--out", str(tmp_path)).out


def test_somebody_is_working_on_it(tmp_path: Path, llmtune: Llmtune) -> None:
    """A study is looked at while it runs, and goes on: no lock is taken, nothing is written."""
    with study(tmp_path) as tried:
        tried(measured(100), 100.0)
        running = tried(None, max_num_seqs=64)
        before = tree(tmp_path)
        (row,) = list_studies(tmp_path, None)
        assert len(row.working) == 1
        assert row.working[0].startswith("process ")
        assert row.trials == {"measured": 1, "running": 1}
        said = llmtune("studies", "show", "chat-1", "--out", str(tmp_path))
        assert f"at work: {row.working[0]}" in said.out
        assert tree(tmp_path) == before
        assert tried(measured(120), 120.0, max_num_seqs=128) == running + 1
    (row,) = list_studies(tmp_path, None)
    assert row.working == ()
    assert row.trials == {"cut off": 1, "measured": 2}


def test_between_two_trials_the_lock_says_who_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with study(tmp_path) as tried:
        tried(measured(100), 100.0)
        assert list_studies(tmp_path, None)[0].working
        lock = tmp_path / "tiny-15m" / "chat-1" / "study.lock"
        holder = lock.read_text()
    lock.write_text(holder.replace('"pids":"', '"pids":"other '))
    assert list_studies(tmp_path, None)[0].working, "in a container that cannot be seen from here, and it has just ended one"
    monkeypatch.setattr(reading, "now_s", lambda: datetime.now(UTC).timestamp() + 7200)
    assert not list_studies(tmp_path, None)[0].working


def test_several_studies_the_latest_last(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with study(tmp_path, name=name) as tried:
            tried(measured(1), 1.0)
    assert [row.name for row in list_studies(tmp_path, None)] == ["one", "two"]
    folder = tmp_path / "tiny-15m"
    assert [row.place for row in list_studies(folder, None)] == ["one", "two"], "the model's own folder"
    assert [row.place for row in list_studies(folder / "two", None)] == ["two"], "the study's own folder"


def test_one_that_cannot_be_read_hides_no_other(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    bad = tmp_path / "tiny-15m" / "bad" / "study.journal"
    bad.parent.mkdir()
    bad.write_text("garbage\nmore\n")
    rows = {row.name: row for row in list_studies(tmp_path, None)}
    assert rows["chat-1"].best
    assert "corrupt" in rows["tiny-15m/bad"].problem
    said = llmtune("studies", "list", "--out", str(tmp_path))
    assert said.code == 0
    assert "cannot be read" in said.out
    assert "corrupt" in said.err
    held(llmtune("studies", "show", "bad", "--out", str(tmp_path)), 8, "corrupt")


def test_a_half_written_line_is_nobodys_business(tmp_path: Path) -> None:
    example(tmp_path)
    journal = tmp_path / "tiny-15m" / "chat-1" / "study.journal"
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 8, "worker')
    before = journal.read_bytes()
    assert list_studies(tmp_path, None)[0].trials["measured"] == 3
    assert journal.read_bytes() == before


def test_no_study_at_all(tmp_path: Path, llmtune: Llmtune) -> None:
    said = llmtune("studies", "list", "--out", str(tmp_path))
    assert (said.code, said.out) == (0, "")
    assert f"no study under {tmp_path}" in said.err
    held(llmtune("studies", "show", "x", "--out", str(tmp_path)), 2, "there is no study 'x'", "there is none")


def test_a_study_of_an_llmtune_that_kept_less(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path, keep_spec=False)
    (row,) = list_studies(tmp_path, None)
    assert (row.model, row.objective, row.engine) == ("", "", "vllm 0.32.0")
    assert row.best is not None
    assert (row.best.score, row.best.low) == (140.0, None)
    assert "140" in llmtune("studies", "show", "chat-1", "--out", str(tmp_path)).out


# --- show


def test_a_study_in_full(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    shown = show_study("chat-1", tmp_path, None)
    assert shown.question["slo"] == "p95 ttft<=500ms, p99 itl<=80ms"
    assert shown.question["budget"] == "6 trials"
    outcomes = [(line.outcome, line.cause) for line in shown.lines]
    assert outcomes == [
        ("measured", ""), ("measured", ""), ("measured", ""), ("failed", "out_of_memory"), ("dropped", "objective"),
        ("infeasible", "heads_divide"), ("failed", "machine"), ("cut off", "")]
    assert [line.score is not None for line in shown.lines] == [True] * 3 + [False] * 5
    assert [line.meets_slo for line in shown.lines[:3]] == [True, True, False]
    assert shown.lines[4].bound == plans.estimate(50.0)
    said = llmtune("studies", "show", "chat-1", "--out", str(tmp_path))
    assert said.code == 0
    text = said.out
    assert "best so far MEASURED 140 [133, 147] output_tokens_per_s (trial 1)" in text
    assert "out_of_memory: CUDA out of memory" in text
    assert "objective: cannot reach 100 (was at 50 [47.5, 52.5])" in text
    assert "max-num-seqs=64" in text
    assert "engine defaults" in text
    assert "spread" not in text, "no plan, no importance"


def test_a_plan_adds_its_verdict_and_what_matters(tmp_path: Path, llmtune: Llmtune) -> None:
    spec = plans.study(name="chat-1")
    example(tmp_path, spec=spec, keep_spec=False)
    plan = plans.make_plan(study=spec, importances=(Importance(flag="max-num-seqs", share=0.75),))
    emit(plan, tmp_path / "tiny-15m" / "chat-1")
    (row,) = list_studies(tmp_path, None)
    assert row.best is not None
    assert row.best.low == 133.0, "the question is known from the plan"
    text = llmtune("studies", "show", "chat-1", "--out", str(tmp_path)).out
    assert plan.verdict.text in text
    assert "max-num-seqs                     75%" in text
    (tmp_path / "tiny-15m" / "chat-1" / "plan.json").write_text("{")
    assert show_study("chat-1", tmp_path, None).importances == ()


def test_an_unreadable_record_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example(tmp_path)
    journal = tmp_path / "tiny-15m" / "chat-1" / "study.journal"
    journal.write_text(journal.read_text().replace('\\"kind\\":\\"dropped\\"', '\\"kind\\":\\"unheard of\\"'))
    assert list_studies(tmp_path, None)[0].trials["unreadable"] == 1


def test_a_configuration_of_another_version(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    journal = tmp_path / "tiny-15m" / "chat-1" / "study.journal"
    journal.write_text(journal.read_text().replace('"config":{"engine"', '"config":{"motor"'))
    assert "cannot be read" in list_studies(tmp_path, None)[0].problem
    held(llmtune("studies", "show", "chat-1", "--out", str(tmp_path)), 8, "a trial cannot be read")


@pytest.mark.parametrize(("name", "hint"), [
    ("chat1", "did you mean chat-1?"), ("zzz", "there are: chat-1, rag-2"), ("rag", "did you mean rag-2?")])
def test_an_unknown_study(tmp_path: Path, llmtune: Llmtune, name: str, hint: str) -> None:
    for known in ("chat-1", "rag-2"):
        example(tmp_path, name=known)
    for words in (("show",), ("export",)):
        held(llmtune("studies", *words, name, "--out", str(tmp_path)), 2, f"there is no study {name!r}", hint)


def test_one_name_under_two_models(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    other = plans.study(name="chat-1")
    example(tmp_path, spec=other.model_copy(update={"model": other.model.model_copy(update={"name": "large"})}))
    held(llmtune("studies", "show", "chat-1", "--out", str(tmp_path)), 2, "several studies", "large/chat-1, tiny-15m/chat-1")
    assert show_study("large/chat-1", tmp_path, None).row.model == "large"


@pytest.mark.parametrize("scheme", ["journal", "sqlite"])
def test_a_shared_storage(tmp_path: Path, llmtune: Llmtune, scheme: str) -> None:
    url = f"{scheme}:///{tmp_path}/shared.{scheme}"
    out = tmp_path / "out"
    example(out, storage=url)
    (row,) = list_studies(out, url)
    assert row.trials["measured"] == 3
    said = llmtune("studies", "list", "--out", str(out))
    assert "keeps its trials in another storage" in said.err
    assert "140" in llmtune("studies", "show", "chat-1", "--out", str(out), "--storage", url).out
    assert list_studies(tmp_path / "nowhere", url)[0].best == row.best


@pytest.mark.parametrize("url", ["journal:///{}/none.journal", "sqlite:///{}/none.db"])
def test_a_storage_that_is_not_there_is_not_made(tmp_path: Path, llmtune: Llmtune, url: str) -> None:
    held(llmtune("studies", "list", "--storage", url.format(tmp_path)), 8, "there is no storage at")
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_holds_no_study_is_left_as_it_is(tmp_path: Path, llmtune: Llmtune) -> None:
    (tmp_path / "a.db").write_bytes(b"")
    held(llmtune("studies", "list", "--storage", f"sqlite:///{tmp_path}/a.db"), 8, "no such table")
    assert (tmp_path / "a.db").read_bytes() == b""


def test_a_password_is_not_said_again(llmtune: Llmtune) -> None:
    said = llmtune("studies", "list", "--storage", "postgresql://user:hunter2@127.0.0.1:1/db")
    assert said.code == 8
    assert "hunter2" not in said.out + said.err


# --- JSON and tables


def test_json(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    listed = json.loads(llmtune("studies", "list", "--out", str(tmp_path), "--json").out)
    assert listed["schema_version"] == 1
    assert listed["studies"][0]["best"]["score"] == 140.0
    shown = json.loads(llmtune("studies", "show", "chat-1", "--out", str(tmp_path), "--json").out)
    assert [line["outcome"] for line in shown["lines"]][3] == "failed"
    assert shown["row"]["trials"]["measured"] == 3


def test_a_table_has_a_row_a_trial_and_a_column_a_setting(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    said = llmtune("studies", "export", "chat-1", "--out", str(tmp_path))
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [row["number"] for row in rows] == [str(number) for number in range(8)]
    assert [row["setting.gpu-memory-utilization"] for row in rows] == ["", "auto", "0.9", "0.9", "", "", "", ""]
    assert [row["setting.enable-prefix-caching"] for row in rows][4:6] == ["false", "true"]
    assert rows[1]["score"] == "140.0"
    assert (rows[1]["score_low"], rows[1]["score_high"]) == ("133.0", "147.0")
    assert float(rows[1]["ttft_ms_p95"]) == pytest.approx(120 * 1.6)
    assert float(rows[1]["output_tokens_per_s_low"]) == pytest.approx(133)
    assert float(rows[1]["limit.p95 ttft<=500ms"]) == pytest.approx(192)
    assert rows[4]["bound"] == "50.0"
    assert rows[4]["output_tokens_per_s"] == "", "what was seen of a dropped trial is no result"
    assert all(row["score"] == "" for row in rows[3:])
    assert rows[3]["reason"] == "CUDA out of memory"
    assert rows[0]["began"].endswith("+00:00")


def test_a_table_as_json_keeps_types(tmp_path: Path) -> None:
    example(tmp_path)
    rows = json.loads(export_study("chat-1", tmp_path, None, form="json", to=None))
    assert [row["setting.gpu-memory-utilization"] for row in rows][:3] == [None, "auto", 0.9]
    assert [row["setting.enable-prefix-caching"] for row in rows][4:6] == [False, True]
    assert {frozenset(row) for row in rows} == {frozenset(rows[0])}, "every row has every column"


def test_a_table_goes_to_a_file(tmp_path: Path, llmtune: Llmtune) -> None:
    example(tmp_path)
    target = tmp_path / "deep" / "table.csv"
    said = llmtune("studies", "export", "chat-1", "--out", str(tmp_path), "--to", str(target))
    assert said.out == ""
    assert f"written to {target}" in said.err
    assert target.read_text() == llmtune("studies", "export", "chat-1", "--out", str(tmp_path)).out
    (tmp_path / "file").write_text("")
    held(llmtune("studies", "export", "chat-1", "--out", str(tmp_path), "--to", str(tmp_path / "file" / "x")), 9, "file")


def test_parquet_needs_a_file_and_its_library(
    tmp_path: Path, llmtune: Llmtune, monkeypatch: pytest.MonkeyPatch
) -> None:
    example(tmp_path)
    words = ("studies", "export", "chat-1", "--out", str(tmp_path), "--format", "parquet")
    held(llmtune(*words), 2, "Parquet is no text", "--to")
    monkeypatch.setattr(trial_table, "can_write_parquet", lambda: False)
    held(llmtune(*words, "--to", str(tmp_path / "x.parquet")), 2, "needs pyarrow", "llmtune[parquet]")
    assert not (tmp_path / "x.parquet").exists()


def test_parquet_columns_have_one_type_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pandas as pd

    seen: list[pd.DataFrame] = []
    monkeypatch.setattr(trial_table, "can_write_parquet", lambda: True)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", lambda self, file, **_: seen.append(self))
    rows = [{"a": 1, "b": 0.5, "c": True, "d": None}, {"a": None, "b": "auto", "c": None, "d": None}, {"a": 3, "b": False}]
    assert write_table(rows, "parquet", tmp_path / "x.parquet") == ""
    (frame,) = seen
    assert [str(kind) for kind in frame.dtypes[:3]] in (["Int64", "string", "boolean"], ["Int64", "str", "boolean"])
    assert list(frame["b"]) == ["0.5", "auto", "false"]


def test_parquet_for_real(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    example(tmp_path)
    export_study("chat-1", tmp_path, None, form="parquet", to=tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert [row["setting.max-num-seqs"] for row in table] == [None, 64, 128, None, None, None, 64, 64]
    assert table[1]["score"] == 140.0


def test_an_empty_table() -> None:
    assert write_table([], "json", None) == "[]\n"
    assert write_table([], "csv", None) == "\n"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['llmtune', 'studies', '--help']\n"
        "from tuner.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('LOADED', *[name for name in ('optuna', 'pandas', 'rich') if name in sys.modules])\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "LOADED"
    assert "export" in said


def test_an_interval_that_cannot_be_known(tmp_path: Path) -> None:
    assert studies._interval(plans.measurement(1.0), "max_rate", 3.0) == (None, None)
    assert studies._interval(plans.measurement(1.0), None, 3.0) == (None, None)
    with pytest.raises(UsageError):
        show_study("x", tmp_path, None)


def test_replicas_and_prices_scale_the_interval() -> None:
    measurement = plans.measurement(100.0)
    assert studies._interval(measurement, "output_tokens_per_s", 400.0) == (pytest.approx(380.0), pytest.approx(420.0))
    low, high = studies._interval(measurement, "cost_per_mtok", 7.0)
    assert low == pytest.approx(7.0 / 1.05)
    assert high == pytest.approx(7.0 / 0.95)
