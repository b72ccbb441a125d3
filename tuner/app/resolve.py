"""From what the user asked to the frozen question: model, hardware, engine, workload, space and pins, all checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from tuner.app.ask import Ask, command, seconds
from tuner.app.named import SHORT, resolve_model, resolve_workload
from tuner.app.objectives import parse_objectives, price_per_hour
from tuner.app.recipes import recipes
from tuner.domain.engine import EngineConfig, Setting
from tuner.domain.hardware import Hardware
from tuner.domain.model import ModelSpec
from tuner.domain.slo import Slo, parse_slo
from tuner.domain.space import SearchSpace
from tuner.domain.study import Budget, EngineInstall, StudySpec
from tuner.domain.workload import Workload
from tuner.engines import ENGINES
from tuner.errors import EngineError, FlagError, HardwareError, ModelError, UsageError
from tuner.facts.catalog import architecture_problem
from tuner.facts.flags import flag_table, newest_version
from tuner.facts.gpus import parse_hardware
from tuner.facts.read import bundled
from tuner.inspect.command import parse_value, read_baseline
from tuner.inspect.trtllm_command import read_trtllm_baseline
from tuner.rules import findings
from tuner.runtime.detect import detect_engine, detect_hardware
from tuner.search.sampler import Kind
from tuner.search.spaces import UNSET, OpenSpace, load_space, open_space
from tuner.search.storage import refuse_storage

_STUDY_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")
_IMAGE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")
_DEFAULT_TRIALS, _DEFAULT_FINALISTS, _DEFAULT_ROUNDS = 20, 2, 3
_DEFAULTED = ("engine", "workload", "objective", "trials", "finalists", "verify_rounds", "out", "seed")
_GIB = 1 << 30


@dataclass(frozen=True)
class Resolved:
    """The question, the space as it is open here, and what is worth saying before the start."""

    spec: StudySpec
    space: OpenSpace
    notes: tuple[str, ...]
    out: Path
    storage: str | None
    command: str
    sampler: Kind = "llmtune"
    recipes: tuple[EngineConfig, ...] = ()
    """Configurations that are tried before the sampler is asked."""


def resolve(ask: Ask, sources: dict[str, str]) -> Resolved:
    """Turn an `Ask` into a checked question.

    Raises:
        LlmtuneError: of the kind that fits what is wrong; nothing has been started or written.

    """
    _check_names(ask)
    if ask.storage is not None:
        refuse_storage(ask.storage)
    if not ask.model:
        raise UsageError("no model", hint="say --model NAME, or name it in a study file")
    engine_name = ask.engine or "vllm"
    if engine_name not in ENGINES:
        raise UsageError(f"unknown engine {engine_name!r}", hint=f"one of: {', '.join(ENGINES)}")
    model = resolve_model(ask.model, ask.model_name)
    workload = resolve_workload(ask.workload or "chat", ask.requests)
    slo = parse_slo(ask.slo) if ask.slo else Slo()
    hardware = parse_hardware(ask.gpu) if ask.gpu else detect_hardware()
    objectives = parse_objectives(ask.objective, slo, workload, hardware)
    install = _assumed(engine_name, ask, hardware) or _detected(engine_name, ask.engine_command)
    if ask.image:
        install = install.model_copy(update={"image": _pinned(ask.image)})
    notes = _check_possible(model, hardware, install)
    space_path = Path(ask.space) if ask.space else bundled("search_spaces") / f"{engine_name}.yaml"
    space = load_space(space_path, install.version)
    pins, left = _pins(ask.set, engine_name, install.version)
    _check_pins(pins, model, hardware, install)
    opened = open_space(space, version=install.version, model=model, hardware=hardware, pins=pins, left=left)
    baseline, more = _baseline(ask, model, install, pins, left)
    _check_length(workload, model, opened)
    budget = Budget(
        trials=ask.trials or _DEFAULT_TRIALS,
        seconds=seconds(ask.budget, "--budget") if ask.budget else None,
        finalists=ask.finalists or _DEFAULT_FINALISTS,
        verify_rounds=ask.verify_rounds or _DEFAULT_ROUNDS,
        start_timeout_s=seconds(ask.start_timeout, "--start-timeout") if ask.start_timeout else None,
        device_hours=ask.gpu_hours,
        max_failures=ask.max_failures,
        soak_s=seconds(ask.soak, "--soak") if ask.soak else 0.0,
        accept_busy=bool(ask.accept_busy),
    )
    spec = StudySpec(
        name=ask.study or "unnamed",
        model=model,
        hardware=hardware,
        engine=install,
        workload=workload,
        slo=slo,
        objective=objectives[0],
        also=objectives[1:],
        price_per_hour=price_per_hour(ask.price, objectives, hardware),
        space=space.model_copy(update={"settings": tuple(s for s in space.settings if s.flag not in left)}),
        pins=pins,
        baseline=baseline,
        budget=budget,
        seed=ask.seed or 0,
        sources=_sources(sources, ask, space),
    )
    if ask.study is None:
        spec = spec.model_copy(
            update={"name": f"{workload.name}-{spec.question[:8]}".replace("@", "-").replace("/", "-")}
        )
    return Resolved(
        spec=spec,
        space=opened,
        notes=(*notes, *more),
        out=Path(ask.out or "outputs"),
        storage=ask.storage,
        command=command(ask),
        sampler=_sampler(ask.sampler),
        recipes=recipes(opened, ask.warm_start),
    )


def _sampler(text: str | None) -> Kind:
    for kind in get_args(Kind):
        if text in (None, kind):
            return cast("Kind", kind)
    raise UsageError(f"unknown sampler {text!r}", hint=f"one of: {', '.join(get_args(Kind))}")


def _pinned(image: str) -> str:
    tag = image.rsplit("/", 1)[-1]
    if "@sha256:" not in image and (":" not in tag or tag.endswith((":latest", ":nightly"))):
        raise UsageError(f"--image {image}: not pinned", hint="give a tag of one release or a digest, never latest")
    return image


def _check_names(ask: Ask) -> None:
    """Refuse names that cannot be folders, or that no client could write."""
    if ask.study is not None and not _STUDY_NAME.match(ask.study):
        raise UsageError(f"--study {ask.study!r} is not a name", hint="letters, digits, . _ @ and -, at most 100")
    if ask.model_name is not None and (not ask.model_name.strip() or not ask.model_name.isprintable()):
        raise UsageError(f"--model-name {ask.model_name!r} is not a name that clients could write")
    if ask.image is not None and not _IMAGE.match(ask.image):
        raise UsageError(f"--image {ask.image!r} is not the name of an image", hint="e.g. vllm/vllm-openai:v0.33.0")


def _detected(engine: str, command: str | None) -> EngineInstall:
    try:
        return detect_engine(engine, command)
    except EngineError as error:
        ahead = f"to look ahead without one: --dry-run --engine-version {newest_version(engine)}"
        raise EngineError(error.message, hint=f"{error.hint}; {ahead}" if error.hint else ahead) from None


def _assumed(engine: str, ask: Ask, hardware: Hardware) -> EngineInstall | None:
    """Return a release that need not be installed, for looking ahead only."""
    if ask.engine_version is None and not (ask.gpu and ask.engine_command is None):
        return None
    version = ask.engine_version or newest_version(engine)
    flag_table(engine, version)
    program = "trtllm-serve" if engine == "trtllm" else engine
    return EngineInstall(
        engine=engine, version=version, build="cuda" if hardware.kind == "cuda" else "cpu", program=(program, "serve")
    )


def _check_possible(model: ModelSpec, hardware: Hardware, install: EngineInstall) -> tuple[str, ...]:
    notes: list[str] = []
    if install.build == "cuda" and hardware.kind == "cpu":
        raise HardwareError(
            f"{install.engine} {install.version} here is the CUDA build, and this machine has no NVIDIA GPU",
            hint="run this where the GPUs are, or tune on the CPU with the CPU build (--engine-command)",
        )
    size = model.weight_bytes or 2 * (model.parameters or 0)
    if hardware.kind == "cpu" and hardware.memory_bytes and size > hardware.memory_bytes:
        raise HardwareError(
            f"{model.name} has {size / _GIB:.0f} GiB of weights (PREDICTED from its size), this machine has no GPU and "
            f"{hardware.memory_bytes / _GIB:.0f} GiB of memory",
            hint="run this where the GPUs are; --dry-run there shows what fits before anything is started",
        )
    if model.architecture is None:
        notes.append(
            f"the architecture of {model.location} is not known here, so fewer mistakes are caught before a launch"
        )
    else:
        problem = architecture_problem(install.engine, install.version, model.architecture)
        if problem and problem[1]:
            raise ModelError(problem[0], hint="choose a model that this engine serves")
        if problem:
            notes.append(f"{problem[0]}; its generic back end may serve it")
    if doubt := flag_table(install.engine, install.version).doubt:
        notes.append(doubt)
    if hardware.kind == "cuda" and install.build == "cpu":
        notes.append("this is the engine's CPU build, and the GPUs stay idle")
    return tuple(notes)


def _pins(texts: tuple[str, ...], engine: str, version: str) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    pins: dict[str, Setting] = {}
    left: list[str] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {text!r} has no value", hint="write --set flag=value, e.g. --set max-num-seqs=64")
        if name.startswith("env:"):
            ENGINES[engine].check(name, value, version)
            pins[name] = Setting(flag=name, value=value, source="user", why="set by you")
            continue
        flag = flag_table(engine, version).require(name)
        if value == UNSET:
            left.append(flag.name)
            continue
        parsed = parse_value(flag, value)
        ENGINES[engine].check(flag.name, parsed, version)
        pins[flag.name] = Setting(flag=flag.name, value=parsed, source="user", why="set by you")
    return tuple(pins.values()), tuple(left)


def _check_pins(pins: tuple[Setting, ...], model: ModelSpec, hardware: Hardware, install: EngineInstall) -> None:
    """Refuse pins that cannot work whatever else is set; no search could mend them."""
    pinned = EngineConfig(engine=install.engine, version=install.version, settings=pins)
    for finding in findings(pinned, model, hardware):
        if finding.severity == "error":
            raise FlagError(f"the pinned settings cannot work: {finding.reason}", hint=finding.fix or None)


def _baseline(
    ask: Ask, model: ModelSpec, install: EngineInstall, pins: tuple[Setting, ...], left: tuple[str, ...]
) -> tuple[EngineConfig | None, tuple[str, ...]]:
    if ask.baseline is None:
        return None, ()
    if install.engine == "trtllm":
        read = read_trtllm_baseline(ask.baseline, version=install.version)
    else:
        read = read_baseline(ask.baseline, engine=install.engine, version=install.version)
    notes: list[str] = []
    served = read.model
    if served and not _same_model(served, model, ask.model):
        raise UsageError(
            f"the baseline serves {served}, but --model is {model.location}",
            hint="compare settings of one model; name the same one in both",
        )
    for setting in read.config.settings:
        ENGINES[install.engine].check(setting.flag, setting.value, install.version)
    if read.ignored:
        notes.append(f"left out of the baseline, because llmtune sets them: {', '.join(read.ignored)}")
    missing = [pin for pin in pins if read.config.get(pin.flag) is None]
    clash = [pin.flag for pin in pins if read.config.get(pin.flag) not in (None, pin.value)]
    if clash:
        notes.append(f"the baseline keeps its own {', '.join(clash)}")
    del left
    return read.config.with_settings(*missing), tuple(notes)


def _same_model(served: str, model: ModelSpec, requested: str | None) -> bool:
    if served in (model.location, requested, model.name):
        return True
    return model.is_local and Path(served).name == Path(model.location).name


def _check_length(workload: Workload, model: ModelSpec, space: OpenSpace) -> None:
    pinned = EngineConfig(engine=space.engine, version=space.version, settings=space.pins)
    context = ENGINES[space.engine].footprint(model, pinned).max_context or model.max_context
    if context is not None and workload.longest > context:
        raise UsageError(
            f"the longest request of workload {workload.name} has {workload.longest} tokens, "
            f"the context length is {context}",
            hint="choose a shorter workload or a longer context",
        )


def _sources(given: dict[str, str], ask: Ask, space: SearchSpace) -> dict[str, str]:
    sources = {**dict.fromkeys(_DEFAULTED, "default"), "hardware": "detected", "engine_version": "detected"}
    sources |= {"model_architecture": "config.json or the model table", "space": f"bundled {space.origin}"}
    sources |= given
    if ask.workload and "workload" in given and not SHORT.match(ask.workload):
        sources["workload"] = f"{given['workload']}, preset or file {Path(ask.workload).name}"
    return sources
