"""Figures: every number is drawn, nothing of the machine or the user's settings is, and a page stays a page."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from tests.fakes.plans import NASTY
from tuner.domain.slo import parse_slo
from tuner.domain.trial import Estimate, LoadPoint
from tuner.output import canvas
from tuner.output.plots import load_curves

pytestmark = pytest.mark.unit

LIMITS = parse_slo("p95 ttft<=500ms, error_rate<=1%").limits


def estimate(value, share=0.05):
    return Estimate(value=value, low=value * (1 - share), high=value * (1 + share), n=30)


def level(load, *, keeps=True, rate=False, ttft=100.0):
    where = {"rate_per_s": load} if rate else {"clients": int(load)}
    return LoadPoint(**where, in_flight=load, requests=99, output_tokens_per_s=estimate(40 * load),
                     requests_per_s=estimate(load), p95_ttft_ms=estimate(ttft), p95_itl_ms=estimate(20.0),
                     limits={"p95 ttft<=500ms": estimate(ttft)}, meets_slo=keeps)


SWEEP = (level(1), level(8), level(16, ttft=450), level(32, keeps=False, ttft=900))


def texts(svg):
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_load_curves_show_every_panel_the_slo_and_the_knee():
    said = texts(load_curves([("default", SWEEP[:2]), ("best", SWEEP)], LIMITS))
    assert {"output tokens/s", "p95 TTFT, ms", "p95 ITL, ms", "SLO 500", "best, knee 16", "default, knee 8"} <= set(said)
    assert "clients at once" in said
    assert {"1", "8", "16", "32"} <= set(said)
    assert not any("error_rate" in text for text in said)


def test_levels_may_come_in_any_order_and_by_rate():
    rates = [level(load, rate=True) for load in (2.5, 0.5, 1.0)]
    assert load_curves([("a", rates)]) == load_curves([("a", sorted(rates, key=lambda one: one.load))])
    assert "requests/s offered" in texts(load_curves([("a", rates)]))


def test_nothing_to_draw_is_no_figure():
    assert load_curves([]) == ""
    assert load_curves([("default", ())], LIMITS) == ""
    assert load_curves([("default", ()), ("best", SWEEP[:1])], LIMITS)


def test_a_lowest_level_that_misses_has_no_knee():
    said = texts(load_curves([("best", [level(1, keeps=False), level(2)])], LIMITS))
    assert "best" in said


def test_names_are_text_and_not_mathematics_or_markup():
    said = texts(load_curves([("$x^2$ <b>&amp;", SWEEP), (NASTY, SWEEP)], LIMITS))
    assert "$x^2$ <b>&amp;, knee 16" in said
    assert any("\\u2603" in text or "pwned" in text for text in said)


def test_a_figure_fits_into_a_page():
    svg = load_curves([("best", SWEEP)], LIMITS)
    assert svg.startswith("<svg ")
    assert not re.search(r"<style|<metadata|<!--|<script|<image|purl\.org", svg)
    assert set(re.findall(r"https?://[^\"]+", svg)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    colours = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg)) - {"none"}
    assert all(colour.startswith("var(--") for colour in colours)
    ids = re.findall(r' id="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', svg)) == set(ids)
    assert 'role="img"' in svg
    assert "DejaVu" not in svg


def test_two_figures_share_no_id():
    ids = [set(re.findall(r' id="([^"]+)"', load_curves([("best", SWEEP)], LIMITS, name=name))) for name in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_the_same_bytes_in_another_process_whatever_the_user_set(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.fonttype: path\naxes.grid: False\n")
    code = ("import sys; sys.path.insert(0, '.')\nimport matplotlib; assert matplotlib.rcParams['font.size'] == 30\n"
            "from tests.unit.test_output_plots import LIMITS, SWEEP, load_curves\n"
            "sys.stdout.write(load_curves([('best', SWEEP)], LIMITS))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={"MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "HOME": str(tmp_path), "PATH": ""})
    assert done.stdout == load_curves([("best", SWEEP)], LIMITS)


def test_the_last_digits_of_a_coordinate_change_no_byte():
    """Machines differ there, and a bundle is compared byte by byte."""
    drawn = [canvas.draw("clip", "a line", 2.0, lambda figure, left=left: figure.add_axes((left, 0.1, 0.5, 0.5)).plot([0, 1]))
             for left in (0.2, 0.2 + 1e-9)]
    assert drawn[0] == drawn[1]


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    canvas.draw("x", "y", 1.0, lambda figure: figure.subplots().plot([1, 2]))
    assert dict(mpl.rcParams) == before


def test_every_colour_is_given_for_light_dark_and_paper():
    css = canvas.style()
    for colour in canvas.PALETTE:
        assert css.count(f"--{colour.name}: ") == 3
    assert css.count("{") == css.count("}")


def test_matplotlib_is_loaded_by_the_first_figure_only():
    code = ("import sys\nimport tuner.app.plan_files, tuner.app.emit, tuner.app.bench, tuner.cli.plan\n"
            "assert 'matplotlib' not in sys.modules\n"
            "from tuner.output import canvas\ncanvas.draw('x', 'y', 1.0, lambda figure: None)\n"
            "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_limit_far_from_the_curve_is_still_inside_the_panel():
    said = texts(load_curves([("best", [level(1), level(2)])], parse_slo("p95 ttft<=1500ms").limits))
    assert {"p95 TTFT, ms", "SLO 1500", "1500"} <= set(said)
