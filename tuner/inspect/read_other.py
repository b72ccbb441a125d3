"""Reads servers out of other YAML: shell text in it (SkyPilot, dstack, workflows), Helm values, KServe."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.inspect.issue import Word
from tuner.inspect.read_kubernetes import objects
from tuner.inspect.read_scripts import read_script
from tuner.inspect.server import Image, Server, parse_image
from tuner.inspect.shell import split_words
from tuner.inspect.tree import Tree

_STARTS = re.compile(r"\bvllm serve\b|vllm\.entrypoints\.openai\.api_server|\btrtllm-serve\b|\bdocker run\b")
_VALUES = {
    "tensorParallelSize": "tensor-parallel-size",
    "pipelineParallelSize": "pipeline-parallel-size",
    "maxModelLen": "max-model-len",
    "maxNumSeqs": "max-num-seqs",
    "dtype": "dtype",
    "gpuMemoryUtilization": "gpu-memory-utilization",
}


def embedded_servers(tree: Tree, file: str) -> Iterator[Server]:
    """Yield the servers that shell text inside a YAML document starts."""
    image = next((node for key, node in tree.walk() if key in ("image", "image_id") and "vllm" in node.text), None)
    seen: set[int] = set()
    for key, node in tree.walk():
        if key in ("description", "message", "name"):
            continue
        for text in (node, *node.each()):
            if not text.text or id(text) in seen or not _STARTS.search(text.text):
                continue
            seen.add(id(text))
            block = "\n" in text.text and not text.is_quoted
            for server in read_script(text.text, file, text.line + block).servers:
                server.form = server.form if server.form == "docker" else "embedded"
                if server.image is None and image is not None:
                    server.image = parse_image(Word(image.text.removeprefix("docker:"), image.line))
                yield server


def helm_servers(tree: Tree, file: str) -> Iterator[Server]:
    """Yield the servers of the values of vLLM's production stack."""
    for model in tree.at("servingEngineSpec", "modelSpec").each():
        server = Server(file, f"model {model.at('name').text}", model.line, "helm", "vllm", "serve", [])
        repository, tag = model.at("repository"), model.at("tag")
        if repository.text:
            server.image = Image(
                Word(repository.text, (tag if tag.exists else repository).line), repository.text, tag.text, None
            )
        if model.at("hf_token").exists:
            server.passed.add("HF_TOKEN")
        if model.at("modelURL").text:
            server.args.append(Word(model.at("modelURL").text, model.at("modelURL").line))
        for key, flag in _VALUES.items():
            node = model.at("vllmConfig", key)
            if node.exists:
                server.args += [Word(f"--{flag}", node.line), Word(node.text, node.line)]
        server.args += [Word(item.text, item.line, item=True) for item in model.at("vllmConfig", "extraArgs").each()]
        yield server


def kserve_servers(trees: list[Tree], file: str) -> Iterator[Server]:
    """Yield the servers of KServe's LLMInferenceService, whose flags stand in a variable."""
    for item in objects(trees):
        if item.at("kind").text != "LLMInferenceService":
            continue
        for container in item.at("spec", "template", "containers").each():
            server = Server(
                file,
                f"LLMInferenceService {item.at('metadata', 'name').text}",
                container.line,
                "kserve",
                "vllm",
                "serve",
                [],
            )
            uri = item.at("spec", "model", "uri")
            server.args.append(Word(uri.text.removeprefix("hf://").split(":")[0] or "model", uri.line))
            if container.at("image").exists:
                server.image = parse_image(Word(container.at("image").text, container.at("image").line))
            for entry in container.at("env").each():
                value = entry.at("value")
                if entry.at("name").text == "VLLM_ADDITIONAL_ARGS":
                    server.args += split_words(value.text, value.line)
                elif value.exists:
                    server.env[entry.at("name").text] = Word(value.text, value.line)
                else:
                    server.passed.add(entry.at("name").text)
            yield server
