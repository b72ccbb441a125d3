"""The environment that an engine is started in: what is measured must not depend on what a shell happened to hold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner.domain.engine import LaunchSpec

LOOPBACK = ("127.0.0.1", "localhost", "::1")

# Another interpreter's or a test run's own affairs.
_OTHERS = re.compile(
    r"^(PYTHON.*|VIRTUAL_ENV.*|CONDA_PREFIX.*|__PYVENV_LAUNCHER__|COVERAGE.*|COV_.*|PYTEST.*|LLMTUNE_.*)$"
)
_SECRET = re.compile(
    r"TOKEN(?!IZER)|SECRET|PASSW|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|_PAT$|^AUTH", re.IGNORECASE
)
# Engine variables change what is measured, so they come from the configuration; these say where files go, and opt out.
_ENGINE = re.compile(r"^(VLLM|SGLANG|TRTLLM|TLLM)_")
_PLACES = frozenset(
    {"VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_ASSETS_CACHE", "VLLM_NO_USAGE_STATS", "TRTLLM_NO_USAGE_STATS"}
)


def engine_environment(spec: LaunchSpec, ambient: Mapping[str, str]) -> dict[str, str]:
    """Return what is kept of `ambient`, then the variables of `spec`, then what loopback needs.

    Secrets are kept only when `spec` names them. The engine's own program directory leads PATH, as in an activated
    environment. Proxies stay for downloads but never apply to loopback.
    """
    env = {name: value for name, value in ambient.items() if _kept(name, spec)}
    env.update({name: ambient[name] for name in spec.secret_env if name in ambient})
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.update(spec.env)
    program = Path(spec.program[0])
    if program.is_absolute():
        env["PATH"] = f"{program.parent}:{env['PATH']}" if env.get("PATH") else str(program.parent)
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = _with_loopback(env.get(name, ""))
    return env


def left_out(spec: LaunchSpec, ambient: Mapping[str, str]) -> tuple[str, ...]:
    """Names of engine variables in `ambient` that the engine will not see, for a warning to the user."""
    return tuple(
        sorted(name for name in ambient if _ENGINE.match(name) and not _kept(name, spec) and name not in spec.env)
    )


def _kept(name: str, spec: LaunchSpec) -> bool:
    if name in spec.secret_env or name in _PLACES:
        return True
    return not (_OTHERS.match(name) or _SECRET.search(name) or _ENGINE.match(name))


def _with_loopback(value: str) -> str:
    present = [part.strip() for part in value.split(",") if part.strip()]
    return ",".join([*present, *_missing(present)])


def _missing(present: Iterable[str]) -> list[str]:
    known = set(present)
    return [] if "*" in known else [host for host in LOOPBACK if host not in known]
