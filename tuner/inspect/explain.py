"""Works a failure's numbers through, and fills them into what its cause says: what happened, remedies, what not to do.

KV cache: bytes for one token = what one request needs / its length. What a remedy gains follows from that and from the
law of the profile run's peak (activation grows with max-num-seqs x vocabulary); such gains are PREDICTED.
"""

from __future__ import annotations

import math
import re

from tuner.capacity.free_fraction import utilization_for
from tuner.capacity.memory import kv_bytes_per_token
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.model import ModelSpec
from tuner.domain.record import Record
from tuner.engines import ENGINES
from tuner.engines.common import Cause
from tuner.errors import EngineError, FlagError
from tuner.facts.flags import flag_table
from tuner.facts.read import data
from tuner.inspect.log import LogReading
from tuner.inspect.view import known_model

_GIB = 1 << 30
_PEAK_BYTES = 4 * 3.635
"""Bytes of the profile run's peak for each sequence and word of the vocabulary, measured on vLLM 0.19."""
_NO_REMEDY = "none is known to llmtune; the line above is what to search for in the engine's issues"
_HOLES = re.compile(r"\{(\w+)\}")


class Explanation(Record):
    """What a log says went wrong, in plain words. `line` counts from 1; `kind` is what a trial would end with."""

    engine: str
    kind: str | None
    cause: str
    title: str
    line: int
    reason: str
    happened: tuple[str, ...]
    remedies: tuple[str, ...]
    avoid: tuple[str, ...]
    numbers: dict[str, str]

    @property
    def text(self) -> str:
        """The explanation for people."""
        parts = [f"{self.title} (line {self.line})", f"  {self.reason}"]
        for title, lines in (("What happened", self.happened), ("What helps, least harm first", self.remedies)):
            if lines:
                parts += ["", title]
                parts += [
                    f"  {n}. {line}" if title.startswith("What helps") else f"  {line}"
                    for n, line in enumerate(lines, 1)
                ]
        if self.avoid:
            parts += ["", "What not to do", *(f"  {line}" for line in self.avoid)]
        return "\n".join(parts)


def explain(reading: LogReading, model: ModelSpec | None = None) -> tuple[Explanation, ...]:
    """Explain the root cause of a log, and what it says in passing; empty when nothing known is in it."""
    found: list[Explanation] = []
    if reading.cause is not None:
        found.append(_explained(reading, reading.cause, model, kind=reading.cause.kind.value))
    known = {item.cause for item in found}
    found += [_explained(reading, symptom, model, kind=None) for symptom in reading.symptoms if symptom.id not in known]
    return tuple(found)


def _explained(reading: LogReading, cause: Cause, model: ModelSpec | None, kind: str | None) -> Explanation:
    name = cause.id
    if name == "memory" and reading.engine == "vllm" and _while_capturing(reading):
        name = "memory_graphs"
    if name == "exception" and "ngine core initialization failed" in cause.reason:
        name = "cut_off"
    entry = data(f"{reading.engine}/failures.yaml").get("causes", {}).get(name, {})
    numbers = {**reading.texts, **cause.groups, "phase": reading.phase}
    numbers |= _worked(name, numbers, model)

    def filled(key: str) -> tuple[str, ...]:
        return tuple(text for line in entry.get(key, ()) if (text := _fill(str(line), numbers)) is not None)

    return Explanation(
        engine=reading.engine,
        kind=kind,
        cause=name,
        title=entry.get("title", "the engine stopped with an error"),
        line=cause.line,
        reason=cause.reason,
        happened=filled("happened"),
        remedies=filled("remedies") or (_NO_REMEDY,),
        avoid=filled("avoid"),
        numbers=numbers,
    )


def _while_capturing(reading: LogReading) -> bool:
    return reading.phase == "capturing graphs" or "Capturing CUDA graphs" in (
        reading.cause.reason if reading.cause else ""
    )


def _fill(line: str, numbers: dict[str, str]) -> str | None:
    """Fill a sentence; None when one of its numbers is not known. `{{` is a brace."""
    plain = line.replace("{{", "\0").replace("}}", "\1")
    if any(hole not in numbers for hole in _HOLES.findall(plain)):
        return None
    return _HOLES.sub(lambda match: numbers[match[1]], plain).replace("\0", "{").replace("\1", "}")


def _worked(name: str, numbers: dict[str, str], model: ModelSpec | None) -> dict[str, str]:
    spec = model or (known_model(numbers["model"]) if "model" in numbers else None)
    by_model = {"kv_short": _short_cache, "kv_tokens": _short_tokens}
    alone = {"neighbour": _held, "heads": _divisors, "flag_unknown": _flags, "no_cache": _budget}
    if name in by_model:
        return by_model[name](numbers, spec)
    return alone[name](numbers) if name in alone else {}


def _short_cache(numbers: dict[str, str], spec: ModelSpec | None) -> dict[str, str]:
    length, needed, have = (_number(numbers.get(key)) for key in ("length", "needed", "available"))
    if not length or not needed or have is None:
        return {}
    per_token = needed * _GIB / length
    fits = int(_number(numbers.get("estimated")) or have * _GIB / per_token)
    worked = {
        "missing": f"{needed - have:.2f}",
        "per_token": f"{per_token / 1024:.1f}",
        "fit_tokens": str(fits),
        "fit_length": str(fits // 16 * 16 if fits >= 16 else fits),
    }
    if fits < 16:
        del worked["fit_length"]
    if numbers.get("kv_dtype", "auto") == "auto":
        enough = "which fits" if needed / 2 <= have else f"{needed / 2 - have:.2f} GiB are still missing"
        worked |= {"needed_fp8": f"{needed / 2:.2f}", "fp8_enough": enough}
    share, total = _number(numbers.get("share")), _number(numbers.get("total", "").removesuffix(" GiB"))
    if share and total:
        used = share * total - have
        exact = utilization_for(int(total * _GIB), int(used * _GIB), int(needed * _GIB))
        wanted = math.ceil(exact * 100) / 100 if exact is not None else 1.0
        worked |= {"share_needed": f"{wanted:.2f}"} if wanted <= 0.95 else {}
    seqs = _number(numbers.get("seqs"))
    if seqs and seqs > 32 and spec is not None and spec.vocab_size:
        fewer = max(32, int(seqs) // 4)
        gain = (seqs - fewer) * spec.vocab_size * _PEAK_BYTES / _GIB
        worked |= {"fewer_seqs": str(fewer), "seqs_gain": f"{gain:.1f}"}
    return worked


def _short_tokens(numbers: dict[str, str], spec: ModelSpec | None) -> dict[str, str]:
    length, tokens = _number(numbers.get("length")), _number(numbers.get("tokens"))
    if length is None or tokens is None:
        return {}
    worked = {
        "missing_tokens": str(int(length - tokens)),
        "blocks_of_16": str(int(tokens) // 16),
    }
    if numbers.get("kv_dtype", "auto") == "auto":
        worked["tokens_fp8"] = str(int(tokens) * 2)
    if spec is not None:
        ranks = int(_number(numbers.get("ranks")) or 1)
        settings = (Setting(flag="tensor-parallel-size", value=ranks),) if ranks > 1 else ()
        config = EngineConfig(engine="vllm", version="0.6.0", settings=settings)
        per_token = kv_bytes_per_token(spec, ENGINES["vllm"].footprint(spec, config))
        if per_token:
            worked |= {
                "per_token": f"{per_token / 1024:.1f}",
                "have_gib": f"{tokens * per_token / _GIB:.2f}",
                "needed_gib": f"{length * per_token / _GIB:.2f}",
            }
    return worked


def _held(numbers: dict[str, str]) -> dict[str, str]:
    free, total = _number(numbers.get("free")), _number(numbers.get("total"))
    if free is None or not total:
        return {}
    worked = {"held": f"{total - free:.2f}"}
    share = math.floor(free / total * 100) / 100
    return worked | {"share_free": f"{share:.2f}"} if share >= 0.1 else worked


def _divisors(numbers: dict[str, str]) -> dict[str, str]:
    heads = _number(numbers.get("heads"))
    if not heads or heads > 1024:
        return {}
    fits = [str(n) for n in range(1, min(int(heads), 64) + 1) if int(heads) % n == 0]
    return {"divisors": " or ".join([", ".join(fits[:-1]), fits[-1]]) if len(fits) > 1 else fits[0]}


def _flags(numbers: dict[str, str]) -> dict[str, str]:
    """Say of each refused argument what became of it."""
    version = numbers.get("version", "")
    said: list[str] = []
    try:
        table = flag_table("vllm", version or "0.33.0")
    except EngineError:
        return {}
    for word in numbers.get("arguments", "").split():
        if not word.startswith("--"):
            continue
        try:
            table.require(word.partition("=")[0])
        except FlagError as error:
            said.append(error.message + (f" ({error.hint})" if error.hint else ""))
    verdict = ". ".join(said) or f"The words {numbers.get('arguments', '')} belong to no flag of this release"
    return {"flags_verdict": verdict + "."}


def _budget(numbers: dict[str, str]) -> dict[str, str]:
    share, total = _number(numbers.get("share")), _number(numbers.get("total", "").removesuffix(" GiB"))
    return {"budget": f"{share * total:.2f}"} if share and total else {}


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
