"""report.html: one file, no network, nothing breaks out, and it says what report.md says."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings

from tests.fakes.plans import CASES, NASTY, gpu_plan, make_plan, nasty_plan, no_image_plan, predicted_plan
from tests.fakes.texts import ANY
from tuner.output.page import page
from tuner.output.report import contents, report

pytestmark = pytest.mark.unit

VOID = {"meta", "br", "wbr"}


class Reader(HTMLParser):
    """Text, tags and attributes; fails on a tag that is not closed."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text = [], set(), [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.fixture(params=sorted(CASES))
def plan(request):
    return CASES[request.param]()


def test_it_is_one_light_file_without_script_or_network(plan):
    html = page(plan)
    read = Reader(html)
    assert len(html) < 200_000
    assert not read.tags & {"script", "img", "image", "link", "iframe", "object", "foreignobject"}
    assert not {name for name, _ in read.attributes} & {"src", "href", "onload", "onclick"}
    assert all(value.startswith("#") for name, value in read.attributes if name == "xlink:href")
    assert "@import" not in html
    assert html.count("url(") == html.count("url(#")


def test_ids_of_all_figures_are_different(plan):
    ids = [value for name, value in Reader(page(plan)).attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_names_stay_inside_figures(plan):
    read = Reader(page(plan))
    drawn = read.tags & {"svg", "g", "path", "use", "text", "defs", "clippath", "rect"}
    assert bool(drawn) == bool(plan.trials or plan.arms or plan.startup.weight_bytes)


def test_the_same_plan_gives_the_same_bytes_and_shows_every_character(plan):
    html = page(plan)
    assert page(type(plan).model_validate_json(plan.model_dump_json())) == html
    assert all(ch.isprintable() or ch == "\n" for ch in html)


def test_it_says_what_the_markdown_says(plan):
    words = Reader(page(plan)).words
    shown = contents(plan)
    plain = [shown["verdict"], shown["standing"], *shown["warnings"], shown["command"]]
    plain += [cell for row in shown["metrics"] for cell in (row["name"], *row["cells"])]
    plain += [row["value"] for row in shown["question"]] + [text for _, text in shown["environment"]]
    if plan.study.name != NASTY:
        for text in plain:
            assert " ".join(text.split()) in words
    assert report(plan)


def test_a_phone_a_printer_and_the_dark_are_thought_of():
    html = page(make_plan())
    assert 'name="viewport"' in html
    assert "@media print" in html
    assert "prefers-color-scheme: dark" in html


def test_the_verdict_comes_first():
    words = Reader(page(make_plan())).words
    assert words.index("A clear winner") < words.index("Warnings") < words.index("Result (MEASURED)") < words.index("Trials")


def test_the_slo_is_drawn_and_the_deployed_arm_is_marked():
    html = page(gpu_plan())
    figure = html[html.index("<figure>"):html.index("</figure>")]
    assert figure.count("stroke-dasharray") == 2
    assert "best, deployed" in figure
    assert "The dashed line is the limit of the SLO." in figure


def test_trials_show_the_best_so_far_what_misses_and_what_fails():
    words = Reader(page(make_plan())).words
    assert words.count("best so far") == 1
    assert "missed it" in words
    assert "out of memory: 1 trial" in words
    assert "ruled out before a launch: 1 trial" in words
    assert "more KV cache is needed" in words


def test_effects_order_values_and_say_that_they_are_a_hint():
    words = Reader(page(make_plan())).words
    effects = words[words.index("Scores by value"):]
    assert effects.index("121, n=1") < effects.index("450, n=1")
    assert "not a proof" in effects


def test_a_plan_without_trials_says_predicted_and_draws_nothing():
    read = Reader(page(predicted_plan()))
    assert "PREDICTED" in read.words
    assert "MEASURED" not in read.words
    assert "No trial stands behind this plan" in read.words
    assert "Not verified" in Reader(page(no_image_plan())).words


def test_nothing_in_a_name_is_markup():
    html = page(nasty_plan())
    Reader(html)
    assert "$(touch pwned)" in Reader(html).words


@given(ANY)
@settings(max_examples=40, deadline=None)
def test_any_verdict_and_warning_stay_text(text):
    hostile = f"</p><script>alert(1)</script>{text}<!--"
    html = page(make_plan(warnings=(hostile,)))
    read = Reader(html)
    assert "script" not in read.tags
    assert "<script>alert(1)</script>" in read.words
