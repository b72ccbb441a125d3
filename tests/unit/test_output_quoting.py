"""Any text comes through YAML, JSON and Markdown as the same text, and quoted text shows every character."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.fakes.texts import ANY
from tuner.errors import OutputError
from tuner.output import quoting

pytestmark = pytest.mark.unit


@given(ANY)
def test_quoted_words_hold_nothing_that_cannot_be_seen(text):
    assert quoting.shell(text).isprintable()


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_what_no_program_can_be_given_is_refused(text):
    with pytest.raises(OutputError, match=r"NUL|Unicode"):
        quoting.shell(text)


@given(st.dictionaries(ANY, ANY | st.none() | st.integers() | st.booleans() | st.lists(ANY), max_size=8))
def test_yaml_gives_the_same_value_back(value):
    text = quoting.dump_yaml(value)
    assert yaml.safe_load(text) == value
    assert all(ch.isprintable() or ch == "\n" for ch in text)


@pytest.mark.parametrize("text", [
    "y", "N", "on", "Off", "YES", "true", "null", "~", "22:22", "0123", "0o17", "1e3", "1_000", "-1", "0x1f", ".5",
    "2001-01-01", "", "=", "<<", "---", "nan", "1.0", "+1", "190:20:30", "0b1", "Inf",
])
def test_strings_that_some_yaml_reads_as_something_else_are_quoted(text):
    assert quoting.dump_yaml([text]).strip() == f'- "{text}"'


@pytest.mark.parametrize("text", ["--max-num-seqs", "vllm", "meta-llama/Meta-Llama-3-70B", "/models/x.y", "-n"])
def test_plain_words_stay_plain(text):
    assert quoting.dump_yaml([text]).strip() == f"- {text}"


def test_yaml_keeps_key_order_writes_no_anchor_and_indents_lists():
    shared = ["a"]
    assert quoting.dump_yaml({"z": shared, "a": shared}) == "z:\n  - a\na:\n  - a\n"


@given(st.recursive(ANY | st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
                    lambda inner: st.lists(inner) | st.dictionaries(ANY, inner), max_leaves=10))
def test_json_gives_the_same_value_back_and_shows_every_character(value):
    text = quoting.dump_json(value)
    assert json.loads(text) == value
    assert all(ch.isprintable() or ch == "\n" for ch in text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\udcff"])
def test_json_refuses_what_no_other_reader_takes(value):
    with pytest.raises(OutputError):
        quoting.dump_json({"value": value})


@given(ANY)
def test_a_comment_is_nothing_but_comments(text):
    lines = quoting.comment(text).split("\n")
    assert len(lines) == text.count("\n") + 1
    assert all(line.startswith("#") and line.isprintable() for line in lines)
    assert yaml.safe_load("\n".join(lines)) is None


def inline(markdown: str) -> list[object]:
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    return [token for token in tokens if token.type == "inline"]


@given(ANY)
def test_markdown_in_a_cell_is_one_cell_of_plain_text(text):
    head, cell, last = inline(f"| a | b |\n| --- | --- |\n| {quoting.md(text)} | end |\n")[1:]
    shown = "".join(child.content for child in cell.children)
    assert {child.type for child in cell.children} <= {"text", "text_special", "softbreak"}
    assert shown == quoting.visible(text.replace("\n", " ")).strip()
    assert last.content == "end"
    assert head.content == "b"


@given(ANY)
def test_markdown_at_the_start_of_a_line_is_plain_text(text):
    tokens = MarkdownIt("commonmark").parse(quoting.md(text))
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}
    shown = "".join(child.content for token in tokens for child in token.children or ())
    assert shown == quoting.visible(text.replace("\n", " ")).strip()


@pytest.mark.parametrize("text", ["p95 ttft<=500ms", "12.3 [11.8, 12.9]", "max_num_seqs=64", "A & B", "20% -> 30%"])
def test_markdown_leaves_readable_text_readable(text):
    assert quoting.md(text) == text


@given(ANY)
def test_a_code_span_holds_inside_a_cell(text):
    cells = inline(f"| a | b |\n| --- | --- |\n| {quoting.code(text)} | end |\n")[2:]
    assert [child.type for child in cells[0].children] == (["code_inline"] if text.strip("\n ") else ["text"])
    assert cells[1].content == "end"


@given(ANY)
def test_a_fenced_block_is_one_block(text):
    tokens = MarkdownIt("commonmark").parse(quoting.fenced(text, "sh") + "\n\nend\n")
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]


@given(ANY)
def test_a_slug_is_a_name_that_compose_takes(text):
    name = quoting.slug(text)
    assert 0 < len(name) <= 63
    assert name[0].isalnum()
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize(("text", "name"), [
    ("Meta-Llama-3-70B-Instruct", "meta-llama-3-70b-instruct"), ("my model", "my-model"), ("...", "model"), ("a.b", "a-b"),
])
def test_slugs_stay_recognisable(text, name):
    assert quoting.slug(text) == name
