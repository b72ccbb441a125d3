"""Committed manifests, units and rules against the real tools. A tool that is not a Python package is used where it is
installed: promtool (Debian's prometheus), systemd-analyze, kubectl."""

import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
import yamllint.config
import yamllint.linter

from tests.fakes.cases import CASES, EVERY_FORMAT
from tuner.app.check import check_paths, context_of
from tuner.output import bundle

pytestmark = pytest.mark.golden

HERE = Path(__file__).parent
SCHEMAS = HERE.parent / "data/schemas"
KUBERNETES = "1.34"
CRDS = {"ScaledObject": "keda-scaledobject", "LeaderWorkerSet": "leaderworkerset", "LLMInferenceService": "llminferenceservice"}
FILES = {"skypilot.yaml": "skypilot-task", "service.dstack.yml": "dstack-service", "production-stack/values.yaml": "production-stack-values"}
"""Files that are no objects of Kubernetes, and the schema of each."""
RULES = yamllint.config.YamlLintConfig("{extends: relaxed, rules: {line-length: disable, document-start: disable}}")
CHOSEN = {"backend-takes-keys", "eager-mode", "dtype-float32", "fp8-kv-has-scales", "memory-share", "trtllm-build"}
"""What `check` says of settings that were tuned or asked for; all else would be about the files."""


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request):
    return HERE / request.param


def documents(case, *folders):
    for path in sorted((case / "deploy").rglob("*.y*ml")):
        if not folders or path.relative_to(case / "deploy").parts[0] in folders:
            yield path, yaml.safe_load(path.read_text())


def pods(document):
    """Yield every pod spec inside a custom resource."""
    spec = document["spec"]
    group = spec.get("leaderWorkerTemplate", {})
    yield from (group[key] for key in ("leaderTemplate", "workerTemplate") if key in group)
    if document["kind"] == "LLMInferenceService":
        yield {"spec": {**spec["template"]}}


def test_yaml_has_no_lint(case):
    for path in (case / "deploy").rglob("*.y*ml"):
        assert [str(problem) for problem in yamllint.linter.run(path.read_text(), RULES)] == []


def test_kubernetes_objects_fit_the_schemas(case):
    for path, document in documents(case):
        if not isinstance(document, dict) or "apiVersion" not in document or document["kind"] == "Kustomization":
            continue
        kind = document["kind"]
        if kind in CRDS:
            schema = json.loads((SCHEMAS / f"{CRDS[kind]}.schema.json").read_text())
            errors = [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
            assert (path.name, errors) == (path.name, [])
            for template in pods(document):
                wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
                kubernetes_validate.validate(wrapped, KUBERNETES, strict=True)
        elif path.name != "patch-vllm.yaml":
            kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", sorted(FILES))
def test_files_of_other_systems_fit_their_schemas(case, name):
    file = case / "deploy" / name
    if not file.exists():
        return
    schema = json.loads((SCHEMAS / f"{FILES[name]}.schema.json").read_text())
    document = yaml.safe_load(file.read_text())
    assert [f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(document)] == []


def test_values_name_a_deployment_that_the_chart_makes():
    """The chart calls it RELEASE-MODEL-deployment-vllm; a scaler of another name scales nothing."""
    seen = 0
    for file in sorted(HERE.glob("*/deploy/production-stack/scaledobject.yaml")):
        [model] = yaml.safe_load((file.parent / "values.yaml").read_text())["servingEngineSpec"]["modelSpec"]
        target = yaml.safe_load(file.read_text())["spec"]["scaleTargetRef"]["name"]
        assert target == f"{model['name']}-{model['name']}-deployment-vllm"
        assert f"helm install {model['name']} " in (file.parent / "values.yaml").read_text()
        seen += 1
    assert seen >= 5


@pytest.mark.parametrize(("name", "change"), [
    ("skypilot.yaml", lambda found: found["resources"].update(accelerator="H100:8")),
    ("skypilot.yaml", lambda found: found["service"].update(replicas=2)),
    ("skypilot.yaml", lambda found: found["service"]["readiness_probe"].update(path="health")),
    ("service.dstack.yml", lambda found: found.pop("scaling")),
    ("service.dstack.yml", lambda found: found.update(model={"format": "openai", "type": "chat"})),
    ("service.dstack.yml", lambda found: found["resources"].update(gpu="H100")),
    ("production-stack/values.yaml", lambda found: found["servingEngineSpec"]["modelSpec"][0].update(keda={"triggers": {}})),
    ("production-stack/values.yaml", lambda found: found["servingEngineSpec"]["modelSpec"][0]["vllmConfig"].pop("enablePrefixCaching")),
    ("production-stack/values.yaml", lambda found: found["servingEngineSpec"]["modelSpec"][0].update(requestMemory="16gb")),
])
def test_the_schemas_refuse_what_those_systems_refuse_or_misread(name, change):
    schema = json.loads((SCHEMAS / f"{FILES[name]}.schema.json").read_text())
    document = yaml.safe_load((HERE / "h100x2-speculative/deploy" / name).read_text())
    assert jsonschema.Draft202012Validator(schema).is_valid(document)
    change(document)
    assert not jsonschema.Draft202012Validator(schema).is_valid(document)


@pytest.mark.parametrize("folder", ["k8s", "k8s-hpa"])
def test_objects_find_each_other(case, folder):
    """What no schema sees: selectors, volumes, claims, ConfigMaps, probe ports, scale targets."""
    found = [document for _, document in documents(case, folder) if document.get("kind", "Kustomization") != "Kustomization"]
    if not found:
        return
    names = {(document["kind"], document["metadata"]["name"]) for document in found}
    assert len(names) == len(found)
    by_kind = {}
    for document in found:
        by_kind.setdefault(document["kind"], []).append(document)
    templates = [document["spec"]["template"] for document in by_kind.get("Deployment", [])]
    for document in by_kind.get("LeaderWorkerSet", []):
        templates += list(pods(document))
    for template in templates:
        spec, labels = template["spec"], template["metadata"]["labels"]
        [container] = spec["containers"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        for volume in spec["volumes"]:
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in names
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in names
        for source in container.get("envFrom", []):
            assert ("ConfigMap", source["configMapRef"]["name"]) in names
        assert labels["app.kubernetes.io/name"] == by_kind["Service"][0]["spec"]["selector"]["app.kubernetes.io/name"]
        ports = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert probe not in container or container[probe]["httpGet"]["port"] in ports
    for document in by_kind.get("Deployment", []):
        assert document["spec"]["selector"]["matchLabels"].items() <= document["spec"]["template"]["metadata"]["labels"].items()
    for document in by_kind.get("ScaledObject", []):
        target = document["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in names
        assert document["spec"]["minReplicaCount"] <= document["spec"]["maxReplicaCount"]
    for document in by_kind.get("HorizontalPodAutoscaler", []):
        target = document["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in names
        assert document["spec"]["minReplicas"] <= document["spec"]["maxReplicas"]
    scalers = by_kind.get("ScaledObject", []) + by_kind.get("HorizontalPodAutoscaler", [])
    assert len(scalers) <= 1
    assert bool(scalers) == all("replicas" not in document["spec"] for kind in ("Deployment", "LeaderWorkerSet")
                                for document in by_kind.get(kind, []))


@pytest.mark.parametrize("name", ["k8s", "k8s-hpa"])
def test_the_kustomization_names_every_file_beside_it(case, name):
    folder = case / "deploy" / name
    if not folder.exists():
        return
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")
    if shutil.which("kubectl"):
        done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        namespace = yaml.safe_load((folder / "kustomization.yaml").read_text())["namespace"]
        built = list(yaml.safe_load_all(done.stdout))
        assert {document["metadata"].get("namespace", namespace) for document in built} == {namespace}
        for document in built:
            if document["kind"] == "ScaledObject":
                assert f'namespace="{namespace}"' in document["spec"]["triggers"][0]["metadata"]["query"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_units_pass_systemd_analyze(case):
    """It ends with 0 whatever it finds; what it says counts."""
    units = sorted((case / "deploy").rglob("*.service"))
    if units:
        done = subprocess.run(["systemd-analyze", "verify", *map(str, units)], capture_output=True, text=True, check=False)
        ours = [line for line in done.stderr.splitlines() if units[0].name in line or "llmtune" in line]
        assert (done.returncode, ours) == (0, [])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_rules_and_dashboards_pass_promtool(case, tmp_path):
    rules = case / "deploy/monitoring/rules.yaml"
    dashboard = case / "deploy/monitoring/dashboard.json"
    if not rules.exists():
        return
    board = json.loads(dashboard.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 8
    of_board = tmp_path / "board.yaml"
    of_board.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": [
        {"record": f"board:q{index}", "expr": query} for index, query in enumerate(queries)]}]}))
    for file in (rules, of_board):
        done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_panels_of_a_dashboard_do_not_overlap_and_show_the_slo(case):
    file = case / "deploy/monitoring/dashboard.json"
    if not file.exists():
        return
    board = json.loads(file.read_text())
    cells = [(x, y) for panel in board["panels"] for at in [panel["gridPos"]]
             for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    lines = {step["value"] for panel in board["panels"] for step in panel.get("fieldConfig", {}).get(
        "defaults", {}).get("thresholds", {}).get("steps", []) if step["value"] is not None}
    for limit in bundle.load_plan(case).study.slo.limits:
        shown = any(limit.text in panel["title"] for panel in board["panels"])
        assert shown == (limit.maximum / 1000 in lines) or limit.metric == "error_rate"


def test_check_finds_nothing_in_what_emit_writes(case):
    folders = [case / "deploy", *sorted(path for path in (case / "deploy").iterdir() if path.is_dir())]
    files = [path for folder in folders for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".sh", ".sbatch", ".service")]
    found = [
        (Path(one.path).relative_to(case).as_posix(), issue.line, issue.rule, issue.message)
        for one in check_paths(files, context_of(bundle.load_plan(case).config.version, None, None)) for issue in one.issues
        if issue.severity in ("error", "warning") and issue.rule not in CHOSEN
    ]
    made_up = case.name.startswith("nasty")  # its flags are invented, and -n is one that vLLM has, for numbers
    assert [one for one in found if not (made_up and one[2] in ("flag-unknown", "flag-value"))] == []


def test_there_are_enough_cases():
    assert len(EVERY_FORMAT) >= 12
