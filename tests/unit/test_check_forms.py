"""Files that cannot be checked, or whose values are of the wrong kind: each says so, and ends with 1 in CI."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tuner.app import check as check_app
from tuner.app.check import check_paths, mend
from tuner.cli.main import app
from tuner.inspect.inspect_file import check_text
from tuner.inspect.issue import Issue
from tuner.inspect.view import Context

pytestmark = pytest.mark.unit

IMAGE = "vllm/vllm-openai:v0.32.0"
POD = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: x}}
spec:
  selector: {{matchLabels: {{app: x}}}}
  template:
    metadata: {{labels: {{app: x}}}}
    spec:
      containers: {containers}
"""


def run(path: Path, text: str | bytes) -> Result:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return CliRunner().invoke(app, ["check", str(path)])


def wrong(name: str, text: str) -> list[tuple[int, str]]:
    found = check_text(name, text, Context(version="0.32.0"))
    return [(issue.line, issue.message) for issue in found if issue.rule == "yaml-type"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        pytest.param("compose.yaml", f"services:\n  v:\n    image: {IMAGE}\n    command: [--model, x\n", 5, id="bracket"),
        pytest.param("my.compose", f"services:\n  v:\n    image: {IMAGE}\n    command: [--model, x\n", 5, id="no-ending"),
        pytest.param("x.yaml", "a: [1, 2\nb: }\n", 2, id="names-no-engine"),
        pytest.param("x.yaml", "vllm: " + "[" * 100_000, 1, id="deep"),
        pytest.param("x.yaml", b"vllm: \x00\x01", 1, id="bytes"),
        pytest.param("x.yaml", "model: a/b\n---\nvllm: {\n", 4, id="second-document"),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path: Path, name: str, text: str | bytes, line: int) -> None:
    done = run(tmp_path / name, text)
    assert f"{name}:{line}: error unreadable" in done.output
    assert done.exit_code == 1


def test_a_template_may_become_readable(tmp_path: Path) -> None:
    done = run(tmp_path / "vllm.yaml", "{{- if .Values.on }}\nkind: [vllm\n{{- end }}\n")
    assert "warning unreadable" in done.output
    assert done.exit_code == 0


def test_broken_files_of_others_do_not_fail_a_directory(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("a: [1\n")
    (tmp_path / "run.sh").write_text("vllm serve a/b\n")
    shown = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert "unreadable" not in shown.output
    assert shown.exit_code == 0


@pytest.mark.parametrize(("text", "severity"), [("# vllm\n", "error"), ("# other\n", "note")])
def test_a_file_that_is_too_long_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, severity: str
) -> None:
    monkeypatch.setattr(check_app, "_MOST_BYTES", 50)
    path = tmp_path / "x.yaml"
    path.write_text(text * 100)
    (item,) = check_paths([path], Context())
    assert [issue.severity for issue in item.issues] == [severity]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.yaml", ""),
        ("x.yaml", "services: [vllm]\n"),
        ("x.service", "[Service]\nExecStart=\n# vllm serve\n"),
        ("x.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: vllm}\ndata: {}\n"),
    ],
)
def test_a_file_without_a_server_says_so(tmp_path: Path, name: str, text: str) -> None:
    done = run(tmp_path / name, text)
    assert f"{name}:1: note " in done.output
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("services: [1, 2]\n", 1, "services must be a mapping"),
        ("services: {v: 3}\n", 1, "service v must be a mapping, but '3' is a number"),
        (f"services:\n  v:\n    image: {IMAGE}\n    command: 5\n", 4, "command must be text or a list, but '5' is a number"),
        (f"services:\n  v:\n    image: {IMAGE}\n    command: {{a: b}}\n", 4, "but is a mapping"),
        (f"services:\n  v:\n    image: {IMAGE}\n    command: [a/b, --port, 80]\n", 4, "each element of command must be text"),
        (f"services:\n  v:\n    image: {IMAGE}\n    environment: 7\n", 4, "environment must be a mapping or a list"),
        (f"services:\n  v:\n    image: {IMAGE}\n    ports: '8000:8000'\n", 4, "ports must be a list"),
        ("services:\n  v:\n    image: [vllm]\n", 3, "image must be text, but is a list"),
    ],
)  # fmt: skip
def test_compose_refuses_the_kind(text: str, line: int, message: str) -> None:
    ((found, said),) = wrong("compose.yaml", text)
    assert found == line
    assert message in said


@pytest.mark.parametrize(
    ("containers", "messages"),
    [
        ("vllm", ["containers must be a list"]),
        ("[vllm]", ["each container must be a mapping"]),
        (f"[{{name: v, image: '{IMAGE}', args: [--port, 8000, --seed, 1]}}]", ["'8000' is a number", "'1' is a number"]),
        (f"[{{name: v, image: '{IMAGE}', args: --port}}]", ["args must be a list, but '--port' is text"]),
        (f"[{{name: v, image: '{IMAGE}', env: [{{name: A, value: yes}}]}}]", ["the value of A must be text"]),
        (f"[{{name: v, image: '{IMAGE}', env: [{{name: A, value: 1}}]}}]", ["the value of A must be text"]),
        (f"[{{name: v, image: '{IMAGE}', resources: 1}}]", ["resources must be a mapping"]),
    ],
)  # fmt: skip
def test_kubernetes_refuses_the_kind(containers: str, messages: list[str]) -> None:
    found = wrong("x.yaml", POD.format(containers=containers))
    assert len(found) == len(messages)
    assert all(message in said for (_, said), message in zip(found, messages, strict=True))


@pytest.mark.parametrize("text", ["spec: vllm", "spec: {template: vllm}", "spec: {template: {spec: [vllm]}}"])
def test_the_way_to_the_containers_is_checked(text: str) -> None:
    assert len(wrong("x.yaml", f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: x}}\n{text}\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"services:\n  v:\n    image: {IMAGE}\n    command: ['a/b', --port, '80', --dtype, no]\n    environment: {{A: true, B: 1}}\n    shm_size: 16g\n",
        "services:\n  v:\n    image: !reset null\n    command: [--x, '{{ y }}']\n    ports: []\n    command: vllm\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: vllm}\nspec: {ports: [{port: 80}]}\n",
        POD.format(containers=f"[{{name: v, image: '{IMAGE}', args: ['8000', 2024-01-01x], env: [{{name: A, value: '1'}}, {{name: B}}]}}]"),
    ],
)  # fmt: skip
def test_good_kinds_are_left_alone(text: str) -> None:
    assert wrong("compose.yaml", text) == []


def test_the_fix_puts_quotes_around_what_must_be_text() -> None:
    text = POD.format(containers=f"\n      - name: v\n        image: {IMAGE}\n        args: [a/b, --port, 8000]\n        env: [{{name: A1, value: 1}}, {{name: B, value: true}}]")
    found: tuple[Issue, ...] = check_text("x.yaml", text, Context(version="0.32.0"))
    mended = mend(text, [issue for issue in found if issue.rule == "yaml-type"])
    assert mended is not None
    assert '--port, "8000"]' in mended
    assert 'value: "true"' in mended
    assert "value: 1}" in mended, "two of the same text stand in that line"
