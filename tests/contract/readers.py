"""Reads emitted files back, by other means than the emitters: what would arrive at the engine, and in which environment.

`reader(name)` gives the function for a file; each asserts that the launch spec arrives, and what else its format holds.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

from tuner.domain.engine import LaunchSpec
from tuner.domain.plan import Plan
from tuner.output.scripts import program_variable

BIN = Path(sys.executable).parent
MODEL_DIR = "/srv/the model's, \"dir\" $x"
Files = Mapping[str, str]
Words = list[str]


def wanted(launch: LaunchSpec, *, host: str, port: int, model: str, folder: str, node: tuple[int, str] | None = None) -> Words:
    """Work out from the launch spec alone which words must arrive at the engine, the program's name first."""
    paths = {file.mark: f"{folder}/{file.name}" for file in launch.files}
    argv = [paths.get(word, word) for word in (*launch.program, *launch.arguments)]
    argv += [word.format(host=host, port=port) for word in launch.bind]
    argv[0] = PurePath(launch.program[0]).name
    if launch.model_is_local:
        argv[argv.index(launch.model)] = model
    if launch.nodes is not None and node is not None:
        rank, leader = node
        argv += [word.format(count=launch.nodes.count, rank=rank, leader=leader) for word in launch.nodes.arguments]
        argv += launch.nodes.follower if rank else ()
    return argv


def flags(words: Words) -> dict[str, Any]:
    """Return what an argument parser makes of the words, whatever their order; JSON is compared by meaning."""
    found: dict[str, Any] = {"": []}
    name = ""
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            found.setdefault(name, [])
            if equals:
                found[name].append(value)
                name = ""
        else:
            found[name].append(word)
            if name:
                name = name if len(found[name]) < 1 else ""
    return {key: [json.loads(value) if value.startswith("{") and _is_json(value) else value for value in values]
            for key, values in found.items()}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def slug(path: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", PurePath(path).name.lower())


def in_container(launch: LaunchSpec, node: tuple[int, str] | None = None) -> Words:
    return wanted(launch, host="0.0.0.0", port=launch.port, model=f"/models/{slug(launch.model)}", folder="/etc/llmtune",
                  node=node)


def same_env(got: Mapping[str, Any], launch: LaunchSpec) -> None:
    assert {name: got.get(name) for name in launch.env} == launch.env


def mounts(launch: LaunchSpec, folder: Path) -> list[tuple[str, str]]:
    """Files that a container must find: where they lie and where they are mounted."""
    named = [file for file in launch.files if file.mark in launch.arguments]
    return [(str(folder / file.name), f"/etc/llmtune/{file.name}") for file in named]


def variables(plan: Plan, tmp_path: Path) -> dict[str, str]:
    model = tmp_path / MODEL_DIR.lstrip("/")
    model.mkdir(parents=True, exist_ok=True)
    secrets = {name: f"value-of-{name}" for name in plan.launch.secret_env}
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MODEL_DIR": str(model), **secrets}


def stand_in(tmp_path: Path, name: str = "stand-in") -> Path:
    """Write a program that says how it was called."""
    program = tmp_path / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\nimport json, os, sys\n"
                       "print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ)}))\n")
    program.chmod(0o755)
    return program


def run(text: str, env: Mapping[str, str], tmp_path: Path, *arguments: str) -> dict[str, Any]:
    script = tmp_path / "script.sh"
    script.write_text(text)
    done = subprocess.run(["bash", script, *arguments], env=dict(env), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def starters(launch: LaunchSpec, tmp_path: Path) -> Path:
    """Make the program that MPI runs for each rank, which runs the rest of its words."""
    folder = tmp_path / "starters"
    folder.mkdir(exist_ok=True)
    for word in launch.nodes.launcher if launch.nodes else ():
        (folder / word).write_text(f'#!/bin/bash\nSTARTED_BY={word} exec "$@"\n')
        (folder / word).chmod(0o755)
    return folder


def read_serve(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Run serve.sh with a program that prints its arguments."""
    launch = plan.launch
    for rank in (0, 1) if launch.nodes else (0,):
        env = variables(plan, tmp_path)
        env |= {program_variable(launch): str(stand_in(tmp_path)), "HOST": "127.0.0.9", "PORT": "1234"}
        env |= {"NODE_RANK": str(rank), "LEADER": "node a"} if launch.nodes else {}
        env["PATH"] = f"{starters(launch, tmp_path)}:{env['PATH']}"
        said = run(files[name], env, tmp_path, "--extra", "a b")
        assert said["env"].get("STARTED_BY") == (" ".join(launch.nodes.launcher) if launch.nodes and launch.nodes.launcher else None)
        assert said["argv"][-2:] == ["--extra", "a b"]
        argv = [PurePath(launch.program[0]).name, *said["argv"][:-2]]
        assert argv == wanted(launch, host="127.0.0.9", port=1234, model=env["MODEL_DIR"], folder=str(tmp_path),
                              node=(rank, "node a"))
        same_env(said["env"], launch)
        for secret in launch.secret_env:
            assert said["env"][secret] == env[secret]


def read_docker_run(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Run docker-run.sh with a `docker` that prints its arguments, and read them as docker would."""
    env = variables(plan, tmp_path) | {"DOCKER": str(stand_in(tmp_path))}
    words = run(files[name], env, tmp_path, "--extra", "a b")["argv"]
    launch = plan.launch
    assert words.pop(0) == "run"
    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        option = words.pop(0)
        options.setdefault(option, [])
        if option != "--rm":
            options[option].append(words.pop(0))
    assert words.pop(0) == launch.image
    assert words[-2:] == ["--extra", "a b"]
    several = plan.sizing.replicas > 1
    assert options.get("--gpus", ["0"]) == ['"device=0,1"' if several else str(launch.devices)]
    assert ("--ipc" in options) == launch.needs_shared_memory
    assert options.get("--ulimit", []) == [f"{name}={limit}" for name, limit in sorted(launch.ulimits.items())]
    assert options["--publish"] == [f"127.0.0.1:{launch.port}:{launch.port}"]
    if launch.model_is_local:
        source = env["MODEL_DIR"].replace('"', '""')
        assert options["--mount"].pop(0) == f'type=bind,"source={source}",target=/models/{slug(launch.model)},readonly'
    binds = [f'type=bind,"source={source}",target={target},readonly' for source, target in mounts(launch, tmp_path)]
    assert options.get("--mount", []) == binds
    entry = options.get("--entrypoint") or list(launch.image_program)
    pairs = [word.partition("=") for word in options.get("--env", [])]
    for passed in (key for key, equals, _ in pairs if not equals):
        assert passed == "HF_TOKEN" or passed in launch.secret_env
    assert [*entry, *words[:-2]] == in_container(launch)
    same_env({key: value for key, equals, value in pairs if equals}, launch)


def read_compose(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Let Docker Compose itself resolve the file, and read the result."""
    path = tmp_path / "compose.yaml"
    path.write_text(files[name])
    env = variables(plan, tmp_path) | {"HF_TOKEN": ""}
    done = subprocess.run([BIN / "docker-compose", "-f", path, "config", "--format", "json"],
                          env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    services = json.loads(done.stdout)["services"]
    names = ["server", *(f"server-{index}" for index in range(1, plan.sizing.replicas))]
    assert list(services) == names
    for index, service in enumerate(services.values()):
        read_service(service, index, plan, env, tmp_path)
    held = [number for service in services.values() for number in reserved(service).get("device_ids", [])]
    assert len(held) == len(set(held)) == (plan.launch.devices * len(names) if len(names) > 1 else 0)


def reserved(service: Mapping[str, Any]) -> Mapping[str, Any]:
    devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [{}])
    assert len(devices) == 1
    return devices[0]


def read_service(service: dict[str, Any], index: int, plan: Plan, env: Mapping[str, str], tmp_path: Path) -> None:
    launch = plan.launch
    assert service["image"] == launch.image
    assert [(port["host_ip"], port["published"], port["target"]) for port in service["ports"]] == [
        ("127.0.0.1", str(launch.port + index), launch.port)]
    assert service.get("ulimits", {}) == launch.ulimits
    assert service.get("ipc") == ("host" if launch.needs_shared_memory else None)
    device = reserved(service)
    assert device.get("count", 0) + len(device.get("device_ids", [])) == launch.devices
    if launch.model_is_local:
        mount = service["volumes"].pop(0)
        assert (mount["source"].replace("$$", "$"), mount["read_only"]) == (env["MODEL_DIR"], True)
    binds = [mount for mount in service["volumes"] if mount["type"] == "bind"]
    assert [(one["source"], one["target"]) for one in binds] == mounts(launch, tmp_path)
    assert all(one["read_only"] for one in binds)
    entry = [word.replace("$$", "$") for word in service.get("entrypoint") or launch.image_program]
    command = [word.replace("$$", "$") for word in service["command"]]
    assert [*entry, *command] == in_container(launch)
    same_env({key: (value or "").replace("$$", "$") for key, value in service.get("environment", {}).items()}, launch)


def read_vllm_start(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Run start.sh, then put the config file's words where vLLM puts them (vllm/utils/argparse_utils.py)."""
    launch = plan.launch
    folder = tmp_path / "vllm"
    folder.mkdir(exist_ok=True)
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    env = variables(plan, tmp_path)
    env |= {program_variable(launch): str(stand_in(tmp_path)), "HOST": "127.0.0.9", "PORT": "1234"}
    env |= {"NODE_RANK": "1", "LEADER": "a"} if launch.nodes else {}
    said = run(files[name].replace("${BASH_SOURCE[0]}", f"{folder}/start.sh"), env, tmp_path)
    words = said["argv"]
    at = words.index("--config")
    assert words[at + 1] == f"{folder}/config.yaml"
    document = yaml.safe_load(files["vllm/config.yaml"])
    assert False not in document.values()
    assert None not in document.values()
    model = [str(document.pop("model"))] if "model" in document else []
    argv = [*words[:1], *model, *words[1:at], *vllm_words(document), *words[at + 2:]]
    expected = wanted(launch, host="127.0.0.9", port=1234, model=env["MODEL_DIR"], folder="", node=(1, "a"))[1:]
    assert flags(argv) == flags(expected)
    same_env(said["env"], launch)


def vllm_words(document: Mapping[str, Any]) -> Words:
    """Return the words that vLLM makes of its config file."""
    words: Words = []
    for key, value in document.items():
        if value is True:
            words.append(f"--{key}")
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        else:
            text = json.dumps(value) if isinstance(value, dict) else str(value)
            words += [f"--{key}={text}"] if text.startswith("-") else [f"--{key}", text]
    return words


def read_unit(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Split the unit as systemd.syntax(7) says."""
    text = re.sub(r"\\\n\s*", " ", files[name])
    entries = [line.partition("=")[::2] for line in text.splitlines() if "=" in line and not line.startswith("#")]
    env: dict[str, str] = {}
    for key, value in entries:
        if key == "Environment":
            [(word, _)] = unit_words(value)
            variable, _, content = word.partition("=")
            env[variable] = content.replace("%%", "%")
    [start] = [value for key, value in entries if key == "ExecStart"]
    known = {**env, "MODEL_DIR": MODEL_DIR}
    argv = [re.sub(r"\$\$|\$\{(\w+)\}", lambda m: known[m[1]] if m[1] else "$", word).replace("%%", "%")
            for word, _ in unit_words(start)]
    launch = plan.launch
    assert argv[0] == "/usr/bin/env"
    assert env["HOST"] == "127.0.0.1"
    argv[1] = PurePath(argv[1]).name
    stem = PurePath(name).stem
    assert argv[1:] == wanted(launch, host="127.0.0.1", port=launch.port, model=MODEL_DIR, folder=f"/etc/llmtune/{stem}")
    same_env(env, launch)


_UNIT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^\s"]+)')


def unit_words(text: str) -> list[tuple[str, bool]]:
    """Split into words; whether each was quoted."""
    found = []
    for quoted, plain in _UNIT.findall(text):
        body = re.sub(r"\\(u[0-9a-f]{4}|U[0-9a-f]{8}|.)", _unescape, quoted)
        found.append((body or plain, not plain))
    return found


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else {"n": "\n", "t": "\t", "r": "\r"}.get(code, code)


def expand(text: str, env: Mapping[str, str]) -> str:
    """Expand `$(NAME)` and `$$` as the kubelet does."""
    return re.sub(r"\$\$|\$\(([A-Za-z0-9_]+)\)", lambda m: env.get(m[1], m[0]) if m[1] else "$", text)


def container_words(container: Mapping[str, Any], launch: LaunchSpec, env: Mapping[str, str]) -> Words:
    return [expand(word, env) for word in (*container.get("command", launch.image_program), *container["args"])]


def read_workload(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Read a Deployment or LeaderWorkerSet with the ConfigMaps beside it."""
    launch = plan.launch
    document = yaml.safe_load(files[name])
    spec = document["spec"]
    group = spec.get("leaderWorkerTemplate", {})
    templates = [group["leaderTemplate"], group["workerTemplate"]] if group else [spec["template"]]
    per_host = launch.nodes.devices if launch.nodes else launch.devices
    for rank, template in enumerate(templates):
        [container] = template["spec"]["containers"]
        lws = {"LWS_GROUP_SIZE": str(group.get("size")), "LWS_WORKER_INDEX": str(rank), "LWS_LEADER_ADDRESS": "leader-0"}
        assert container["image"] == launch.image
        assert container_words(container, launch, lws) == in_container(launch, (rank, "leader-0"))
        limits = container["resources"].get("limits", {})
        assert limits.get("nvidia.com/gpu", "0") == str(per_host)
        assert container["resources"]["requests"].get("nvidia.com/gpu", "0") == str(per_host)
        for item in container.get("env", []):
            assert set(item) == {"name", "valueFrom"}
            assert item["name"] in (*launch.secret_env, "HF_TOKEN")
    folder = name.partition("/")[0]
    environment = f"{folder}/configmap-env.yaml"
    data = yaml.safe_load(files[environment])["data"] if environment in files else {}
    assert data == launch.env
    for file in launch.files:
        if file.mark in launch.arguments:
            text = yaml.safe_load(files[f"{folder}/configmap.yaml"])["data"][file.name]
            assert yaml.safe_load(text) == yaml.safe_load(file.text)


def read_patch(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    launch = plan.launch
    [container] = yaml.safe_load(files[name])["spec"]["template"]["spec"]["containers"]
    assert container_words(container, launch, {}) == in_container(launch)
    assert container["image"] == launch.image
    same_env({item["name"]: expand(item.get("value", ""), {}) for item in container["env"]}, launch)


def read_kserve(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Let bash evaluate the arguments as KServe's start script does."""
    launch = plan.launch
    spec = yaml.safe_load(files[name])["spec"]
    [container] = spec["template"]["containers"]
    env = {item["name"]: expand(item.get("value", ""), {}) for item in container["env"]}
    script = 'eval "printf \'%s\\0\' serve ${VLLM_ADDITIONAL_ARGS}"'
    done = subprocess.run(["bash", "-c", script], env={"PATH": os.environ["PATH"], **env}, capture_output=True, check=True)
    words = done.stdout.decode().split("\0")[:-1][1:]
    words += ["--served-model-name", spec["model"]["name"], "--port", "8000", "--host", "0.0.0.0"]
    uri, _, revision = spec["model"]["uri"].removeprefix("hf://").partition(":")
    if revision and not launch.model_is_local:
        words += ["--revision", revision]
    model = f"/models/{slug(launch.model)}" if launch.model_is_local else uri
    bound = flags([*words, model] if not words else [model, *words])
    expected = flags(in_container(launch)[2:])
    if len(launch.bind) == 1:
        expected = {key: value for key, value in expected.items() if key != launch.bind[0].partition("=")[0]}
        bound = {key: value for key, value in bound.items() if key not in ("--port", "--host")}
    assert bound == expected
    same_env(env, launch)


def read_values(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Make the command that the chart's template makes (helm/templates/deployment-vllm-multi.yaml)."""
    launch = plan.launch
    engine = yaml.safe_load(files[name])["servingEngineSpec"]
    [model] = engine["modelSpec"]
    given = model["vllmConfig"]
    words = [model["modelURL"], "--host", "0.0.0.0", "--port", str(engine["containerPort"])]
    if "enableChunkedPrefill" in given:
        words.append("--enable-chunked-prefill" if given["enableChunkedPrefill"] else "--no-enable-chunked-prefill")
    words.append("--enable-prefix-caching" if given.get("enablePrefixCaching") else "--no-enable-prefix-caching")
    for key, flag in (("maxModelLen", "max-model-len"), ("dtype", "dtype"), ("tensorParallelSize", "tensor-parallel-size"),
                      ("maxNumSeqs", "max-num-seqs"), ("gpuMemoryUtilization", "gpu-memory-utilization")):
        words += [f"--{flag}", str(given[key])] if key in given else []
    words += [expand(word, {}) for word in given["extraArgs"]]
    expected = in_container(launch)[2:]
    if not any(word.endswith("enable-prefix-caching") for word in expected):
        expected.append("--enable-prefix-caching")
    assert flags(words) == flags(expected)
    assert f"{model['repository']}:{model['tag']}" == launch.image
    same_env({item["name"]: expand(item.get("value", ""), {}) for item in model["env"]}, launch)


def read_cloud(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Run the commands of SkyPilot or dstack with a program that prints its arguments."""
    document = yaml.safe_load(files[name])
    launch = plan.launch
    program = PurePath(launch.program[0]).name
    stand_in(tmp_path, f"bin/{program}")
    script = document["run"] if "run" in document else "\n".join(document["commands"])
    script = script.replace("/etc/llmtune", str(tmp_path / "etc"))
    for rank in (0, 1) if launch.nodes else (0,):
        env = variables(plan, tmp_path)
        env |= {"PATH": f"{tmp_path}/bin:{env['PATH']}", "SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
        said = run(script, env, tmp_path)
        argv = [word.replace(str(tmp_path / "etc"), "/etc/llmtune") for word in (program, *said["argv"])]
        assert argv == in_container(launch, (rank, "10.0.0.1"))
        same_env({key: said["env"].get(key, "").replace(str(tmp_path / "etc"), "/etc/llmtune") for key in launch.env}, launch) \
            if not launch.model_is_local else None
    for file in launch.files:
        if file.mark in launch.arguments:
            assert yaml.safe_load((tmp_path / "etc" / file.name).read_text()) == yaml.safe_load(file.text)
    assert launch.image in (document.get("image"), document.get("resources", {}).get("image_id", "").removeprefix("docker:"))


def read_sbatch(files: Files, name: str, plan: Plan, tmp_path: Path) -> None:
    """Run the job with a `srun` that runs one task, and a `scontrol` that names the nodes, one by one."""
    launch = plan.launch
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "srun").write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    (tools / "scontrol").write_text('#!/bin/bash\n[[ "$*" == "show hostnames n[1-2]" ]] && echo n1 && sleep 0.1 && echo n2\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "serve.sh").write_text(files["slurm/serve.sh"])
    (tmp_path / "serve.sh").chmod(0o755)
    env = variables(plan, tmp_path)
    env |= {program_variable(launch): str(stand_in(tmp_path)), "PORT": "1234", "VLLM_PORT": "5", "SLURM_NODEID": "1", "SLURM_LOCALID": "1",
            "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_SUBMIT_DIR": str(tmp_path), "PATH": f"{tools}:{starters(launch, tmp_path)}:{env['PATH']}"}
    said = run(files[name], env, tmp_path)
    argv = [PurePath(launch.program[0]).name, *said["argv"]]
    several = plan.sizing.replicas > 1
    assert said["env"].get("CUDA_VISIBLE_DEVICES") == ("2,3" if several else None)
    assert argv == wanted(launch, host="0.0.0.0", port=1235 if several else 1234, model=env["MODEL_DIR"], folder=str(tmp_path), node=(1, "n1"))
    assert "VLLM_PORT" not in said["env"] or plan.config.engine != "vllm"
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in files[name].splitlines() if line.startswith("#SBATCH"))
    assert int(options["nodes"]) * int(options.get("gpus-per-node", 0)) == launch.devices * plan.sizing.replicas
    by_mpi = launch.nodes is not None and bool(launch.nodes.launcher)
    assert int(options["ntasks-per-node"]) == (launch.nodes.devices if by_mpi else plan.sizing.replicas)
    assert ("srun --mpi=pmix" in files[name]) == by_mpi
    same_env(said["env"], launch)


READERS: dict[str, Callable[[Files, str, Plan, Path], None]] = {
    "serve.sh": read_serve,
    "slurm/serve.sh": read_serve,
    "docker-run.sh": read_docker_run,
    "compose.yaml": read_compose,
    "vllm/start.sh": read_vllm_start,
    "k8s/deployment.yaml": read_workload,
    "k8s/leaderworkerset.yaml": read_workload,
    "k8s-hpa/deployment.yaml": read_workload,
    "k8s-hpa/leaderworkerset.yaml": read_workload,
    "llm-d/patch-vllm.yaml": read_patch,
    "kserve.yaml": read_kserve,
    "production-stack/values.yaml": read_values,
    "skypilot.yaml": read_cloud,
    "service.dstack.yml": read_cloud,
    "slurm/job.sbatch": read_sbatch,
}


def reader(name: str) -> Callable[[Files, str, Plan, Path], None] | None:
    """Return the function that reads a file back; None for files that start nothing."""
    return read_unit if name.endswith(".service") else READERS.get(name)


