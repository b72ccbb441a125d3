"""Directories, Dockerfiles, names of rules, and our own scripts under odd names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tuner.app.check import check_paths, context_of
from tuner.cli.main import app
from tuner.errors import UsageError
from tuner.inspect.inspect_file import check_text
from tuner.inspect.read_dockerfile import is_dockerfile, read_dockerfile
from tuner.inspect.rule_names import rule_names

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
BAD = "vllm serve a/b --host 127.0.0.1 --swap-space 4\n"
NOTHING = context_of(None, None, None)


def dockerfile(text: str, version: str | None = None) -> set[tuple[str, int]]:
    return {(issue.rule, issue.line) for issue in check_text("Dockerfile", text, context_of(version, None, None))}


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_directory_is_read_with_those_below_it(tmp_path: Path) -> None:
    put(
        tmp_path,
        serve_dot_sh=BAD,
        deploy__k8s__run_dot_sh=BAD,
        a__Dockerfile="FROM vllm/vllm-openai\n",
        b__x_dot_yaml="a: 1\n",
    )
    put(tmp_path, _dot_git__hook_dot_sh=BAD, node_modules__x_dot_sh=BAD, notes_dot_md=BAD)
    found = check_paths([tmp_path], NOTHING)
    assert [Path(item.path).relative_to(tmp_path).as_posix() for item in found] == [
        "a/Dockerfile", "b/x.yaml", "deploy/k8s/run.sh", "serve.sh",
    ]  # fmt: skip
    assert [item.errors for item in found] == [0, 0, 1, 1]
    assert [item.idle for item in found] == [False, True, False, False]
    shown = CliRunner().invoke(app, ["check", str(tmp_path)]).output
    assert "4 files (1 without a server): 2 errors" in shown
    assert "nothing-found" not in shown


def test_a_file_that_is_named_says_that_it_starts_nothing(tmp_path: Path) -> None:
    put(tmp_path, x_dot_yaml="a: 1\n")
    (item,) = check_paths([tmp_path / "x.yaml"], NOTHING)
    assert [issue.rule for issue in item.issues] == ["nothing-found"]


def test_a_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path, deploy__run_dot_sh=BAD)
    (tmp_path / "deploy" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(check_paths([tmp_path], NOTHING)) == 1


def test_directories_that_say_nothing_or_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no deployment file"):
        check_paths([tmp_path], NOTHING)
    put(tmp_path, a_dot_sh="", b_dot_sh="")
    monkeypatch.setattr("tuner.app.check._MOST_FILES", 1)
    with pytest.raises(UsageError, match="more than 1 files"):
        check_paths([tmp_path], NOTHING)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("flag-unknwon", "did you mean flag-unknown"), ("flags_unknown", "flag-unknown"), ("zzz", "docs/check.md")],
)
def test_a_rule_that_there_is_not_cannot_be_left_out(tmp_path: Path, name: str, hint: str) -> None:
    put(tmp_path, a_dot_sh=BAD)
    with pytest.raises(UsageError) as caught:
        check_paths([tmp_path], NOTHING, frozenset((name,)))
    assert f"--ignore {name}" in caught.value.message
    assert hint in (caught.value.hint or "")


def test_every_rule_in_the_code_has_its_name_listed() -> None:
    said = set()
    for path in (ROOT / "tuner" / "inspect").glob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            place = {"error": 1, "warning": 1, "note": 1, "say": 2}.get(getattr(call.func, "attr", ""))
            if place is not None and len(call.args) > place and isinstance(call.args[place], ast.Constant):
                said.add(str(call.args[place].value))
    assert len(said) > 100
    assert {name for name in said if " " not in name} <= rule_names()
    assert {"heads-divide", "memory"} <= rule_names()


@pytest.mark.parametrize(
    "name", ["Dockerfile", "Dockerfile.gpu", "gpu.dockerfile", "Containerfile", "docker/Dockerfile-vllm"]
)
def test_names_of_dockerfiles(name: str) -> None:
    assert is_dockerfile(name)
    assert not is_dockerfile(name.replace("file", "fil"))


def test_the_last_stage_of_a_dockerfile() -> None:
    text = """\
ARG TAG=v0.32.0
FROM vllm/vllm-openai:${TAG} AS base
ENV VLLM_USE_V1=0 \\
    # a comment
    OTHER="a b"
ENTRYPOINT ["vllm", "serve"]
FROM base
CMD ["Qwen/Qwen3-8B", \\
     "--swap-space", "4"]
"""
    assert dockerfile(text) == {("env-removed", 3), ("flag-removed", 8)}
    server = read_dockerfile(text, "Dockerfile").server
    assert server is not None
    assert (server.env["OTHER"].text, server.env["OTHER"].line) == ("a b", 5)
    assert server.image is not None
    assert server.image.version == "0.32.0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("FROM vllm/vllm-openai:latest\n", {("image-floating", 1)}),
        ("FROM vllm/vllm-openai:v0.32.0\nCMD Qwen/Qwen3-8B --max-num-seqs 8\n", set()),
        ('FROM vllm/vllm-openai:v0.32.0\nCMD ["serve", "Qwen/Qwen3-8B"]\n', {("entrypoint-repeated", 2)}),
        ("FROM vllm/vllm-openai:v0.32.0\nENTRYPOINT vllm serve Qwen/Qwen3-8B --task generate\n", {("flag-removed", 2)}),
        ("FROM python:3.12\nRUN pip install vllm\nCMD vllm serve Qwen/Qwen3-8B\n", {("install-unpinned", 2)}),
        ("FROM python:3.12\nRUN pip install vllm==0.32.0\nCMD vllm serve Qwen/Qwen3-8B\n", set()),
        ("FROM python:3.12\nRUN pip install -r requirements.txt && echo vllm\nCMD vllm serve Qwen/Qwen3-8B\n", set()),
        ("FROM python:3.12\n# vllm\nCMD python app.py\n", {("nothing-found", 1)}),
        ("FROM vllm/vllm-openai:v0.32.0\nENV HF_TOKEN hf_" + "a1B2" * 9 + "\n", {("secret-in-clear", 2)}),
        ('FROM a\nFROM vllm/vllm-openai:v0.32.0 AS x\nCMD a b "c\n', None),
        ("CMD vllm serve\n", None),
        ('FROM\nCMD ["vllm"\n', None),
    ],
)  # fmt: skip
def test_dockerfiles(text: str, found: set[tuple[str, int]] | None) -> None:
    issues = dockerfile(text)
    assert found is None or issues == found


@given(
    st.lists(
        st.sampled_from(
            [
                "FROM vllm/vllm-openai",
                "FROM a AS b",
                "CMD",
                "ENV A",
                "\\",
                '["x',
                "ARG X=$X",
                "RUN pip install vllm",
                '"',
                "# c",
                "",
            ]
        )
    )
)
def test_any_dockerfile_is_survived(lines: list[str]) -> None:
    read_dockerfile("\n".join(lines), "Dockerfile")


def test_our_own_script_is_known_whatever_its_engine_is_called() -> None:
    script = (ROOT / "tests/golden/cpu-hub/deploy/serve.sh").read_text()
    odd = script.replace("program=${VLLM:-vllm}", "program=${ENGINE:-'my engine$'}")
    assert odd != script
    assert check_text("serve.sh", odd, NOTHING) == check_text("serve.sh", script, NOTHING)
    broken = odd.replace("--served-model-name", "--no-such-flag 1 --served-model-name")
    assert [issue.rule for issue in check_text("serve.sh", broken, NOTHING)] == ["flag-unknown"]
    assert "0.32.0 has no flag" in check_text("serve.sh", broken, NOTHING)[0].message
    foreign = odd.replace("# Written by llmtune", "# Written by me")
    assert [issue.rule for issue in check_text("serve.sh", foreign, NOTHING)] == ["nothing-found"]
