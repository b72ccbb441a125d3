"""Rules about a pod that runs a server: probes, devices, memory, what happens at an update or an end."""

from __future__ import annotations

import re

from tuner.inspect.issue import Report
from tuner.inspect.lint_container import TOLERANCE, startup_budget
from tuner.inspect.read_kubernetes import GPU_RESOURCES, Pod, probe_budget, quantity
from tuner.inspect.tree import Tree
from tuner.inspect.view import View


def lint_pod(pod: Pod, view: View, everything: list[Tree], report: Report) -> None:
    """Check one container that runs an engine; `everything` are the objects of its file."""
    _service_links(pod, everything, report)
    if "headless" not in view.arguments.words:
        _probes(pod, view, report)
    _gpu(pod, report)
    _memory(pod, view, report)
    _shm_mount(pod, view, report)
    _rollout(pod, report)
    _grace(pod, view, report)


def _service_links(pod: Pod, everything: list[Tree], report: Report) -> None:
    if pod.spec.at("enableServiceLinks").value is False:
        return
    fix = "give the Service another name, or set enableServiceLinks: false in the pod"
    names = {item.at("metadata", "name").text: item for item in everything if item.at("kind").text == "Service"}
    if "vllm" in names:
        report.error(
            names["vllm"].at("metadata", "name").line,
            "service-name-vllm",
            "a Service named vllm makes Kubernetes set VLLM_PORT=tcp://... in every pod, and the server dies on it",
            fix,
        )
    elif pod.name == "vllm" and not names:
        report.warning(
            pod.owner.at("metadata", "name").line,
            "service-name-vllm",
            f"{pod.kind} vllm: a Service of that name makes Kubernetes set VLLM_PORT=tcp://..., and it dies",
            fix,
        )


def _probes(pod: Pod, view: View, report: Report) -> None:
    startup, liveness = pod.container.at("startupProbe"), pod.container.at("livenessProbe")
    readiness = pod.container.at("readinessProbe")
    need = startup_budget(view)
    if liveness.exists and not startup.exists:
        budget = probe_budget(liveness)
        message = (
            f"without a startupProbe the livenessProbe kills the server {budget:.0f} s after its start; loading "
            f"may take {need:.0f} s (PREDICTED), and a slow download longer"
        )
        fix = (
            "add startupProbe: httpGet /health, periodSeconds 10, failureThreshold for twice a measured start "
            "(at least 60); no initialDelaySeconds on the others"
        )
        known = view.weight_gb is not None and budget < need
        report.say("error" if known else "warning", liveness.key_line, "startup-probe", (message, fix))
    elif startup.exists and probe_budget(startup) < need * TOLERANCE:
        report.warning(
            startup.key_line,
            "startup-budget",
            f"it gives up after {probe_budget(startup):.0f} s, but a start may take {need:.0f} s (PREDICTED)",
            f"failureThreshold x periodSeconds of {need:.0f} s or more",
        )
    if not readiness.exists:
        report.warning(
            pod.container.line,
            "readiness-missing",
            f"{view.server.name} has no readinessProbe: it gets requests while the model is still loading",
            "add readinessProbe: httpGet /health",
        )
    for name, probe in (("livenessProbe", liveness), ("readinessProbe", readiness)):
        if probe.exists and (probe.at("timeoutSeconds").number() or 1) <= 1:
            report.warning(
                probe.key_line,
                "probe-timeout",
                f"{name} waits 1 s for its answer; a saturated server misses that and is restarted or taken out",
                "timeoutSeconds: 10",
            )
        if probe.exists and startup.exists and probe.at("initialDelaySeconds").exists:
            report.note(
                probe.key_line,
                "probe-delay",
                f"{name}: initialDelaySeconds only delays; the startupProbe waits already",
            )
        _probe_port(name, probe, pod, view, report)


def _probe_port(name: str, probe: Tree, pod: Pod, view: View, report: Report) -> None:
    port = probe.at("httpGet", "port")
    named = {item.at("name").text: item.at("containerPort").number() for item in pod.container.at("ports").each()}
    wanted = port.number() if port.number() is not None else named.get(port.text)
    listens = view.arguments.count("port", 8000)
    if (
        port.exists
        and wanted is not None
        and listens is not None
        and wanted != listens
        and view.server.engine == "vllm"
    ):
        report.error(port.line, "probe-port", f"{name} asks port {wanted:g}, but the server listens on {listens}")


def _gpu(pod: Pod, report: Report) -> None:
    limits, requests = pod.container.at("resources", "limits"), pod.container.at("resources", "requests")
    for key in (*GPU_RESOURCES, *(key for key, _ in requests.items() if key.startswith("nvidia.com/mig-"))):
        limit, request = limits.at(key), requests.at(key)
        if request.exists and not limit.exists:
            report.error(request.line, "gpu-limit", f"{key} is requested without a limit", "set the limit to the same")
        elif request.exists and limit.number() != request.number():
            report.error(
                request.line,
                "gpu-limit",
                f"{key}: request {request.text} and limit {limit.text} differ; devices cannot be overcommitted",
                "leave the request out, or make it equal",
            )


def _memory(pod: Pod, view: View, report: Report) -> None:
    limit = pod.container.at("resources", "limits", "memory")
    size = quantity(limit.text) if limit.exists else None
    is_cpu = view.server.image is not None and view.server.image.is_cpu
    if not limit.exists:
        report.note(
            pod.container.line,
            "memory-limit",
            f"{view.server.name} has no memory limit; a server that grows takes the node with it",
            "weights in host memory + shm + 8Gi is a start; measure, then set it",
        )
    elif size is not None and size < 8e9 and not is_cpu:
        report.warning(limit.line, "memory-limit", f"limit {limit.text}: the runtime alone takes several GB", "16Gi")
    elif size is not None and view.weight_gb is not None and size < view.weight_gb * 1.25e9 and not is_cpu:
        report.note(
            limit.line,
            "memory-limit",
            f"limit {limit.text} of host memory is little for {view.weight_gb:.0f} GB of weights (PREDICTED): while "
            "loading they pass through the page cache, which is dropped and read again",
            f"{(view.weight_gb * 1.25 + 8):.0f}G or more loads faster",
        )


def _shm_mount(pod: Pod, view: View, report: Report) -> None:
    mounted = {mount.at("name").text for mount in pod.container.at("volumeMounts").each()}
    for volume in pod.spec.at("volumes").each():
        name = volume.at("name").text
        if volume.at("emptyDir", "medium").text == "Memory" and name not in mounted:
            report.say(
                "error" if (view.arguments.world or 1) > 1 else "warning",
                volume.line,
                "shm-unmounted",
                (f"the memory volume {name!r} is declared but not mounted, so /dev/shm stays at 64 MB", "mount it"),
            )


def _rollout(pod: Pod, report: Report) -> None:
    strategy = pod.owner.at("spec", "strategy")
    surge = strategy.at("rollingUpdate", "maxSurge")
    if pod.kind != "Deployment" or strategy.at("type").text == "Recreate" or surge.text in ("0", "0%"):
        return
    report.note(
        strategy.key_line if strategy.exists else pod.owner.at("spec").line,
        "rollout-surge",
        "an update starts the new pod before the old one stops; without a free GPU it waits for ever",
        "strategy: {type: Recreate}, or maxSurge: 0 and maxUnavailable: 1",
    )


def _grace(pod: Pod, view: View, report: Report) -> None:
    grace = pod.spec.at("terminationGracePeriodSeconds")
    seconds = grace.number() or 30
    wait = view.arguments.count("shutdown-timeout")
    sleep = re.search(r"sleep\D+(\d+)", str(pod.container.at("lifecycle", "preStop").plain()))
    need = (wait or 0) + (float(sleep[1]) if sleep else 0)
    if (wait is not None and seconds < need + 15) or (sleep and seconds <= need):
        taken = "preStop takes" if wait is None else "preStop and --shutdown-timeout take"
        report.warning(
            grace.line,
            "grace-short",
            f"the pod is killed after {seconds:.0f} s, but {taken} {need:.0f} s",
            f"terminationGracePeriodSeconds: {need + 15:.0f}",
        )
    spot = re.search(
        r"\b(?:spot|preemptible)\b", f"{pod.spec.at('nodeSelector').plain()} {pod.spec.at('tolerations').plain()}"
    )
    if spot and wait is None:
        report.note(
            grace.line if grace.exists else pod.spec.line,
            "grace-short",
            f"on a spot node the pod gets {seconds:.0f} s to end; without --shutdown-timeout requests are cut",
            "--shutdown-timeout 20, and a replica elsewhere",
        )
