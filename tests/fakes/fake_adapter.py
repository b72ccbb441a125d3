"""A second kind of engine for the contract and for studies: the stand-in server, whose flags this adapter knows.

Its log lines and metrics are those of the stand-in (`fake_engine.py`), which speaks as vLLM does, so only their
translation is shared with the vLLM adapter.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tuner.domain.engine import EngineConfig, Footprint, LaunchSpec, ServerMetrics, StartupFacts, Value
from tuner.domain.model import ModelSpec
from tuner.domain.study import EngineInstall
from tuner.engines.base import Diagnosis
from tuner.engines.vllm import VllmEngine
from tuner.errors import FlagError

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
RULES = "FAKE_ENGINE_RULES"
FLAGS: dict[str, type] = {"max-num-seqs": int, "block-size": int, "kv-cache-dtype": str, "eager": bool, "itl-ms": float}


class FakeAdapter:
    """Settings become flags of the stand-in; `rules` (see `fake_engine.py`) say which settings have which effect."""

    name = "fake"

    def __init__(self, rules: str = "") -> None:
        self.rules = rules
        self._reads = VllmEngine()

    def check(self, flag: str, value: Value, version: str) -> None:
        """Know a handful of flags by their kind, and keep host, port and model to itself."""
        kind = FLAGS.get(flag)
        if flag in ("host", "port", "model"):
            raise FlagError(f"--{flag} cannot be set here: llmtune sets it")
        if kind is None:
            raise FlagError(f"fake {version} has no flag --{flag}")
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise FlagError(f"--{flag} takes a {kind.__name__}")

    def launch(self, model: ModelSpec, config: EngineConfig, install: EngineInstall) -> LaunchSpec:
        """Start the stand-in with its rules in the environment."""
        words: list[str] = []
        for setting in config.settings:
            words += [f"--{setting.flag}", *([] if setting.value is True else [str(setting.value).lower()])]
        return LaunchSpec(
            program=install.program,
            arguments=(model.location, "--served-model-name", model.name, *words),
            bind=("--host", "{host}", "--port", "{port}"),
            env={RULES: self.rules} if self.rules else {},
            model=model.location,
            model_is_local=model.is_local,
            served_name=model.name,
            secret_env=() if model.is_local else ("HF_TOKEN",),
            image="registry.local/fake:1",
            image_program=("fake",),
            devices=0 if install.build == "cpu" else 1,
        )

    def footprint(self, model: ModelSpec, config: EngineConfig) -> Footprint:
        """Give what a handful of flags says."""
        sequences = config.get("max-num-seqs")
        return Footprint(
            max_sequences=sequences if isinstance(sequences, int) else None,
            kv_bits=8.0 if config.get("kv-cache-dtype") == "fp8" else 16.0,
            max_context=model.max_context,
        )

    def startup_facts(self, log: str, metrics: str) -> StartupFacts:
        """As vLLM says it."""
        return self._reads.startup_facts(log, metrics)

    def server_metrics(self, text: str) -> ServerMetrics:
        """As vLLM exports them."""
        return self._reads.server_metrics(text)

    def fatal(self, log: str) -> str | None:
        """As vLLM logs it."""
        return self._reads.fatal(log)

    def phase(self, log: str) -> str:
        """As vLLM logs it."""
        return self._reads.phase(log)

    def classify(self, log: str, exit_code: int | None) -> Diagnosis:
        """As vLLM logs it."""
        return self._reads.classify(log, exit_code)

    def start_timeout_s(self, model: ModelSpec, config: EngineConfig) -> float:
        """Half a minute, and more for larger models."""
        return 30.0 + (model.weight_bytes or 0) / 1e9


def install() -> EngineInstall:
    """Return how the stand-in is started with this interpreter."""
    return EngineInstall(
        engine="fake", version="1.0", build="cpu", program=(sys.executable, str(FAKE_ENGINE), "serve"))


def make_vllm(folder: Path, version: str = "0.32.0") -> Path:
    """Make an environment whose `vllm` is the stand-in and whose metadata names this release; return the program."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.symlink_to(sys.executable)
    program = folder / "bin" / "vllm"
    words = [sys.executable, str(FAKE_ENGINE)]
    program.write_text(f"#!{python}\nimport os, sys\nos.execv({words[0]!r}, [*{words!r}, *sys.argv[1:]])\n")
    program.chmod(0o755)
    site = folder / f"lib/python3.{sys.version_info.minor}/site-packages"
    info = site / f"vllm-{version}+cpu.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return program


def make_model(folder: Path) -> Path:
    """Make the directory of a tiny model: its config, and weights of a kilobyte."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 9,'
        ' "num_key_value_heads": 3, "vocab_size": 1000, "max_position_embeddings": 512, "torch_dtype": "float32"}\n')
    (folder / "model.safetensors").write_bytes(b"0" * 1024)
    return folder
