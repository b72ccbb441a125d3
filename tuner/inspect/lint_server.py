"""Rules about one vLLM server, whatever file starts it: its image, model, flags, address and devices."""

from __future__ import annotations

import re
from collections.abc import Callable

from packaging.version import Version

from tuner.domain.json_text import parse_json
from tuner.facts.flags import parse_version
from tuner.inspect.arguments import newest
from tuner.inspect.issue import Report
from tuner.inspect.lint_memory import memory_part, memory_share
from tuner.inspect.view import View, facts

Rule = Callable[[View, Report], None]
_FLOATING = re.compile(r"^(?:latest|nightly|main|master|dev|stable|edge|cu\d+)(?:$|[-_.])|^$")
_OPEN_HOSTS = ("0.0.0.0", "::", "[::]")  # noqa: S104  (addresses in files that are read)
_TOKEN_FROM_OUTSIDE = ("shell", "config", "env", "embedded", "dockerfile")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def image_is_pinned(view: View, report: Report) -> None:
    """An image tag that moves brings another engine with other flags on the next pull."""
    image = view.server.image
    if image is None or image.digest:
        return
    line = image.word.line
    if image.word.open and image.tag is None:
        return
    tag = image.tag or ""
    if "$" in tag:
        report.note(
            line, "image-version", f"the image's tag is {tag}, so the version is not known here", "say --engine-version"
        )
    elif _FLOATING.match(tag):
        shown = f"the tag {tag!r} moves" if tag else "an image without a tag is `latest`, which moves"
        report.warning(
            line,
            "image-floating",
            f"{image.repository}: {shown}: the next pull may bring an engine without these flags",
            f"name one release, e.g. {image.repository}:v{newest('vllm')}, and change it on purpose",
        )
    elif re.search(r"(?<![a-z])rc\d+|nightly|dev\d*", tag):
        report.warning(
            line, "image-prerelease", f"{tag} is not a final release", "use the final release when it is out"
        )


def image_is_recent(view: View, report: Report) -> None:
    """Old releases miss fixes and most advice no longer fits them."""
    if not view.is_stated:
        return
    have, now = parse_version(view.version), Version(newest("vllm"))
    if have.major == 0 and now.major == 0 and now.minor - have.minor > 20:
        line = view.server.image.word.line if view.server.image else view.line
        report.warning(
            line,
            "image-old",
            f"vllm {view.version} is {now.minor - have.minor} minor releases behind {now}",
            "plan an upgrade; the flags are checked against this old release",
        )


def entrypoint_is_not_repeated(view: View, report: Report) -> None:
    """The published images already run the server; a command that names it again becomes an argument."""
    word = view.server.repeated
    if word is not None:
        report.error(
            word.line,
            "entrypoint-repeated",
            f"the image already runs `vllm serve` (before {facts()['serve_entrypoint_since']} the API server module), "
            f"so {word.text!r} and what follows are taken for arguments",
            "begin the command with the model, or set the entry point too",
        )


def model_is_named(view: View, report: Report) -> None:
    """Without a model the engine serves its default one, and nothing says so."""
    server, model = view.server, view.model
    config = "config" in view.arguments.words
    if model is None and not config and server.entry != "config":
        own_image = server.image is not None and not server.image.is_official and server.entry == "image"
        if own_image or any(word.open for word in server.args):
            return
        message = f"{server.name} names no model: the engine starts its default (Qwen/Qwen3-0.6B) and nothing complains"
        patched = server.form == "kubernetes" and not server.args
        fix = "give the model first, as in `vllm serve MODEL`" + (", unless an overlay does" if patched else "")
        report.say("warning" if patched else "error", view.line, "model-missing", (message, fix))
        return
    if model is None or server.image is None or not server.image.is_official or server.entry != "image":
        return
    by_position = model in server.args and not any(
        word.text in ("--model", "--model=" + model.text) for word in server.args
    )
    if by_position and view.is_stated and not view.at_least(facts()["serve_entrypoint_since"]):
        report.error(
            model.line,
            "model-positional",
            f"the entry point of the {view.version} image is the API server module, which ignores a model given by "
            "position and starts its default one",
            f"write --model {model.text}; check /v1/models after the start",
        )


def model_exists(view: View, report: Report) -> None:
    """A wrong owner or a missing suffix is found only when the download fails."""
    model = view.model
    if model is None or model.open or model.text.count("/") != 1 or model.text.startswith(("/", ".")):
        return
    right = facts()["repositories"].get(model.text.split("/", 1)[1])
    if right is not None and right != model.text:
        report.warning(
            model.line,
            "model-name",
            f"{model.text} is probably not a repository of the hub",
            f"did you mean {right}?",
        )


def token_is_given(view: View, report: Report) -> None:
    """Gated repositories answer 401 without a token."""
    model, server = view.model, view.server
    if model is not None and model.text.startswith("/") and server.in_container and "HF_TOKEN" in server.env:
        report.note(
            server.env["HF_TOKEN"].line,
            "token-unneeded",
            f"{server.name} serves local weights and still gets HF_TOKEN",
            "take it out: what has no token cannot leak it",
        )
    if model is None or model.open or not model.text.startswith(tuple(facts()["gated"])):
        return
    known = {"HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"}
    given = known & {*server.env, *server.passed} or "hf-token" in view.arguments.words
    offline = server.env.get("HF_HUB_OFFLINE")
    if given or server.form in _TOKEN_FROM_OUTSIDE or (offline and offline.text == "1"):
        return
    if server.box is not None and server.box.reads_env_file:
        return
    report.warning(
        model.line,
        "token-missing",
        f"{model.text} is gated, and {server.name} gets no HF_TOKEN: the download is refused unless it is cached",
        "pass HF_TOKEN from a secret or an env file, never in the file itself",
    )


def old_module(view: View, report: Report) -> None:
    """The module entry point is deprecated."""
    if view.server.entry == "module" and view.at_least("0.20.0"):
        report.warning(
            view.line,
            "entrypoint-module",
            "python -m vllm.entrypoints.openai.api_server is deprecated; it only warns and passes on",
            "use `vllm serve MODEL`",
        )


def eager_mode(view: View, report: Report) -> None:
    """Eager mode switches compilation and CUDA graphs off."""
    is_cpu = view.server.image is not None and view.server.image.is_cpu
    if (
        view.arguments.values.get("enforce-eager") is True
        and not is_cpu
        and "VLLM_CPU_KVCACHE_SPACE" not in view.server.env
    ):
        report.warning(
            view.flag_line("enforce-eager"),
            "eager-mode",
            "--enforce-eager switches torch.compile and CUDA graphs off; decoding gets slower",
            "keep it for debugging; when graphs do not fit, lower --max-num-seqs or the capture sizes first",
        )


def dtypes(view: View, report: Report) -> None:
    """Types that cost twice the memory, or a slower kernel than the checkpoint has."""
    values = view.arguments.values
    is_cpu = view.server.image is not None and view.server.image.is_cpu
    if values.get("dtype") in ("float", "float32") and not is_cpu and "VLLM_CPU_KVCACHE_SPACE" not in view.server.env:
        report.warning(
            view.flag_line("dtype"),
            "dtype-float32",
            f"--dtype {values['dtype']} doubles the memory of a 16-bit checkpoint and halves the speed",
            "leave --dtype out, or half on GPUs without bfloat16",
        )
    capability = view.context.hardware.capability if view.context.hardware else None
    if values.get("quantization") in ("awq", "gptq") and (capability is None or capability >= 8.0):
        method = values["quantization"]
        report.warning(
            view.flag_line("quantization"),
            "quantization-slow",
            f"--quantization {method} forces the plain kernel; from capability 8.0 on {method}_marlin is faster",
            "leave --quantization out: the engine takes the fastest kernel for the checkpoint",
        )


def remote_code(view: View, report: Report) -> None:
    """Code from a repository runs with the server's rights."""
    if view.arguments.values.get("trust-remote-code") is True:
        report.warning(
            view.flag_line("trust-remote-code"),
            "remote-code",
            "--trust-remote-code runs Python from the model's repository; vLLM has its own code for most models",
            "take it out and see whether the model still starts; else pin --revision",
        )


def address(view: View, report: Report) -> None:
    """Who can reach the server, and whether anybody can."""
    server, box = view.server, view.server.box
    host = view.arguments.values.get("host")
    line = view.flag_line("host")
    has_key = "api-key" in view.arguments.words or "VLLM_API_KEY" in {*server.env, *server.passed}
    if host in _LOOPBACK and server.in_container and (server.form == "kubernetes" or (box and box.ports)):
        report.error(
            line,
            "host-loopback",
            f"--host {host} inside a container cannot be reached from outside it",
            "use --host 0.0.0.0, and bind the published port to the address that should see it",
        )
    is_open = host in _OPEN_HOSTS or host is None
    published = [port for port in (box.ports if box else []) if port.host in ("", *_OPEN_HOSTS)]
    if has_key or (box is not None and box.reads_env_file):
        return
    if server.form in ("shell", "systemd") and server.entry != "config" and is_open:
        how = "--host is not given, so it listens" if host is None else f"--host {host} listens"
        report.say(
            "note" if host is None else "warning",
            line,
            "open-without-key",
            (f"{how} on every address without an API key", "bind 127.0.0.1, or set VLLM_API_KEY in the environment"),
        )
    elif server.form in ("compose", "docker") and published:
        report.warning(
            published[0].line,
            "open-without-key",
            f"port {published[0].inside} is published on every address of the host and the server asks for no API key",
            "publish on 127.0.0.1, or set VLLM_API_KEY from a secret",
        )


def shown_config(view: View, report: Report) -> None:
    """Releases in which a right flag does not work."""
    for entry in facts()["broken"]:
        inside = Version(entry["from"]) <= parse_version(view.version) <= Version(entry["to"])
        if inside and view.is_stated and entry["flag"] in view.arguments.words:
            report.warning(
                view.flag_line(entry["flag"]),
                "broken-release",
                f"--{entry['flag']} on {view.version}: {entry['says']} ({entry['source']})",
                entry["fix"],
            )


def wide_lora(view: View, report: Report) -> None:
    """Buffers are as large as the largest rank allowed, used or not."""
    rank = view.arguments.count("max-lora-rank")
    if rank is not None and rank > 64:
        report.warning(
            view.flag_line("max-lora-rank"),
            "lora-rank",
            f"--max-lora-rank {rank}: memory and kernels are sized for it, whatever rank the adapters have",
            "use the largest rank among the adapters (r in adapter_config.json)",
        )


def json_values(view: View, report: Report) -> None:
    """Keys of speculative-config that every method needs."""
    value = view.arguments.values.get("speculative-config")
    if not isinstance(value, str):
        return
    try:
        config = parse_json(value)
    except ValueError:
        return
    if isinstance(config, dict) and "num_speculative_tokens" not in config and config.get("method") != "suffix":
        report.warning(
            view.flag_line("speculative-config"),
            "speculative-tokens",
            "--speculative-config says no num_speculative_tokens, which most methods need",
            'add "num_speculative_tokens": 3',
        )


RULES: tuple[Rule, ...] = (
    image_is_pinned,
    image_is_recent,
    entrypoint_is_not_repeated,
    model_is_named,
    model_exists,
    token_is_given,
    old_module,
    eager_mode,
    memory_share,
    memory_part,
    dtypes,
    remote_code,
    address,
    shown_config,
    wide_lora,
    json_values,
)
