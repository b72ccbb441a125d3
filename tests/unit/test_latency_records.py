"""Published records as points of a fit: what is taken, what is left out and why."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tuner.capacity.fit import Fit, errors_of, summary
from tuner.capacity.published import read_points, spec_of
from tuner.facts.read import data

pytestmark = pytest.mark.unit

ROW = {"engine": "vllm", "model": "meta-llama/Llama-3.1-70B", "gpu": "h100_sxm", "tp": "4", "dp": "1", "isl": "1024",
       "weight_quant": "fp8", "osl": "1024", "workload": "fixed-length random", "concurrency": "32",
       "tpot_mean_ms": "14.6", "ttft_mean_ms": "180", "notes": "batch_size=32"}


def points(tmp_path: Path, **more: str) -> int:
    file = tmp_path / "points.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(ROW))
        writer.writeheader()
        writer.writerow(ROW | more)
    return len(read_points(file))


def test_a_plain_record_is_taken_and_is_near_what_is_predicted(tmp_path: Path) -> None:
    assert points(tmp_path) == 1
    point = read_points(tmp_path / "points.csv")[0]
    fit = Fit(["vllm"])
    assert 0.6 < errors_of(fit, fit.start, [point])[0] < 1.6


@pytest.mark.parametrize("more", [
    {"gpu": "910B"},
    {"model": "someone/unknown"},
    {"weight_quant": "w2a2"},
    {"workload": "ShareGPT"},
    {"concurrency": ""},
    {"concurrency": "64"},
    {"ttft_mean_ms": "90000"},
    {"isl": "32000", "osl": "10", "concurrency": "32", "tpot_mean_ms": "5", "ttft_mean_ms": "20"},
])
def test_what_contradicts_itself_or_is_not_known_is_left_out(tmp_path: Path, more: dict[str, str]) -> None:
    assert points(tmp_path, **more) == 0


def test_the_label_of_a_record_decides_the_type_of_its_weights() -> None:
    small, plain = spec_of("meta-llama/Llama-3.1-70B", "nvfp4"), spec_of("meta-llama/Llama-3.1-70B", "")
    assert small is not None
    assert plain is not None
    assert small.quantization_bits == 4
    assert plain.quantization is None
    own = spec_of("openai/gpt-oss-120b", "nvfp4")
    assert own is not None
    assert own.quantization == "mxfp4"


def test_a_summary_counts_and_bounds() -> None:
    found = summary(np.array([0.5, 1.0, 1.0, 1.0, 2.0]))
    assert found["n"] == 5
    assert found["mape"] == pytest.approx(30.0)
    assert found["median"] == 0
    assert found["low"] < 1 < found["high"]


def test_the_fit_names_its_models_and_its_script() -> None:
    fitted = data("step_time.yaml")["fitted"]
    assert fitted["records"] > 1000
    assert len(fitted["models"]) >= 5
    assert Path(__file__).parents[2].joinpath(fitted["script"]).is_file()
