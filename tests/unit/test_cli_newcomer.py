"""Mistakes that a newcomer made, each answered by one error and written nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.app.ask import Ask, merge
from tuner.app.check import check_paths, context_of
from tuner.app.resolve import resolve
from tuner.app.served import find_server
from tuner.errors import EngineError, UsageError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("ask", "said"), [
    ({"study": "../../evil"}, "is not a name"),
    ({"study": "a b"}, "is not a name"),
    ({"study": ""}, "is not a name"),
    ({"model_name": "two\nlines"}, "is not a name"),
    ({"image": "bad image name:v1"}, "not the name of an image"),
])
def test_names_that_are_none(ask: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(Ask(model="llama-3-70b", **ask), {})


def test_one_setting_twice() -> None:
    with pytest.raises(UsageError, match="given twice"):
        merge(Ask(model="llama-3-70b", set=("max-num-seqs=64", "max-num-seqs=128")), None)


def test_no_engine_says_how_to_look_ahead() -> None:
    with pytest.raises(EngineError) as caught:
        resolve(Ask(model="smollm2-135m", engine_command="/nowhere/vllm"), {})
    assert "--dry-run --engine-version" in str(caught.value.hint)


def test_a_password_in_a_url_is_refused() -> None:
    with pytest.raises(UsageError, match="holds a password") as caught:
        find_server("http://user:secretpw@127.0.0.1:8000", None, None)
    assert "secretpw" not in caught.value.message


def test_the_diff_of_check_hides_secrets(tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text(
        "version: '3'\nservices:\n  vllm:\n    image: vllm/vllm-openai:v0.33.0\n"
        "    command: [meta-llama/Llama-3.1-8B-Instruct, --api-key, sk-live-abcdef0123456789abcdef]\n"
        "    environment:\n      HF_TOKEN: hf_abcdefghijklmnopqrstuvw\n"
    )
    shown = "".join(item.diff for item in check_paths([file], context_of(None, None, None)))
    assert shown
    assert "sk-live-abcdef" not in shown
    assert "hf_abcdef" not in shown
