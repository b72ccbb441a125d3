"""Draws a running study: one live line on a terminal, plain lines elsewhere. Colour never carries the meaning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from tuner.app.events import Event, LoadProgress, Note, PhaseEntered, TrialEnded, TrialStarted, WorkPlan
from tuner.app.words import settings_text, value_text
from tuner.domain.plan import Plan
from tuner.domain.study import KNEES
from tuner.domain.trial import Dropped, Estimate, Failed, Infeasible, Measured, Trial

_UNITS = {
    "output_tokens_per_s": "output tokens/s",
    "requests_per_s": "requests/s",
    "goodput_per_s": "good requests/s",
    "p95_ttft": "ms p95 TTFT",
    "p95_itl": "ms p95 ITL",
    "p95_e2e": "ms p95 end to end",
    "mean_e2e": "ms mean end to end",
    "max_concurrency": "clients within the SLO",
    "max_rate": "requests/s within the SLO",
    "cost_per_mtok": "USD a million output tokens",
    "joules_per_token": "J an output token",
}


def duration(seconds: float) -> str:
    """Return `45 s`, `12 min` or `2 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


class Screen:
    """Takes events and shows them on stderr."""

    def __init__(self, console: Console, *, verbose: bool) -> None:
        self._console = console
        self._verbose = verbose
        self._live: Live | None = None
        self._head = ""
        self._phase = ""
        self._best = ""
        self._left: float | None = None
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def line(self, text: str) -> None:
        """Print one line above the live one."""
        self._console.print(text, markup=False, soft_wrap=True)

    def tell(self, event: Event) -> None:
        """Show one event."""
        match event:
            case WorkPlan():
                for text in _plan_lines(event, verbose=self._verbose):
                    self.line(text)
            case TrialStarted():
                self._start(event)
            case PhaseEntered(phase=phase):
                self._enter(phase)
            case LoadProgress():
                self._phase = f"measuring {event.done}/{event.total} requests"
                self._draw()
            case TrialEnded():
                self._end(event)
            case Note(text=text):
                self.line(text)
            case _:
                assert_never(event)

    def _start(self, event: TrialStarted) -> None:
        self._head = f"[{event.index}/{event.total}] {event.label}: {event.settings}"
        self._left = event.seconds_left
        self._since = time.monotonic()
        self._phase = "launching"
        if self._console.is_terminal:
            self._draw()
        else:
            left = f", about {duration(self._left)} left" if self._left is not None else ""
            spent = f", {event.device_hours:.2f} device hours so far" if event.device_hours else ""
            self.line(f"{self._head}{left}{spent}")
        if event.expected is not None:
            self.line(f"    PREDICTED {event.expected.format()}, from {event.expected.n} trials")

    def _enter(self, phase: str) -> None:
        if phase == self._phase:
            return
        self._phase = phase
        if self._console.is_terminal:
            self._draw()
        elif self._verbose:
            self.line(f"    {phase} ({time.monotonic() - self._since:.0f} s)")

    def _end(self, event: TrialEnded) -> None:
        self._stop()
        unit = _UNITS.get(event.unit, event.unit)
        trial = event.trial
        match trial.outcome:
            case Measured(start_s=start_s, levels=levels):
                shown = event.score.format(unit) if event.score else ""
                slo = "" if event.meets_slo else ", SLO not kept"
                best = ", best so far" if event.best else ""
                knee = f" over {len(levels)} load levels" if levels and event.unit in KNEES else ""
                text = f"MEASURED {shown}{knee}{slo}{best} (start {start_s:.0f} s{_against(trial, event.score)})"
                if event.best and event.score:
                    self._best = f"best {event.score.value:.4g} {unit}"
            case Dropped(reason=reason):
                text = f"DROPPED early: {reason}"
            case Failed(failure=failure, reason=reason):
                text = f"FAILED {failure}: {reason}"
            case Infeasible(reason=reason):
                text = f"RULED OUT without a launch: {settings_text(trial.config)}: {reason}"
            case _:
                assert_never(trial.outcome)
        self.line(f"  trial {trial.number}: {text}")
        if self._verbose and isinstance(trial.outcome, Failed):
            self.line("    " + "\n    ".join(trial.outcome.log_tail.splitlines()[-12:]))
        if self._verbose and isinstance(trial.outcome, Measured):
            for warning in trial.outcome.measurement.warnings:
                self.line(f"    warning {warning.kind}: {warning.detail}")

    def _draw(self) -> None:
        if not self._console.is_terminal:
            return
        elapsed = duration(time.monotonic() - self._since)
        left = f"about {duration(self._left)} left" if self._left is not None else ""
        parts = [part for part in (self._head, self._phase, elapsed, self._best, left) if part]
        line = Spinner("dots", text=Text(" | ".join(parts), overflow="ellipsis", no_wrap=True))
        if self._live is None:
            self._live = Live(line, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        else:
            self._live.update(line)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _plan_lines(plan: WorkPlan, *, verbose: bool) -> Iterator[str]:
    spec = plan.spec
    model = spec.model
    requested = f"{model.requested} -> " if model.requested != model.location else ""
    yield f"model      {requested}{model.location}{' (gated: needs HF_TOKEN)' if model.gated else ''}"
    yield f"hardware   {spec.hardware.label}"
    yield f"engine     {spec.engine.engine} {spec.engine.version} ({spec.engine.build} build)"
    slo = f", SLO {spec.slo.text}" if spec.slo.limits else ""
    yield f"workload   {spec.workload.name}: {spec.workload.requests} requests a trial{slo}"
    yield f"objective  {spec.objective}"
    yield f"study      {spec.name}" + (f", {_trials(plan.known)} known from before" if plan.known else "")
    pins = ", ".join(f"{pin.flag}={value_text(pin.value)}" for pin in spec.pins)
    if pins:
        yield f"pinned     {pins}"
    if plan.counted == plan.size:
        yield f"space      {plan.size} configurations, {plan.ruled_out} ruled out before a launch"
    else:
        share = plan.ruled_out / max(1, plan.counted)
        yield f"space      {plan.size} configurations, about {share:.0%} ruled out (of {plan.counted} drawn at random)"
    for rule, count, reason in plan.by_rule:
        yield f"             ruled out by {rule}: {count}, e.g. {reason}"
    if verbose:
        for closed in plan.closed:
            value = f" {value_text(closed.value)}" if closed.value is not None else ""
            yield f"             not searched: {closed.flag}{value}: {closed.reason}"
        for name, source in sorted(spec.sources.items()):
            yield f"             {name}: {source}"
    yield f"work       {plan.starts} starts, about {duration(plan.seconds)} (PREDICTED)"
    for note in plan.notes:
        yield f"note       {note}"


def _trials(count: int) -> str:
    return "1 trial" if count == 1 else f"{count} trials"


def result_lines(plan: Plan, folder: Path) -> Iterator[str]:
    """Return the end of a study in words: verdict, numbers, changes, files."""
    yield f"verdict: {plan.verdict.text}"
    unit = _UNITS.get(plan.study.objective, plan.study.objective)
    for arm in plan.arms:
        ratio = f", {arm.ratio.value:.2f}x [{arm.ratio.low:.2f}, {arm.ratio.high:.2f}]" if arm.ratio else ""
        slo = "" if arm.meets_slo else ", SLO not kept"
        score = f"MEASURED {arm.score.format(unit)} over {len(arm.rounds)} rounds"
        yield f"  {arm.label} (trial {arm.trial}): {score}{ratio}{slo}"
    for change in plan.changes:
        yield f"  {change.flag}: {change.before} -> {change.after}"
    yield f"plan:    {folder / 'plan.json'}"
    yield f"report:  {folder / 'report.md'}"
    yield f"deploy:  {folder / 'deploy'}"


def _against(trial: Trial, score: Estimate | None) -> str:
    """Return how far a prediction was off, for the line of a measured trial."""
    if trial.predicted is None or score is None or score.value <= 0:
        return ""
    return f"; PREDICTED {trial.predicted.value:.4g}, off by {trial.predicted.value / score.value - 1:+.0%}"
