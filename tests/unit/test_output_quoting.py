"""Any text comes through a shell, a YAML parser, Compose and Markdown as the same text."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tuner.errors import OutputError
from tuner.output import quoting

pytestmark = pytest.mark.unit

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
NASTY = st.sampled_from([
    "", " ", "y", "n", "Yes", "on", "OFF", "null", "~", "22:22", "0123", "0o17", "1e3", "1_000", ".inf", "-.inf", "0x1f",
    "2001-01-01", "=", "<<", "- a", "a: b", "a #b", "#", "!tag", "&anchor", "*alias", "%d", "@x", "`", "---", "...", "{}",
    "[]", "?", "|", ">", "'", '"', "\\", "$(touch pwned)", "${HOME}", "$HOME", "$$", "!!", "a\nb", "a\r\nb", "\t",
    "\x1b[31mred", "\x85", "\u2028", "\u202e", "\ufeff", "\N{SNOWMAN}", "\U0001f600", "\x7f", "\xa0", "-1", "--", "-n",
    "it's", "x\\", "\\n", "\n", "a\n", "[0]=x", "{a,b}", "~root", "*", "a=b", "; rm -rf /", "trailing ", "\x01\x1f",
])
ANY = TEXT | NASTY


def bash_words(script: str) -> list[str]:
    run = subprocess.run(["bash", "-euo", "pipefail"], input=script.encode(), capture_output=True, check=True)
    assert run.stderr == b""
    return run.stdout.decode().split("\0")[:-1]


@given(st.lists(ANY, min_size=1, max_size=60))
@settings(max_examples=25, deadline=None)
def test_any_text_comes_through_bash_as_the_same_words(texts):
    lines = "\n".join(f"  {quoting.shell(text)}" for text in texts)
    assert bash_words(f"args=(\n{lines}\n)\nprintf '%s\\0' \"${{args[@]}}\"\n") == texts


@given(st.lists(ANY, min_size=1, max_size=40))
@settings(max_examples=15, deadline=None)
def test_any_text_comes_through_an_export_and_a_default(texts):
    script = "".join(
        f"export V{i}={quoting.shell(text)}\nW{i}=${{UNSET_{i}:-{quoting.shell(text)}}}\n"
        f"printf '%s\\0' \"$V{i}\" \"$W{i}\"\n"
        for i, text in enumerate(texts)
    )
    assert bash_words(script) == [text for text in texts for _ in range(2)]


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=30))
@settings(max_examples=10, deadline=None)
def test_a_mark_becomes_the_variable_and_the_text_around_it_stays(pairs):
    words = [quoting.shell_word(f"{before}{quoting.mark('host')}{after}", {"host": "host"}) for before, after in pairs]
    script = f"host='::1 $x'\nprintf '%s\\0' {' '.join(words)}\n"
    assert bash_words(script) == [f"{before}::1 $x{after}" for before, after in pairs]


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


@given(st.lists(ANY, min_size=1, max_size=50))
@settings(max_examples=10, deadline=None)
def test_comments_do_nothing_in_bash(texts):
    assert bash_words("\n".join(map(quoting.comment, texts)) + "\nprintf 'end\\0'\n") == ["end"]


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


def test_nothing_was_run(tmp_path: Path):
    quoted = quoting.shell(f"$(touch {tmp_path}/pwned)`touch {tmp_path}/pwned`")
    subprocess.run(["bash", "-c", f"true {quoted}"], check=True)
    assert list(tmp_path.iterdir()) == []
