"""Templates are found in a source tree and in a wheel, and refuse what they do not know."""

import jinja2
import pytest

from tuner.output import render

pytestmark = pytest.mark.unit


@pytest.fixture
def templates(tmp_path, monkeypatch):
    """A package directory of an installed wheel, with templates of its own."""
    folder = tmp_path / "tuner" / "_bundled" / "templates"
    folder.mkdir(parents=True)
    monkeypatch.setattr(render, "_PACKAGE", tmp_path / "tuner")
    render._environment.cache_clear()
    yield folder
    render._environment.cache_clear()


def test_a_source_tree_has_its_templates_at_the_top():
    folder = render.template_directory()
    assert folder.name == "templates"
    assert (folder / "serve.sh.j2").is_file()


def test_a_wheel_has_its_templates_inside(templates):
    assert render.template_directory() == templates
    (templates / "x.j2").write_text("{{ name | sh }}\n")
    assert render.render("x.j2", name="a b") == "'a b'\n"


def test_a_name_that_is_not_given_is_an_error(templates):
    (templates / "x.j2").write_text("{{ missing }}")
    with pytest.raises(jinja2.UndefinedError, match="missing"):
        render.render("x.j2")


def test_every_filter_has_its_place(templates):
    (templates / "x.j2").write_text(
        "{{ t | sh }}\n{{ t | comment }}\n{{ t | md }}\n{{ t | code }}\n{{ t | fenced('sh') }}\n{{ t }}")
    assert render.render("x.j2", t="<b>|$x") == "$'<b>|$x'\n# <b>|$x\n&lt;b>\\|$x\n`<b>\\|$x`\n```sh\n<b>|$x\n```\n<b>|$x\n"


def test_the_end_is_one_newline_and_no_line_ends_in_a_space(templates):
    (templates / "x.j2").write_text("\n\na {{ '' }}\nb\n\n\n")
    assert render.render("x.j2") == "a\nb\n"
