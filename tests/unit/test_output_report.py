"""Header and report: every number says whether it was measured, nothing of the tuning machine is in them."""

import pytest
from markdown_it import MarkdownIt

from tests.fakes.plans import (
    CASES,
    arm,
    config,
    estimate,
    gpu_plan,
    make_plan,
    measurement,
    nasty_plan,
    no_image_plan,
    predicted_plan,
    study,
    warned_measurement,
)
from tuner.domain.engine import Setting
from tuner.domain.plan import Sizing, Verdict
from tuner.domain.slo import parse_slo
from tuner.domain.trial import Estimate
from tuner.domain.workload import ClosedLoop, Fixed, Lognormal, OpenLoop, Uniform, Workload
from tuner.output import numbers, words
from tuner.output.header import header_lines, provenance
from tuner.output.report import report

pytestmark = pytest.mark.unit


def lines(plan, label):
    return [text for name, text in provenance(plan) if name == label]


def cells(text, first):
    row = next(line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in row.strip("|").split(" | ")][1:]


def test_the_header_says_everything_that_was_asked_and_found():
    head = dict(provenance(gpu_plan()))
    assert head["tool"] == "llmtune 0.1.0"
    assert head["plan"].startswith(f"{gpu_plan().plan_id}, study peak-hours, question {gpu_plan().study.question}")
    assert head["model"] == "meta-llama/Meta-Llama-3-70B-Instruct@50fdd307a1da1afb4ab4d0e4d3a7c5b3e8d3c2a1"
    assert head["engine"] == "vllm 0.32.0, image vllm/vllm-openai:v0.32.0"
    assert head["hardware"] == "8 x NVIDIA H100 80GB HBM3, driver 570.86.15, 1024 GiB host memory"
    assert head["SLO"] == "p95 ttft<=500ms, p99 itl<=80ms"
    assert head["verdict"] == "winner: 15% more goodput than the baseline [12%, 19%]"
    assert head["command"].startswith("llmtune optimize")


def test_every_number_line_has_interval_n_and_rounds():
    measured = lines(gpu_plan(), "MEASURED")
    assert measured[0] == "goodput within the SLO 19.6 [19.21, 19.99] requests/s, n=3, 3 rounds"
    assert "output throughput 5100 [4797, 5409] tokens/s, n=33, 3 rounds" in measured
    assert "ratio to baseline 1.15 [1.12, 1.19], 3 rounds" in measured
    assert measured[-1] == "start 212.4 s, the longest of 6"
    assert lines(gpu_plan(), "PREDICTED") == []


def test_a_predicted_plan_has_no_measured_line():
    assert lines(predicted_plan(), "MEASURED") == []
    assert lines(predicted_plan(), "PREDICTED") == ["start 180 s"]


def test_a_start_that_was_not_measured_is_predicted_even_in_a_measured_plan():
    plan = make_plan(sizing=Sizing(start_s=60, start_n=0))
    assert lines(plan, "PREDICTED") == ["start 60 s"]


def test_a_plan_that_was_not_verified_says_so():
    assert lines(no_image_plan(), "MEASURED")[0] == (
        "output throughput 450 [427.5, 472.5] tokens/s, n=3, 1 trial, not verified")
    assert "(study not complete)" in dict(provenance(no_image_plan()))["verdict"]


def test_paths_of_the_tuning_machine_are_cut_down():
    plan = make_plan(command="llmtune optimize --model /data/models/tiny-15m --engine-command /opt/venvs/vllm/bin/vllm",
                     warnings=("cannot read /data/models/tiny-15m/generation_config.json",))
    assert dict(provenance(plan))["command"] == "llmtune optimize --model tiny-15m --engine-command vllm"
    assert "/data" not in report(plan)
    assert "tiny-15m/generation\\_config" not in report(plan)
    assert "tiny-15m/generation_config.json" in report(plan)


def test_a_relative_path_and_a_hub_id_are_left_alone():
    assert words.public(gpu_plan(), "vllm meta-llama/Meta-Llama-3-70B-Instruct") == (
        "vllm meta-llama/Meta-Llama-3-70B-Instruct")


def test_header_lines_are_one_line_each():
    assert all("\n" not in line for line in header_lines(nasty_plan()))
    assert header_lines(make_plan())[0].startswith("Written by llmtune 0.1.0 from plan ")


@pytest.mark.parametrize(("workload", "said"), [
    (Workload(name="a", input_tokens=Fixed(tokens=512), output_tokens=Fixed(tokens=256),
              arrivals=ClosedLoop(concurrency=64), requests=100),
     "a: 512 input and 256 output tokens, 64 at once (closed loop), 100 requests a run after 4 for warm-up"),
    (Workload(name="b", input_tokens=Uniform(low=1, high=9), output_tokens=Lognormal(median=50, sigma=0.5, high=99),
              arrivals=OpenLoop(rate_per_s=2.5), requests=9, warmup_requests=0, shared_prefix=0.5),
     ("b: 1 to 9 input and about 50 (lognormal, sigma 0.5, 1 to 99) output tokens, 2.5 requests/s (Poisson), "
      "9 requests a run after 0 for warm-up, 50% of each prompt is the same text")),
    (Workload(name="c", input_tokens=Fixed(tokens=1), output_tokens=Fixed(tokens=1),
              arrivals=OpenLoop(rate_per_s=1, burstiness=None), requests=1, shared_prefix=0.25, prefix_groups=3),
     ("c: 1 input and 1 output tokens, 1 requests/s (evenly spaced), 1 requests a run after 4 for warm-up, "
      "25% of each prompt is one of 3 texts")),
    (Workload(name="d", input_tokens=Fixed(tokens=1), output_tokens=Fixed(tokens=1),
              arrivals=OpenLoop(rate_per_s=1, burstiness=0.5), requests=1),
     "d: 1 input and 1 output tokens, 1 requests/s (burstiness 0.5), 1 requests a run after 4 for warm-up"),
])
def test_a_workload_in_words(workload, said):
    assert words.workload_words(workload) == said


def test_rounds_are_joined_by_their_mean_and_the_range_of_their_intervals():
    joined = numbers.over_rounds([Estimate(value=10, low=9, high=11, n=5), Estimate(value=14, low=12, high=15, n=7)])
    assert joined == Estimate(value=12, low=9, high=15, n=12)


def test_the_deployed_arm_is_the_one_with_the_deployed_settings_not_the_one_called_best():
    base = config(("max-num-seqs", 8))
    plan = make_plan(config=base, verdict=Verdict(kind="keep_baseline", reference="baseline", text="keep it"),
                     arms=(arm("baseline", 1, base, 100.0), arm("best", 2, config(), 101.0)))
    assert numbers.deployed_arm(plan).label == "baseline"
    assert numbers.reference_arm(plan) is None
    assert cells(report(plan), "metric") == ["baseline, trial 1, deployed", "best, trial 2"]


def test_readings_hold_every_limit_of_the_slo_and_no_name_twice():
    limits = {"mean e2e<=2000ms": estimate(900.0), "error_rate<=1%": Estimate(value=0.01, low=0.0, high=0.03, n=100)}
    plan = make_plan(
        study=study(slo=parse_slo("p99.9 ttft<=500ms, mean e2e<=2s, error_rate<=1%")),
        arms=(arm("best", 4, make_plan().config, 450.0, rounds=(measurement(450.0, limits=limits),)),),
    )
    readings = {reading.name: reading.text for reading in numbers.readings(plan, plan.arms[0])}
    assert readings["limit mean e2e<=2000ms"] == "900 [855, 945] ms, n=3, 1 round"
    assert readings["limit error_rate<=1%"] == "1 [0, 3] %, n=100, 1 round"
    assert readings["limit p99.9 ttft<=500ms"] == "-"
    assert "limit p99.9 ttft<=500ms" not in report(plan)
    assert any(text.startswith("limit error_rate<=1% 1 [0, 3] %") for text in lines(plan, "MEASURED"))
    names = [reading.name for reading in numbers.readings(plan, plan.arms[0])]
    assert len(names) == len(set(names))
    assert names[0] == "output throughput"


def test_a_metric_that_was_not_taken_is_a_dash():
    some = arm("default", 0, config(), 300.0, rounds=(warned_measurement(), measurement(310.0, stopped="time ran out")))
    none = arm("best", 4, make_plan().config, 300.0, rounds=(warned_measurement(),))
    text = report(make_plan(arms=(some, none)))
    assert cells(text, "p95 ITL, ms") == ["32 [30.4, 33.6] n=64", "-"]
    assert cells(text, "requests failed") == ["2", "2"]
    assert cells(text, "ended early") == ["time ran out", "no"]
    assert cells(text, "measurement warnings") == ["errors in 1 round", "errors in 1 round"]


def test_the_verdict_comes_first():
    text = report(make_plan())
    assert text.splitlines()[2] == (
        "**A clear winner.** 17.8% more output tokens/s than the default [15.1%, 20.4%] over 3 rounds")


def test_reference_and_best_stand_beside_each_other():
    text = report(gpu_plan())
    assert cells(text, "metric") == ["baseline, trial 1", "best, trial 4, deployed", "default, trial 0"]
    assert cells(text, "goodput within the SLO, requests/s") == [
        "17 [16.49, 17.51] n=3", "19.6 [19.21, 19.99] n=3", "16.2 [15.71, 16.69] n=3"]
    assert cells(text, "ratio to baseline") == ["-", "1.15 [1.12, 1.19] n=3", "-"]
    assert cells(text, "within the SLO") == ["no", "yes", "yes"]
    assert cells(text, "rounds") == ["3", "3", "3"]


def test_changes_say_from_what_to_what_and_why():
    text = report(make_plan())
    assert cells(text, "`max-num-seqs`") == ["(engine decides)", "`64`", "holds all 16 clients"]
    assert "No setting differs from the engine's default." in report(make_plan(changes=()))


def test_trials_say_why_they_failed_or_were_not_launched():
    text = report(make_plan())
    assert "5 trials: 3 measured, 1 failed, 1 infeasible." in text
    assert cells(text, "1")[1] == "infeasible"
    assert cells(text, "1")[-1] == "`block-size=16`: block size must be a multiple of 32 \\| on a CPU"
    assert cells(text, "3")[1] == "failed: out_of_memory"
    assert cells(text, "0")[-1] == "(the engine's defaults)"


def test_where_the_time_went():
    text = report(make_plan())
    assert cells(text, "engine starts of trials") == ["120.8", "3", "41.25"]
    assert cells(text, "load of the verification") == ["75.0", "6", "12.50"]
    assert cells(text, "llmtune itself, in trials") == ["1.1", "4", "0.31"]


def test_the_question_says_where_each_value_came_from():
    plan = make_plan(study=study(pins=(Setting(flag="dtype", value="float32"),),
                                 sources={"workload": "option", "seed": "study.yaml:12", "storage": "default"}))
    text = report(plan)
    assert cells(text, "workload")[1] == "option"
    assert cells(text, "seed") == ["0", "study.yaml:12"]
    assert cells(text, "pins")[0] == "dtype=float32"
    assert cells(text, "storage") == ["(see plan.json)", "default"]


def test_a_predicted_report_holds_no_measured_number():
    text = report(predicted_plan())
    assert "Nothing was measured." in text
    assert "everything in it is PREDICTED" in text
    assert "MEASURED" not in text


def test_warnings_and_failed_rounds_are_shown():
    failing = arm("best", 4, make_plan().config, 450.0, failures=("round 2: port lost",))
    text = report(make_plan(arms=(arm("default", 0, config(), 382.0), failing), warnings=("host was busy",)))
    assert "- host was busy" in text
    assert "Failed rounds of best, trial 4, deployed:\n\n- round 2: port lost" in text


def test_long_reasons_are_cut():
    row = make_plan().trials[3].model_copy(update={"reason": "x" * 5000})
    assert max(map(len, report(make_plan(trials=(row,))).splitlines())) < 800


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_report_is_whole_markdown(case):
    text = report(CASES[case]())
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings = [tokens[index + 1].content for index, token in enumerate(tokens) if token.type == "heading_open"]
    assert [heading.partition(" (")[0] for heading in headings[1:] if not heading.startswith("Where")] == [
        "Result", "The question", "Trials", "Environment", "Reproduce"]
    assert not any(token.type in {"html_block", "html_inline"} for token in tokens)
    for table in text.split("\n\n"):
        if table.startswith("|"):
            rows = table.splitlines()
            assert len({row.replace("\\|", "").count("|") for row in rows}) == 1, rows
    assert not any(line.endswith(" ") for line in text.splitlines())
    assert all(ch.isprintable() or ch == "\n" for ch in text)


def test_one_estimate_in_words():
    assert numbers.score_reading(make_plan(), make_plan().arms[1]).text == "450 [441, 459] tokens/s, n=3, 3 rounds"
    assert numbers.Reading("x", "ms", None, 0).text == "-"
    assert [numbers.count(1, "round"), numbers.count(2, "round")] == ["1 round", "2 rounds"]
