"""Compare tuner/facts/data/gpus.yaml with systems/*.yaml in the wheel of aiconfigurator-core, and take its numbers.

The wheel is read, never imported. Only rows that name a file under `wheel` are touched, and only rates, bandwidth and
capability; memory stays what start-up logs showed, because a label says more than CUDA sees.

    pip download --no-deps aiconfigurator-core==0.12.0
    python scripts/update_gpus.py aiconfigurator_core-0.12.0-*.whl [--write]
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parents[1] / "tuner" / "facts" / "data" / "gpus.yaml"
FIELDS = {
    "bandwidth_gbs": ("mem_bw", 1e9),
    "bf16_tflops": ("bfloat16_tc_flops", 1e12),
    "fp8_tflops": ("fp8_tc_flops", 1e12),
    "fp4_tflops": ("fp4_tc_flops", 1e12),
    "int8_tops": ("int8_tc_flops", 1e12),
    "capability": ("sm_version", 10),
    "tdp_w": ("power", 1),
}


def main(wheel: Path, *, write: bool) -> int:
    """Print each difference; write the wheel's numbers with --write. Returns the number of differences."""
    text = TABLE.read_text(encoding="utf-8")
    rows = yaml.safe_load(text)["gpus"]
    differences = 0
    with zipfile.ZipFile(wheel) as archive:
        for name, row in rows.items():
            if "wheel" not in row:
                continue
            for field, value in published(archive, row["wheel"]).items():
                if row.get(field) is None or abs(row[field] - value) <= 1e-3 * abs(value):
                    continue
                differences += 1
                sys.stdout.write(f"{name}: {field} is {row[field]:g} here, {value:g} in {row['wheel']}.yaml\n")
                line = re.compile(rf'(?m)^(  "{re.escape(name)}": .*?\b{field}: )[\d.]+')
                text = line.sub(rf"\g<1>{value:g}", text)
    if write and differences:
        TABLE.write_text(text, encoding="utf-8")
    return differences


def published(archive: zipfile.ZipFile, name: str) -> dict[str, float]:
    """Return the numbers of one systems file in this table's units."""
    entry: dict[str, Any] = yaml.safe_load(archive.read(f"aiconfigurator_core/systems/{name}.yaml"))["gpu"]
    known = {field: (entry.get(key), unit) for field, (key, unit) in FIELDS.items()}
    return {field: value / unit for field, (value, unit) in known.items() if isinstance(value, (int, float))}


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1]), write="--write" in sys.argv) else 0)
