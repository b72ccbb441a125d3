"""Several servers on one machine: every format starts all of them, each with its own devices, and says so."""

import json
import subprocess

import pytest
import yaml

from tests.contract.readers import stand_in, variables
from tests.fakes.cases import replicas, speculative
from tests.fakes.plans import make_plan
from tuner.output.drawings import machine_levels
from tuner.output.emitters import EMITTERS
from tuner.output.header import header_lines
from tuner.output.readme import ReadmeEmitter
from tuner.output.report import report

pytestmark = pytest.mark.unit

PLAN = replicas()


def document(target, name, plan=PLAN):
    return yaml.safe_load(EMITTERS[target].files(plan)[name])


def started(script, tmp_path, program, **env):
    path = tmp_path / "script.sh"
    path.write_text(script)
    done = subprocess.run(["bash", path], env=variables(PLAN, tmp_path) | {program: str(stand_in(tmp_path)), **env},
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_script_gives_each_replica_its_gpus_and_port(tmp_path):
    script = EMITTERS["serve"].files(PLAN)["serve.sh"]
    for replica, devices, port in (("0", "0,1", "8000"), ("3", "6,7", "8003")):
        said = started(script, tmp_path, "VLLM", REPLICA=replica)
        assert said["env"]["CUDA_VISIBLE_DEVICES"] == devices
        assert said["argv"][-2:] == ["--port", port]
    alone = started(script, tmp_path, "VLLM", CUDA_VISIBLE_DEVICES="5,6")
    assert alone["env"]["CUDA_VISIBLE_DEVICES"] == "5,6"
    assert alone["argv"][-1] == "8000"


def test_docker_run_gives_each_replica_its_gpus_port_name_and_cache(tmp_path):
    words = started(EMITTERS["docker-run"].files(PLAN)["docker-run.sh"], tmp_path, "DOCKER", REPLICA="2")["argv"]
    assert '"device=4,5"' in words
    assert "127.0.0.1:8002:8000" in words
    assert words[words.index("--name") + 1].endswith("-2")
    assert any(word.endswith("-cache-2:/root/.cache/vllm") for word in words)


def test_compose_has_a_service_for_each():
    services = document("compose", "compose.yaml")["services"]
    assert len(services) == 4
    assert {service["ports"][0].rpartition(":")[0][-5:-1] for service in services.values()} == {"8000", "8001", "8002", "8003"}
    assert len({service["volumes"][-1] for service in services.values()}) == 4


def test_orchestrators_keep_the_machine_full():
    assert document("k8s", "k8s/scaledobject.yaml")["spec"]["minReplicaCount"] == 4
    assert document("k8s-hpa", "k8s-hpa/horizontalpodautoscaler.yaml")["spec"]["minReplicas"] == 4
    assert document("kserve", "kserve.yaml")["spec"]["replicas"] == 4
    assert document("llm-d", "llm-d/patch-vllm.yaml")["spec"]["replicas"] == 4
    assert document("production-stack", "production-stack/values.yaml")["servingEngineSpec"]["modelSpec"][0]["replicaCount"] == 4
    assert document("skypilot", "skypilot.yaml")["service"]["replica_policy"]["min_replicas"] == 4
    assert document("dstack", "service.dstack.yml")["replicas"] == "4..16"
    missed = PLAN.model_copy(update={"sizing": PLAN.sizing.model_copy(update={"knee_in_flight": None}), "arms": (), "trials": ()})
    assert document("k8s", "k8s/deployment.yaml", missed)["spec"]["replicas"] == 4
    assert document("k8s", "k8s/persistentvolumeclaim-cache.yaml", missed)["spec"]["accessModes"] == ["ReadWriteMany"]


def test_one_slurm_job_starts_all():
    text = EMITTERS["slurm"].files(PLAN)["slurm/job.sbatch"]
    for line in ("#SBATCH --ntasks-per-node=4", "#SBATCH --gpus-per-node=8", "#SBATCH --cpus-per-task=8"):
        assert line in text


def test_headers_readme_and_report_say_what_the_numbers_are_of():
    said = "4 servers fill the hardware, each with 2 GPUs."
    assert any(said in line for line in header_lines(PLAN))
    assert said in ReadmeEmitter().files(PLAN)["README.md"]
    assert "One server was measured under its share" in report(PLAN)
    assert "copy it under other names" in EMITTERS["systemd"].files(PLAN)["systemd/qwen2-5-32b-instruct.service"].lower()


def test_load_levels_are_those_of_the_machine():
    arm = PLAN.arms[1]
    assert [point.clients for point in machine_levels(arm)] == [4 * point.clients for point in arm.levels]
    assert machine_levels(arm)[0].output_tokens_per_s.value == 4 * arm.levels[0].output_tokens_per_s.value
    assert machine_levels(arm)[0].p95_ttft_ms == arm.levels[0].p95_ttft_ms
    assert machine_levels(PLAN.arms[0]) == PLAN.arms[0].levels


@pytest.mark.parametrize("plan", [make_plan(), speculative()], ids=["cpu", "gpu"])
def test_a_single_server_says_nothing_of_replicas(plan):
    for emitter in EMITTERS.values():
        for name, text in emitter.files(plan).items():
            assert "REPLICA" not in text, name
    assert not any(line.startswith("replicas") for line in header_lines(plan))
