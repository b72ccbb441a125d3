"""Rules about what a container gives its server: GPUs, shared memory, ports, caches, restarts, time to start."""

from __future__ import annotations

import math

from tuner.inspect.issue import Report
from tuner.inspect.lint_server import Rule
from tuner.inspect.view import View

TOLERANCE = 0.95
"""How much shorter than predicted a time to start may be before it is worth a word."""
_SHM = "/dev/shm"  # noqa: S108  (a path in files that are read)


def port_matches(view: View, report: Report) -> None:
    """A published port is the one the server listens on."""
    box, server = view.server.box, view.server
    if box is None or not box.ports or (server.box and server.box.reads_env_file and "port" in view.arguments.words):
        return
    port = view.arguments.count("port", 8000)
    if port is not None and port not in {item.inside for item in box.ports} and "config" not in view.arguments.words:
        inside = ", ".join(str(item.inside) for item in box.ports)
        report.error(
            box.ports[0].line,
            "port-mismatch",
            f"the file speaks of port {inside}, but the server listens on {port}",
            f"use {port} in both places, or add --port {box.ports[0].inside}",
        )


def gpus_match(view: View, report: Report) -> None:
    """Reserved GPUs are as many as the ranks of the server."""
    box, world = view.server.box, view.arguments.world
    image = view.server.image
    if box is None or view.server.form == "systemd" or (image is not None and image.is_cpu):
        return
    if box.gpus is None or (box.gpus == 0 and not box.gpu_open):
        _no_gpu(view, report)
        return
    if world is None or box.gpu_open:
        return
    have = box.gpus * box.pods
    how = "tensor x pipeline x data parallel size"
    line = box.gpu_line or box.line
    if have < world:
        report.error(
            line, "gpu-count", f"{have:g} GPUs are reserved, but the server needs {world} ({how})", f"reserve {world}"
        )
    elif math.isinf(have) and world == 1:
        message = f"all GPUs of the host are reserved, but the server uses 1 ({how})"
        fix = "reserve 1, so that others can use the rest"
        report.say("note" if view.server.form == "docker" else "warning", line, "gpu-count", (message, fix))
    elif not math.isinf(have) and have > world:
        report.warning(
            line, "gpu-count", f"{have:g} GPUs are reserved, but the server uses {world} ({how}); the rest is idle"
        )


def _no_gpu(view: View, report: Report) -> None:
    server = view.server
    if server.image is None or not server.image.is_official or server.box is None:
        return
    how = {
        "kubernetes": 'set resources.limits."nvidia.com/gpu"',
        "compose": "reserve devices: driver nvidia, count, capabilities [gpu]",
        "docker": "add --gpus",
    }.get(server.form, "reserve a GPU")
    report.say(
        "error" if server.form == "kubernetes" else "warning",
        server.box.line,
        "gpu-missing",
        (f"{server.image.word.text} is a CUDA build, and {server.name} gets no GPU", how),
    )


def shared_memory(view: View, report: Report) -> None:
    """Ranks talk through /dev/shm, and a container's default of 64 MB is too small for that."""
    box, world = view.server.box, view.arguments.world
    if box is None or not view.server.in_container or box.shared_memory is not None:
        return
    image = view.server.image
    fix = {
        "kubernetes": f"mount an emptyDir with medium: Memory and a sizeLimit at {_SHM}",
        "compose": "add `ipc: host` or `shm_size: 16gb` (podman-compose ignores ipc)",
    }.get(view.server.form, "add --ipc=host or --shm-size=16g")
    if world is not None and world > 1:
        report.error(
            box.line,
            "shm-missing",
            f"{world} ranks share memory through {_SHM}, which is 64 MB in a container: NCCL fails or hangs",
            fix,
        )
    elif image is None or not image.is_cpu:
        report.note(box.line, "shm-missing", f"{_SHM} is 64 MB here; enough for one GPU, too small for more", fix)


def caches_last(view: View, report: Report) -> None:
    """What is downloaded and compiled should outlive the container."""
    box, server, model = view.server.box, view.server, view.model
    if box is None or not server.in_container or model is None:
        return
    targets = [word.text.rstrip("/") for word in box.mounts]
    is_local = model.text.startswith("/")
    has_models = any("huggingface" in path or "hub" in path or "model" in path or ".cache" in path for path in targets)
    home = [server.env[name].text for name in ("HF_HOME", "HF_HUB_CACHE") if name in server.env]
    has_models = has_models or any(path.startswith(tuple(targets)) for path in home if targets)
    download = view.arguments.values.get("download-dir")
    if isinstance(download, str) and targets and not download.startswith(tuple(targets)):
        report.warning(
            view.flag_line("download-dir"),
            "download-dir",
            f"--download-dir {download} lies outside the mounts ({', '.join(targets)}): it is lost with the container",
            "download into the mounted cache, or leave the flag out",
        )
    if not is_local and not model.open and not has_models:
        report.warning(
            box.line,
            "cache-volume",
            "no volume holds the model cache: the weights are downloaded again at every new container",
            "mount a volume at /root/.cache/huggingface (and /root/.cache/vllm for compiled code)",
        )
    elif (
        not any(path in "/root/.cache/vllm" or "cache/vllm" in path for path in targets)
        and "VLLM_CACHE_ROOT" not in server.env
    ):
        report.note(
            box.line,
            "compile-cache",
            "compiled code is thrown away with the container; minutes of each start go into it",
            "mount a volume at /root/.cache/vllm",
        )


def restarts_end(view: View, report: Report) -> None:
    """A configuration that runs out of memory is restarted for ever."""
    box = view.server.box
    if box is not None and box.restart is not None and box.restart.text in ("always", "unless-stopped"):
        report.warning(
            box.restart.line,
            "restart-loop",
            f"restart {box.restart.text}: a configuration that cannot start is tried again without end",
            "on-failure:3",
        )


def startup_budget(view: View) -> float:
    """Seconds that a start may well take: weights at 0.5 GB/s from a network disk, and two minutes to compile.

    PREDICTED; a measured start, doubled, is better. Without a known size only the two minutes remain.
    """
    return 120.0 + 2.0 * (view.weight_gb or 0.0)


def time_to_start(view: View, report: Report) -> None:
    """A health check must leave the time that loading takes."""
    box, server = view.server.box, view.server
    if box is None or server.form not in ("compose", "docker"):
        return
    if not box.has_health:
        said = f"{server.name} has no health check: nothing says when it is ready, or dead (the image has none)"
        fix = f"check http://localhost:{view.arguments.count('port', 8000)}/health; start period: twice the start"
        report.say("note" if server.form == "docker" else "warning", box.line, "health-missing", (said, fix))
        return
    need = startup_budget(view)
    if box.startup_s is not None and box.startup_s < need * TOLERANCE:
        size = f" ({view.weight_gb:.0f} GB of weights)" if view.weight_gb else ""
        report.warning(
            box.startup_line,
            "startup-budget",
            f"the check gives up after {box.startup_s:.0f} s, but a start may take {need:.0f} s{size} (PREDICTED)",
            f"start_period: {math.ceil(need / 60) * 60}s, or twice a measured start",
        )


RULES: tuple[Rule, ...] = (port_matches, gpus_match, shared_memory, caches_last, restarts_end, time_to_start)
