"""What all tests share: the engine and the model of the integration tests, GPUs, and golden files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# The same examples everywhere: a red run can be repeated, and a slow moment of the machine is no failure.
settings.register_profile("house", deadline=None, derandomize=True, database=None)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-golden."""
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU where there is none."""
    if shutil.which("nvidia-smi") is None:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written."""
    return bool(request.config.getoption("--update-golden"))


def _needed(path: Path, target: str) -> Path:
    if not path.exists():
        reason = f"{path.relative_to(ROOT)} is missing: run `make {target}`"
        if os.environ.get("LLMTUNE_NEED_ENGINE"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="session")
def engine_command() -> Path:
    """The real vLLM's command, in an environment of its own (`make engine`)."""
    return _needed(ROOT / ".venv-vllm" / "bin" / "vllm", "engine")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The directory of the demo model (`make demo-model`)."""
    return _needed(ROOT / ".cache" / "demo-model" / "tiny-llama", "demo-model")
