"""Secrets never get past the redactor, however the engine's writes are cut; and log text that matters does."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.runtime.redact import LONGEST_PIECE, Redactor

pytestmark = pytest.mark.unit

OWN = b"correct-horse-battery"
HUB = b"hf_" + b"aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW"


def through(data: bytes, cuts: list[int], secrets: list[bytes]) -> bytes:
    redactor = Redactor(secrets)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    written = [redactor.feed(data[low:high]) for low, high in itertools.pairwise(edges)]
    return b"".join([*written, redactor.finish()])


@given(
    st.lists(st.sampled_from([OWN, HUB, b" ", b"\n", b"\r", b"plain text", b"token=", b"'", b"x" * 50]), max_size=30),
    st.lists(st.integers(0, 2000), max_size=20),
)
def test_no_cut_lets_a_secret_through(parts: list[bytes], cuts: list[int]):
    # Two secrets side by side make one word; it is the known value that must go, whatever stands around it.
    text = b" ".join(parts)
    written = through(text, cuts, [OWN])
    assert OWN not in written
    assert HUB not in written
    assert written.count(b"plain text") == text.count(b"plain text")


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW",
        "sk-aB3dE5fG7hI9jK1lM2nO4pQ6",
        "sk-proj-aB3dE5fG7hI9jK1lM2nO4pQ6",
        "nvapi-aB3dE5fG7hI9jK1lM2nO4pQ6",
        "ghp_aB3dE5fG7hI9jK1lM2nO4pQ6rS8tU0vW12",
        "github_pat_11AB3dE5fG7hI9jK1lM2nO4pQ6",
    ],
)
@pytest.mark.parametrize("around", ["{}", "token={}", "'{}'", '{{"key": "{}"}}', "x ({}), y", "https://u:{}@host/"])
def test_token_shapes_are_known(token: str, around: str):
    written = through(around.format(token).encode() + b"\n", [], [])
    assert token.encode() not in written
    assert b"[redacted]" in written


@pytest.mark.parametrize("text", ["Authorization: Bearer abcdefgh.12345", "password=hunter2hunter2", "api_key=0123456789ab&x"])
def test_values_after_telling_words_go(text: str):
    written = through(text.encode(), [], [])
    for value in ("abcdefgh.12345", "hunter2hunter2", "0123456789ab"):
        assert value.encode() not in written


@pytest.mark.parametrize(
    "text",
    [
        "hf_overrides={}, hf_config_path=None, hf_token=None, hf_textconfigurationobject",
        "task-specific-parameters and disk-throughput-of-this-drive risk-adjusted-throughput-numbers",
        "CPU KV cache size: 149,760 tokens, Maximum concurrency for 2,048 tokens per request: 73.12x",
        "bos_token_id=1, eos_token='</s>', num_tokens=1234567890, max_num_batched_tokens=8192",
        "commit 0123456789abcdef0123456789abcdef01234567 sha256:0123456789abcdef",
        "ValueError: Bearer of bad news",
    ],
)
def test_ordinary_log_text_stays(text: str):
    assert through(text.encode() + b"\n", [5, 17], []) == text.encode() + b"\n"


def test_short_values_are_not_secrets():
    assert through(b"port 1 true on\n", [], [b"1", b"true", b"on"]) == b"port 1 true on\n"


def test_each_line_of_a_secret_with_several_lines_goes():
    secret = b"-----BEGIN KEY-----\nline-of-the-key-one\nline-of-the-key-two"
    written = through(b"x line-of-the-key-two y\nline-of-the-key-one\n", [], [secret])
    assert written == b"x [redacted] y\n[redacted]\n"


def test_a_longer_secret_that_holds_a_shorter_one_goes_whole():
    assert through(b"<abcdefgh-more>\n", [], [b"abcdefgh", b"abcdefgh-more"]) == b"<[redacted]>\n"


def test_progress_bars_are_written_as_they_come():
    redactor = Redactor([])
    assert redactor.feed(b"Loading: 10%\rLoading: 2") == b"Loading: 10%\r"
    assert redactor.feed(b"0%\r") == b"Loading: 20%\r"


def test_a_line_without_end_is_cut_at_a_blank_and_never_held_for_ever():
    redactor = Redactor([OWN])
    written = redactor.feed(b"word " * LONGEST_PIECE + OWN[:10]) + redactor.feed(OWN[10:]) + redactor.finish()
    assert OWN not in written
    assert written.count(b"word ") == LONGEST_PIECE
    assert written.endswith(b"[redacted]")


def test_a_piece_without_a_blank_is_left_out_and_said_so():
    redactor = Redactor([OWN])
    data = b"before\n" + b"x" * LONGEST_PIECE + OWN
    written = redactor.feed(data) + redactor.feed(b"\nafter\n")
    assert written.startswith(b"before\n[")
    assert b"bytes without a break left out]" in written
    assert written.endswith(b"after\n")
