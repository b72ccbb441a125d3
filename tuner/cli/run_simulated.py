"""Runs `optimize --simulate` for the command line. Every line says SIMULATED."""

from __future__ import annotations

import typer

from tuner.app.ask import Ask
from tuner.app.rehearse import Rehearsal, rehearse
from tuner.app.resolve import resolve
from tuner.cli.show import duration

_SHOWN = 5


def simulated(ask: Ask, sources: dict[str, str], *, as_json: bool) -> None:
    """Search on the simulator and print what it came to."""
    resolved = resolve(ask, sources)
    for note in resolved.notes:
        typer.echo(f"SIMULATED note: {note}", err=True)
    found = rehearse(resolved, lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
        return
    for line in lines(found):
        typer.echo(line)


def lines(found: Rehearsal) -> list[str]:
    """Return the result in words."""
    texts = [f"SIMULATED, nothing was measured. Best of {len(found.tried)} configurations by {found.objective}:"]
    for one in found.tried[:_SHOWN]:
        settings = " ".join(f"{flag}={value}" for flag, value in one.settings.items()) or "the engine's defaults"
        value = f"{one.value:.4g}" if one.value is not None else "does not work"
        ratio = f", {one.value / found.default:.2f}x the default" if one.value and found.default else ""
        texts.append(f"SIMULATED   {value}{ratio}{'' if one.meets_slo else ', SLO not kept'}: {settings}")
    for flag, effect in sorted(found.effects.items(), key=lambda item: -_spread(item[1])):
        shown = ", ".join(f"{value} {mean:.4g}" for value, mean in effect.items())
        texts.append(f"SIMULATED   mean by {flag}: {shown}")
    if found.not_modelled:
        texts.append(f"SIMULATED   make no difference in the model: {', '.join(found.not_modelled)}")
    texts.append(f"SIMULATED   the live study takes {found.starts} starts, about {duration(found.seconds)} (PREDICTED)")
    band = found.band
    texts.append(f"SIMULATED   error of TPOT, {band.of}: {band.mape:g} % in the mean of {band.records} records")
    return texts


def _spread(effect: dict[str, float]) -> float:
    return max(effect.values()) / max(min(effect.values()), 1e-9)
