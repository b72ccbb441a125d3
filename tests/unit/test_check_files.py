"""Every kind of file that check reads, and every way in which a file can be strange."""

from __future__ import annotations

import ast
import json
import re
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tuner.app.check import as_sarif, check_paths, context_of, mend
from tuner.cli.main import app
from tuner.errors import EngineError, UsageError
from tuner.inspect.inspect_file import check_text
from tuner.inspect.issue import Issue
from tuner.inspect.read_scripts import read_script
from tuner.inspect.shell import read_shell
from tuner.inspect.tree import read_documents
from tuner.inspect.view import Context

pytestmark = pytest.mark.unit

DATA = Path(__file__).parent.parent / "data" / "check"


def check(name: str, text: str, version: str | None = "0.32.0") -> tuple[Issue, ...]:
    return check_text(name, text, Context(version=version))


def rules(name: str, text: str, version: str | None = "0.32.0") -> set[tuple[str, int]]:
    return {(issue.rule, issue.line) for issue in check(name, text, version)}


def words(text: str) -> list[str]:
    return [word.text for server in read_script(text, "x.sh").servers for word in server.args]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("vllm serve a/b --port 8000 # not --this\n", ["a/b", "--port", "8000"], id="comment"),
        pytest.param("vllm serve a/b \\\n  --port 8000 \\\n  --dtype half\n", ["a/b", "--port", "8000", "--dtype", "half"], id="continuation"),
        pytest.param("vllm serve a/b \\\r\n  --port 8000\r\n", ["a/b", "--port", "8000"], id="crlf"),
        pytest.param('M=a/b\nvllm serve $M --x "${P:-80 00}"\n', ["a/b", "--x", "80 00"], id="variables"),
        pytest.param('args=(a/b\n  --port 8000 # why\n)\nargs+=(--dtype half)\nvllm serve "${args[@]}" "$@"\n', ["a/b", "--port", "8000", "--dtype", "half"], id="array"),
        pytest.param("sudo -E env A=1 nohup vllm serve a/b > log 2>&1 &\n", ["a/b"], id="wrapped"),
        pytest.param("bash -lc 'cd /x && exec vllm serve a/b --port 1'\n", ["a/b", "--port", "1"], id="shell-in-shell"),
        pytest.param("ssh host <<'END'\nvllm serve a/b --port 2\nEND\n", ["a/b", "--port", "2"], id="heredoc"),
        pytest.param("if true; then vllm serve a/b | tee log; fi\n", ["a/b"], id="pipe"),
        pytest.param("echo vllm serve a/b\n", [], id="only-said"),
        pytest.param("vllm serve a/b --speculative-config '{\"method\": \"ngram\"}'\n", ["a/b", "--speculative-config", '{"method": "ngram"}'], id="json"),
        pytest.param("P=$(command -v vllm)\n$P serve a/b\n", ["a/b"], id="looked-up"),
        pytest.param("python -m vllm.entrypoints.openai.api_server --model a/b\n", ["--model", "a/b"], id="module"),
        pytest.param("docker run -itd -p 8000:8000 -e A=1 --gpus=all --rm vllm/vllm-openai:v0.32.0 a/b --dtype half\n", ["a/b", "--dtype", "half"], id="docker"),
    ],
)  # fmt: skip
def test_shell(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_lines_of_words_in_arrays_and_heredocs() -> None:
    assert ("flag-removed", 3) in rules("x.sh", 'args=(\n  a/b\n  --swap-space 4\n)\nvllm serve "${args[@]}"\n')
    assert ("flag-removed", 4) in rules("x.sh", "# x\nssh h <<END\ntrue\nvllm serve a/b --swap-space 4\nEND\n")
    yaml = "cat > compose.yaml <<'END'\nversion: '3'\nservices:\n  a: {image: 'vllm/vllm-openai:latest', command: [a/b]}\nEND\n"
    assert {("compose-version", 2), ("image-floating", 4)} <= rules("x.sh", yaml)


@pytest.mark.parametrize(
    ("command", "rule", "fix"),
    [
        ("--enable-chunked-prefill False", "flag-negation", "--no-enable-chunked-prefill"),
        ("--enable-prefix-caching=false", "flag-negation", "--no-enable-prefix-caching"),
        ("--tensor-parallel 2", "flag-abbreviated", "--tensor-parallel-size"),
        ("--kv-cache-dtype int8", "flag-value", "fp8"),
        ("--max-num-seqs many", "flag-value", ""),
        ("--max-num-sequences 8", "flag-unknown", "--max-num-seqs"),
        ("--max-num-seqs 8 --max-num-seqs 16", "flag-twice", "keep one"),
        ("--max-num-seqs", "flag-value", ""),
        ("extra/model", "argument-stray", "take it out"),
        ("--num-scheduler-steps 8", "flag-removed", ""),
        ("--guided-decoding-backend xgrammar", "flag-removed", "--structured-outputs-config.backend"),
        ("--gpu-memory-utilization 0.97", "memory-share", "0.90 to 0.94"),
        ("--max-lora-rank 256", "lora-rank", "adapter_config.json"),
        ("--speculative-config '{\"method\": \"eagle3\", \"model\": \"x/y\"}'", "speculative-tokens", "num_speculative_tokens"),
        ("--compilation-config '{broken'", "flag-value", ""),
        ("--api-key s3cr3t-key", "secret-in-clear", "env file"),
    ],
)  # fmt: skip
def test_flags(command: str, rule: str, fix: str) -> None:
    hits = [issue for issue in check("x.sh", f"vllm serve a/b {command}\n") if issue.rule == rule]
    assert hits, [issue.text for issue in check("x.sh", f"vllm serve a/b {command}\n")]
    assert any(fix in issue.fix for issue in hits)


@pytest.mark.parametrize(
    "command",
    [
        "--no-enable-prefix-caching", "--max_num_seqs 8", "-tp 2", "-tp=2", "--max-model-len 32k", "--max-model-len auto", "--max-model-len -1",
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 4 --speculative-config.prompt_lookup_max 3",
        "--served-model-name a b c", "-O3", "--compilation-config '{\"mode\": 3}'", "-cc.mode=3", '--max-num-seqs "$SEQS"',
        "--kv-cache-dtype ${KV:-auto}", "--config conf.yaml",
    ],
)  # fmt: skip
def test_flags_that_are_right(command: str) -> None:
    assert [i.text for i in check("x.sh", f"SEQS=$1\nvllm serve a/b {command}\n") if i.severity == "error"] == []


def test_a_false_that_the_config_loader_drops() -> None:
    text = "model: a/b\nenable-prefix-caching: false\ntrust-remote-code: false\nmax_num_seqs: 64\ndtype:\nswap-space: 4\nmax-num-seqs: 64\n"
    found = {(i.rule, i.line, i.severity) for i in check("config.yaml", text)}
    assert {
        ("config-false", 2, "error"),
        ("config-false", 3, "note"),
        ("config-null", 5, "error"),
        ("flag-removed", 6, "error"),
    } <= found
    assert mend(text, check("config.yaml", text)) == text.replace(
        "enable-prefix-caching: false", "no-enable-prefix-caching: true"
    )


def test_a_systemd_unit() -> None:
    text = (
        '[Unit]\nDescription=llm\n\n[Service]\nType=notify\nEnvironment=HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\nEnvironment="VLLM_USE_V1=1"\n'
        "ExecStart=/usr/bin/vllm serve a/b --swap-space 4 \\\n  --host 0.0.0.0 > /var/log/x\nRestart=always\nStartLimitBurst=3\n"
    )
    found = rules("llm.service", text)
    for expected in [
        ("unit-type", 5),
        ("secret-in-clear", 6),
        ("env-removed", 7),
        ("flag-removed", 8),
        ("unit-shell", 8),
        ("restart-loop", 10),
        ("unit-section", 11),
        ("open-without-key", 9),
    ]:
        assert expected in found
    good = "[Service]\nType=exec\nEnvironmentFile=-/etc/llm.env\nExecStart=/usr/bin/vllm serve a/b --host 127.0.0.1\nRestart=on-failure\n"
    assert [i.text for i in check("llm.service", good) if i.severity != "note"] == []


def test_an_env_file() -> None:
    found = rules(
        ".env",
        "# c\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\nVLLM_USE_V1=0\nVLLM_IMAGE=vllm/vllm-openai:v0.32.0\nVLLM_PORT=8000\nnot a line =\n",
    )
    assert {("secret-in-clear", 2), ("env-removed", 3), ("env-port", 5)} <= found
    assert not {rule for rule, line in found if line == 4}


def test_anchors_and_merges() -> None:
    text = (
        "x-base: &base\n  image: vllm/vllm-openai:latest\n  ipc: host\n  command: [a/b, --swap-space, '4']\nservices:\n  one:\n    <<: *base\n"
        "  two:\n    <<: [*base]\n    image: vllm/vllm-openai:v0.32.0\n"
    )
    found = check("compose.yaml", text)
    assert sum(issue.rule == "flag-removed" and issue.line == 4 for issue in found) == 1
    assert [issue.line for issue in found if issue.rule == "image-floating"] == [2]


def test_variables_of_compose() -> None:
    text = "services:\n  a:\n    image: ${IMAGE}\n    command: ['${MODEL:-a/b}', --max-num-seqs, '${SEQS}', --dtype, '${T:-wrong}']\n"
    assert [issue.text for issue in check("compose.yaml", text) if issue.rule == "flag-value"] == []
    named = text.replace("${IMAGE}", "vllm/vllm-openai:${TAG:-v0.32.0}")
    assert [issue.line for issue in check("compose.yaml", named, None) if issue.rule == "flag-value"] == [4]


def test_values_inside_branches_are_not_taken_for_sure() -> None:
    text = "TP=8\ncase $M in\n a) TP=oops;;\n b) TP=4;;\nesac\nA=' --swap-space 4'\nA+=' --dtype half'\nif x; then A=\"$A --kv-cache-dtype nope\"; fi\nvllm serve a/b --tensor-parallel-size $TP $A\n"
    found = rules("x.sh", text)
    assert ("flag-removed", 9) in found
    assert not {rule for rule, _ in found} & {"flag-value", "argument-stray"}


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        pytest.param("sky.yaml", "resources: {image_id: 'docker:vllm/vllm-openai:v0.32.0'}\nrun: |\n  export A=1\n  vllm serve a/b \\\n    --swap-space 4\n", 5, id="skypilot"),
        pytest.param("x.dstack.yml", "type: service\nimage: vllm/vllm-openai:v0.32.0\ncommands:\n  - |\n    vllm serve a/b --swap-space 4\n", 5, id="dstack"),
        pytest.param("ci.yaml", "jobs: {a: {steps: [{run: 'docker run vllm/vllm-openai:v0.32.0 a/b --swap-space 4'}]}}\n", 1, id="workflow"),
        pytest.param("values.yaml", "servingEngineSpec:\n  modelSpec:\n  - name: m\n    repository: vllm/vllm-openai\n    tag: v0.32.0\n    modelURL: a/b\n    vllmConfig:\n      extraArgs: ['--swap-space', '4']\n", 8, id="production-stack"),
        pytest.param("kserve.yaml", "apiVersion: serving.kserve.io/v1alpha2\nkind: LLMInferenceService\nmetadata: {name: m}\nspec:\n  model: {uri: 'hf://a/b'}\n  template:\n    containers:\n    - image: vllm/vllm-openai:v0.32.0\n      env: [{name: VLLM_ADDITIONAL_ARGS, value: '--swap-space 4'}]\n", 9, id="kserve"),
    ],
)  # fmt: skip
def test_servers_in_other_yaml(name: str, text: str, line: int) -> None:
    assert ("flag-removed", line) in rules(name, text, None)


@pytest.mark.parametrize(
    ("image", "severity"),
    [
        ("vllm/vllm-openai:latest", "error"), ("registry.corp/mirror/vllm-openai:v0.32.0", "error"), ("me/my-vllm:1.0.0", "warning"),
        ("vllm/vllm-openai:${TAG:?}", "warning"), ("vllm/vllm-openai:${TAG:-v0.32.0}", "error"),
    ],
)  # fmt: skip
def test_severity_of_an_unknown_flag_by_image(image: str, severity: str) -> None:
    text = f"services: {{a: {{image: '{image}', command: [a/b, --frobnicate, '1']}}}}\n"
    assert [issue.severity for issue in check("compose.yaml", text, None) if issue.rule == "flag-unknown"] == [severity]


def test_an_image_of_another_kind_is_left_alone() -> None:
    text = "services: {web: {image: 'nginx:1.27', command: [--swap-space, '4']}, x: {image: 'me/vllm-proxy:1.2.3', environment: {MODEL_ID: a/b}}}\n"
    assert [issue.text for issue in check("compose.yaml", text, None) if issue.severity == "error"] == []


def test_documents_around_a_broken_one_are_read() -> None:
    text = "a: [1\n---\nservices:\n  a: {image: 'vllm/vllm-openai:latest', command: [a/b]}\n"
    found = rules("compose.yaml", text)
    assert ("image-floating", 4) in found
    assert "unreadable" in {rule for rule, _ in found}


STRANGE: list[Any] = [
    ("compose.yaml", "services: &a\n  x: *a\n"),
    ("compose.yaml", "services:\n  a: 5\n  b: [1]\n  c:\n"),
    ("compose.yaml", "services: {llm: {image: [1], command: {a: b}, ports: 5, volumes: x, environment: 7, deploy: []}}\nx: vllm\n"),
    ("k8s.yaml", "apiVersion: v1\nkind: List\nitems: 5\n---\napiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: [1, {image: vllm/vllm-openai}]}}}\n"),
    ("k8s.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: []\nspec: vllm\n"),
    ("x.yaml", "{{ if .Values.x }}\nkind: x\n{{ end }}\n"),
    ("x.yaml", "a: &x [*x]\nvllm: 1\n"),
    ("x.yaml", "vllm: " + "[" * 5000),
    ("x.yaml", "vllm:\n" + "- " * 5000),
    ("x.yaml", "a: !!python/object/apply:os.system ['touch pwned']\nvllm: x\n"),
    ("x.yaml", "? [a, b]\n: vllm\n? {c: d}\n: kind:\n"),
    ("x.sh", "vllm serve 'a\n"), ("x.sh", 'vllm serve "$(a "b\n'), ("x.sh", "vllm serve ${a\n"), ("x.sh", "vllm serve \\"),
    ("x.sh", "args=(vllm serve\n"), ("x.sh", "vllm serve <<E\nx\n"), ("x.sh", "docker run\ndocker run --gpus\ndocker run -p\nvllm serve --model\n"),
    ("x.service", "[Service\nExecStart=\nExecStart=vllm serve\nX\n"),
    (".env", "=\nA\nB=\nVLLM_=\n"),
    ("x", "\x00\x01vllm serve\x02\n"), ("x", "\ufeffvllm serve a/b\n"), ("x", "vllm serve \ud7ff a/b"),
    ("config.yaml", "model:\nmax-num-seqs: []\ntensor-parallel-size: {a: 1}\n"),
    ("trt.yaml", "kv_cache_config: 5\nmax_num_tokens: [1]\n"),
    ("keda.yaml", "apiVersion: a\nkind: ScaledObject\nspec: {triggers: {a: 1}, minReplicaCount: x}\n"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), STRANGE, ids=range(len(STRANGE)))
def test_strange_files_are_survived(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for issue in check(name, text):
        assert issue.line >= 1
    assert list(tmp_path.iterdir()) == []


PIECES = st.sampled_from(
    ["vllm serve ", "docker run ", "a/b ", "--max-num-seqs ", "8 ", "'", '"', "$(", "${X:-", "}", ")", "(", "\\\n", "\n", "<<E\n", "E\n", "#", ";", "&&", "|",
     "services:\n", "  llm:\n", "    image: vllm/vllm-openai:latest\n", "    command: ", "[", "]", "{", ": ", "- ", "&a ", "*a ", "---\n", "kind: Deployment\n",
     "apiVersion: v1\n", "spec:\n", "containers:\n", "[Service]\n", "ExecStart=", "=", "\x00", "\u2603", "\r\n", "\t", "trtllm-serve ", "<<: "]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["x.sh", "compose.yaml", "k8s.yaml", "x.service", ".env", "x"]),
    st.lists(PIECES, max_size=40).map("".join),
)
def test_any_pieces_are_survived(name: str, text: str) -> None:
    for issue in check(name, text):
        assert issue.severity in ("error", "warning", "note")


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(DATA.iterdir())), st.data())
def test_damaged_files_are_survived(path: Path, draw: st.DataObject) -> None:
    text = path.read_text()
    start = draw.draw(st.integers(0, len(text)))
    end = draw.draw(st.integers(start, min(len(text), start + 40)))
    check(path.name, text[:start] + draw.draw(st.text(max_size=5)) + text[end:])


@given(st.text(max_size=200))
def test_readers_take_any_text(text: str) -> None:
    read_shell(text)
    for tree in read_documents(text).trees:
        tree.plain()


@pytest.mark.parametrize("name", ["a.yaml", "a.sh", "a.env"])
def test_large_files_end(name: str) -> None:
    text = {"a.yaml": "services:\n" + "  s: {image: 'vllm/vllm-openai:v0.32.0', command: [a/b]}\n" * 4000,
            "a.sh": "vllm serve a/b --max-num-seqs 8\n" * 300 + "x" * 700_000,
            "a.env": "A_B=1\n" * 20_000}[name]  # fmt: skip
    started = time.monotonic()
    check(name, text)
    assert time.monotonic() - started < 60


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["check", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_prints_file_line_severity_rule_and_fix(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve a/b --swap-space 4 --host 127.0.0.1\n")
    code, out, err = run(str(path), "--engine-version", "0.32.0")
    assert code == 1
    assert out.startswith(f"{path}:1: error flag-removed: vllm 0.32.0 no longer has --swap-space")
    assert "    fix: instead: --kv-offloading-size" in out
    assert "1 file: 1 error, 0 warnings" in err
    assert run(str(path), "--engine-version", "0.16.0")[0] == 0


def test_fix_changes_what_is_safe_and_nothing_else(tmp_path: Path) -> None:
    text = (
        "version: '3.8'\r\nservices:\r\n  llm:\r\n    image: vllm/vllm-openai:v0.32.0  # keep\r\n    ipc: host\r\n    command:\r\n      - a/b\r\n"
        "      - --dtype auto  # both\r\n      - --tensor-parallel\r\n      - '1'\r\n"
    )
    path = tmp_path / "compose.yaml"
    path.write_bytes(text.encode())
    _, out, err = run(str(path))
    assert "-version: '3.8'" in out
    assert "--fix" in err
    assert path.read_bytes().decode() == text
    run(str(path), "--fix")
    fixed = path.read_bytes().decode()
    assert fixed == text.replace("version: '3.8'\r\n", "").replace(
        "      - --dtype auto  # both\r\n", "      - --dtype\r\n      - auto\r\n"
    ).replace("--tensor-parallel\r\n", "--tensor-parallel-size\r\n")
    left = {issue.rule for issue in check("compose.yaml", fixed)}
    assert not left & {"compose-version", "flag-list-item", "flag-abbreviated"}


def test_fix_of_a_negation_in_a_script() -> None:
    text = "vllm serve a/b --enable-chunked-prefill False --port 80\n"
    assert mend(text, check("x.sh", text)) == "vllm serve a/b --no-enable-chunked-prefill --port 80\n"


def test_json_and_sarif(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve a/b --swap-space 4\n")
    code, out, _ = run(str(path), "--json", "--engine-version", "0.32.0")
    report = json.loads(out)
    assert code == 1
    assert report["errors"] == 1
    assert report["files"][0]["issues"][0]["rule"] == "flag-removed"
    code, out, _ = run(str(path), "--sarif", "--engine-version", "0.32.0")
    sarif = json.loads(out)
    assert code == 1
    jsonschema.validate(sarif, SARIF)
    results = sarif["runs"][0]["results"]
    assert {rule["id"] for rule in sarif["runs"][0]["tool"]["driver"]["rules"]} == {
        result["ruleId"] for result in results
    }
    assert results[0]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1
    assert isinstance(CliRunner().invoke(app, ["check", str(path), "--json", "--sarif"]).exception, UsageError)


SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {
            "required": ["tool", "results"],
            "properties": {"results": {"type": "array", "items": {
                "required": ["message", "ruleId"],
                "properties": {"level": {"enum": ["none", "note", "warning", "error"]}, "message": {"required": ["text"]}},
            }}},
        }},
    },
}  # fmt: skip
"""What SARIF 2.1.0 requires of a log, a run and a result."""


def test_explain_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (30).\n")
    result = CliRunner().invoke(app, ["explain", str(path)])
    assert result.exit_code == 0
    assert "--max-num-seqs 30 or less" in result.stdout
    result = CliRunner().invoke(app, ["explain", "-", "--json"], input=path.read_bytes())
    assert json.loads(result.stdout)["causes"][0]["cause"] == "mamba_blocks"
    assert CliRunner().invoke(app, ["explain", "-"], input="all is well\n").exit_code == 1
    assert isinstance(CliRunner().invoke(app, ["explain", "nowhere.log"]).exception, UsageError)
    assert isinstance(CliRunner().invoke(app, ["explain", "-", "--engine", "x"]).exception, UsageError)


def test_directories_and_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("vllm serve")
    with pytest.raises(UsageError, match="no deployment file"):
        check_paths([tmp_path], Context())
    with pytest.raises(UsageError, match="no such file"):
        check_paths([tmp_path / "x.yaml"], Context())
    (tmp_path / "a.sh").write_text("vllm serve a/b\n")
    (tmp_path / ".env").write_text("A=1\n")
    assert [Path(item.path).name for item in check_paths([tmp_path], Context())] == [".env", "a.sh"]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(b"#!/bin/sh\n# caf\xe9\nvllm serve a/b --swap-space 4\n")
    (item,) = check_paths([path], Context(version="0.32.0"))
    assert {("unreadable", 2), ("flag-removed", 3)} <= {(issue.rule, issue.line) for issue in item.issues}
    assert as_sarif([item])["runs"][0]["results"]


def test_versions_that_are_none_or_too_old() -> None:
    with pytest.raises(EngineError, match="not an engine version"):
        context_of("latest", None, None)
    with pytest.raises(UsageError, match="no GPU of that name"):
        context_of(None, "h1000", None)
    found = check("x.sh", "vllm serve a/b --tensor-parallel-size 2\n", "0.2.7")
    assert any(issue.rule == "version-old" for issue in found)
    assert not any(issue.rule.startswith("flag-") for issue in found)


def test_rules_can_be_left_out(tmp_path: Path) -> None:
    text = 'args=(a/b\n  --swap-space 4 # llmtune: ignore[flag-removed]\n  --enforce-eager # llmtune: ignore\n  --foo 1 # llmtune: ignore[flag-removed]\n)\nvllm serve "${args[@]}"\n'
    assert {rule for rule, _ in rules("x.sh", text)} & {"flag-removed", "eager-mode", "flag-unknown"} == {
        "flag-unknown"
    }
    path = tmp_path / "x.sh"
    path.write_text(text)
    assert run(str(path), "--ignore", "flag-unknown", "--ignore", "open-without-key")[0] == 0


def test_every_rule_is_documented() -> None:
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "check.md").read_text()
    documented = {name for row in re.findall(r"^\| ([a-z0-9, -]+) \|", page, re.MULTILINE) for name in row.split(", ")}
    paths = [
        *(root / "tuner" / "inspect").glob("lint_*.py"),
        root / "tuner/inspect/arguments.py",
        root / "tuner/inspect/inspect_file.py",
    ]
    calls = set()
    for call in (
        node for path in paths for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
    ):
        place = {"error": 1, "warning": 1, "note": 1, "say": 2}.get(getattr(call.func, "attr", ""))
        if place is not None and len(call.args) > place and isinstance(call.args[place], ast.Constant):
            calls.add(call.args[place].value)
    assert len(calls) > 90
    assert calls - documented == set()
