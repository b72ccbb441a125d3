"""Exact sizes of weights that are not on this machine: from the headers of the files, over the network, when asked."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tuner.domain.json_text import parse_json
from tuner.domain.model import ModelSpec
from tuner.errors import LlmtuneError, ModelError, UsageError
from tuner.facts.catalog import model_by_hub_id
from tuner.inspect.model_dir import parse_config, with_config
from tuner.inspect.safetensors import parse_header, tensor_bytes
from tuner.inspect.view import Context, known_model
from tuner.runtime.hub import RemoteFiles, hub_address

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_SAFE_NAME = re.compile(r"^(?!.*\.\.)[A-Za-z0-9][\w.\-/]*\.safetensors$")
_AT_ONCE, _MOST_SHARDS = 8, 2000


def with_remote_weights(model: ModelSpec, where: str) -> ModelSpec:
    """Fill in what config.json and the headers of the weight files say; `where` is `hub` or the files' https address.

    Raises:
        UsageError: the weights are on this machine already.
        ModelError: the files cannot be read, or are none that are understood.

    """
    if model.is_local:
        raise UsageError(
            f"{model.requested} is a directory: its weight files are read as they are", hint="leave --weights-from out"
        )
    address = hub_address(model.location, model.revision) if where == "hub" else where
    with RemoteFiles(address) as files:
        raw = files.whole("config.json")
        if raw is None:
            raise ModelError(
                f"{address} has no config.json", hint="is the name right, and is it a model in safetensors?"
            )
        beside = files.whole("hf_quant_config.json") if b"quantization_config" not in raw else None
        spec = with_config(model, parse_config(_text(raw), f"{address}/config.json"), _object(beside))
        return spec.model_copy(update={"weight_bytes": _bytes(files, address, spec.layers)})


def with_hub(context: Context, where: str) -> tuple[Context, list[str]]:
    """Give the context of a check that reads sizes over the network, and the list that will hold what it could not.

    `where` is `hub`, for the model of the options or those that the files name, or the address of the former's files.

    Raises:
        UsageError: an address without a model.
        ModelError: files of the model in the options that cannot be read.

    """
    if context.model is not None:
        return replace(context, model=with_remote_weights(context.model, where)), []
    if where != "hub":
        raise UsageError("--weights-from with an address needs --model", hint="or say --weights-from hub")
    lookup = HubLookup()
    return replace(context, lookup=lookup), lookup.problems


class HubLookup:
    """Finds models that checked files name: by the tables, and with the sizes that the hub gives for hub ids.

    What could not be read is said once, in `problems`; the tables then have to do.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._found: dict[str, ModelSpec | None] = {}

    def __call__(self, name: str) -> ModelSpec | None:
        """Return the model of this name as far as it is known."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> ModelSpec | None:
        known = known_model(name)
        try:
            model = known or model_by_hub_id(name)
        except LlmtuneError:
            return None
        try:
            return with_remote_weights(model, "hub")
        except LlmtuneError as error:
            self.problems.append(error.message)
            return known


def _bytes(files: RemoteFiles, address: str, layers: int | None) -> int:
    """Sum the tensors of all shards."""
    names = _shards(files, address)

    def size(name: str) -> int:
        raw = files.header(name)
        if raw is None:
            raise ModelError(f"{address}/{name} is not there", hint="is the upload complete?")
        header = parse_header(raw)
        found = tensor_bytes(header, layers) if header is not None else None
        if found is None:
            raise ModelError(f"{address}/{name} has a header that is not understood")
        return found

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(size, names))


def _shards(files: RemoteFiles, address: str) -> list[str]:
    raw = files.whole(_INDEX)
    if raw is None:
        return [_SINGLE]
    index = _object(raw)
    table = index.get("weight_map") if index is not None else None
    names = sorted({str(name) for name in table.values()}) if isinstance(table, dict) else []
    if not names or len(names) > _MOST_SHARDS or not all(_SAFE_NAME.match(name) for name in names):
        raise ModelError(f"{address}/{_INDEX} names no weight files that are understood")
    return names


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")


def _object(raw: bytes | None) -> dict[str, object] | None:
    if raw is None:
        return None
    try:
        found = parse_json(raw)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
