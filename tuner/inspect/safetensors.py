"""Sizes of weights from the headers of safetensors files: eight bytes of length, then JSON. No weight is read."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

from tuner.domain.json_text import parse_json
from tuner.errors import ModelError

_LONGEST_HEADER = 100_000_000
_POINTER = b"version https://git-lfs"
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def loaded_bytes(files: Iterable[Path], layers: int | None) -> int | None:
    """Return the bytes of all tensors that an engine loads, or None when a header cannot be read.

    Left out are layers for multi-token prediction, which are loaded for speculation only: names under `mtp.`, and
    layer numbers from `layers` on.

    Raises:
        ModelError: a file is a Git LFS pointer: the download brought names, not weights.

    """
    total = 0
    for file in files:
        header = _header(file)
        size = tensor_bytes(header, layers) if header is not None else None
        if size is None:
            return None
        total += size
    return total or None


def tensor_bytes(header: dict[str, object], layers: int | None) -> int | None:
    """Return the bytes of the tensors of one header that an engine loads, or None when it is not understood."""
    total = 0
    for name, tensor in header.items():
        offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
        if name == "__metadata__" or _is_extra(name, layers):
            continue
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(isinstance(at, int) for at in offsets)):
            return None
        if not 0 <= offsets[0] <= offsets[1]:
            return None
        total += offsets[1] - offsets[0]
    return total


def parse_header(raw: bytes) -> dict[str, object] | None:
    """Return the header of a file without the length before it, or None when it is no JSON object."""
    try:
        header = parse_json(raw)
    except ValueError:
        return None
    return header if isinstance(header, dict) else None


def refuse_pointers(files: Iterable[Path]) -> None:
    """Check that weight files hold weights.

    Raises:
        ModelError: one is a Git LFS pointer.

    """
    for file in files:
        with file.open("rb") as stream:
            if stream.read(len(_POINTER)) == _POINTER:
                raise ModelError(
                    f"{file} is a Git LFS pointer of {file.stat().st_size} bytes, not weights",
                    hint="fetch the files themselves: git lfs pull, or the hub's own download command",
                )


def _is_extra(name: str, layers: int | None) -> bool:
    found = _LAYER.search(name)
    return name.startswith("mtp.") or bool(found and layers and "vision" not in name and int(found[1]) >= layers)


def _header(file: Path) -> dict[str, object] | None:
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= _LONGEST_HEADER:
            return None
        return parse_header(stream.read(length))
