"""What may be said after verification: who won, by how much, or that nobody did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tuner.app.history import keeps
from tuner.app.scoring import replicas, scored
from tuner.app.verify import Entrant
from tuner.domain.plan import Arm, NoiseFloor, Verdict
from tuner.domain.study import StudySpec
from tuner.domain.trial import Estimate
from tuner.measure.compare import combine, noise_floor, ratio_over_rounds
from tuner.measure.objective import direction

Reference = Literal["default", "baseline", "none"]

_WORDS: dict[Reference, tuple[str, str, str]] = {
    "default": ("the engine's defaults", "stay", "do"),
    "baseline": ("your baseline", "stays", "does"),
    "none": ("nothing", "stays", "does"),
}


def arms(spec: StudySpec, chosen: Sequence[Entrant]) -> tuple[Arm, ...]:
    """Sum up the rounds of each entrant; ratios are taken round by round against the first one, the reference."""
    found: list[Arm] = []
    reference = next((entrant for entrant in chosen if entrant.label in ("baseline", "default")), None)
    for entrant in chosen:
        if not entrant.rounds:
            continue
        compared = reference is not None and entrant is not reference
        found.append(
            Arm(
                label=entrant.label,
                trial=entrant.trial,
                config=entrant.config,
                score=combine([scored(spec, entrant.config, measurement) for measurement in entrant.rounds]),
                ratio=_ratio(spec, entrant, reference) if compared and reference is not None else None,
                meets_slo=all(keeps(spec, measurement) for measurement in entrant.rounds),
                rounds=tuple(entrant.rounds),
                start_s=tuple(entrant.starts),
                failures=tuple(entrant.failures),
                replicas=replicas(spec, entrant.config),
                levels=entrant.levels,
            )
        )
    return tuple(found)


def noise(spec: StudySpec, found: Sequence[Arm]) -> NoiseFloor | None:
    """Return how much the arms differ from themselves between starts, or None where too little was started."""
    groups = [[scored(spec, arm.config, measurement).value for measurement in arm.rounds] for arm in found]
    rounds = max((len(group) for group in groups), default=0)
    try:
        share = noise_floor(groups, rounds)
    except ValueError:
        return None
    return NoiseFloor(share=share, boots=sum(map(len, groups)), rounds=rounds)


def decide(spec: StudySpec, found: Sequence[Arm]) -> tuple[Verdict, Arm | None]:
    """Say what may be said, and which arm is deployed.

    Arms whose intervals overlap are tied, and a tie goes to the fewest changed settings. An arm that failed a round is
    out, and so is one that does not keep the SLO while another does. A gain below the noise floor is not claimed.
    """
    reference = next((arm for arm in found if arm.label in ("baseline", "default")), None)
    name: Reference = "none" if reference is None else "baseline" if reference.label == "baseline" else "default"
    sound = [arm for arm in found if not arm.failures]
    if not sound:
        text = "no configuration survived its verification rounds"
        return Verdict(kind="not_verified", text=text, reference=name), None
    good = [arm for arm in sound if arm.meets_slo]
    leaders = _leaders(spec, good or sound, reference)
    chosen = min(leaders, key=lambda arm: _changes(spec, arm, reference))
    if not good:
        text = f"no verified configuration keeps the SLO ({spec.slo.text}); trial {chosen.trial} comes first"
        return Verdict(kind="nothing_meets_slo", text=text, reference=name), chosen
    if reference is None:
        text = f"trial {chosen.trial} is the best that was verified; no reference held to compare it with"
        return Verdict(kind="winner", text=text, reference="none"), chosen
    if chosen is reference:
        return _reference_stays(found, leaders, reference, name), chosen
    verdict = _challenger_wins(spec, chosen, reference, name, noise(spec, [reference, chosen]))
    return verdict, chosen if verdict.kind == "winner" else reference


def _reference_stays(found: Sequence[Arm], leaders: Sequence[Arm], reference: Arm, name: Reference) -> Verdict:
    what, stays, _ = _WORDS[name]
    tied = ", ".join(f"trial {arm.trial}" for arm in leaders if arm is not reference)
    if not tied:
        text = f"nothing that was verified beats {what}"
        worse = [f"trial {arm.trial} is worse by {_by(arm.ratio)}" for arm in found if arm.ratio and _apart(arm.ratio)]
        return Verdict(kind="keep_baseline", text="; ".join([text, *worse]), reference=name)
    text = f"no clear winner: {tied} and {what} cannot be told apart, so {what} {stays}"
    return Verdict(kind="no_clear_winner", text=text, reference=name)


def _challenger_wins(
    spec: StudySpec, chosen: Arm, reference: Arm, name: Reference, floor: NoiseFloor | None
) -> Verdict:
    what, _, do = _WORDS[name]
    shown, ratio = "", chosen.ratio
    if ratio is not None:
        rounds = f"{ratio.n} rounds each"
        shown = f": {spec.objective} {ratio.value:.2f}x [{ratio.low:.2f}, {ratio.high:.2f}], {rounds}, MEASURED"
    if reference.failures:
        text = f"trial {chosen.trial} held in verification, and {what} did not"
    elif not reference.meets_slo:
        text = f"trial {chosen.trial} keeps the SLO and {what} {do} not{shown}"
    elif ratio is not None and floor is not None and abs(math.log(ratio.value)) < math.log1p(floor.share):
        text = f"no clear winner: trial {chosen.trial} is within the noise floor of {floor.share:.1%}{shown}"
        return Verdict(kind="no_clear_winner", text=text, reference=name)
    elif ratio is not None and _clearly_better(spec, ratio):
        text = f"trial {chosen.trial} beats {what}{shown}; {_by(ratio)} better"
    else:
        return Verdict(kind="no_clear_winner", text=f"no clear winner{shown}", reference=name)
    return Verdict(kind="winner", text=text, reference=name)


def _apart(ratio: Estimate) -> bool:
    return ratio.low > 1 or ratio.high < 1


def _by(ratio: Estimate) -> str:
    """Return how far a ratio's interval lies from one, e.g. `12..31 %`."""
    ends = sorted(abs(end - 1) * 100 for end in (ratio.low, ratio.high))
    return f"{ends[0]:.0f}..{ends[1]:.0f} %"


def _leaders(spec: StudySpec, arms_left: Sequence[Arm], reference: Arm | None) -> list[Arm]:
    """Return the best arm and those tied with it; when the best clearly beats the reference, only those that do too."""
    maximize = direction(spec.objective) == "maximize"
    best = max(arms_left, key=lambda arm: arm.score.value if maximize else -arm.score.value)
    leaders = [arm for arm in arms_left if arm is best or not _beats(spec, best, arm)]
    if reference in arms_left and best.ratio is not None and _clearly_better(spec, best.ratio):
        leaders = [arm for arm in leaders if arm.ratio is not None and _clearly_better(spec, arm.ratio)]
    return leaders


def _beats(spec: StudySpec, one: Arm, other: Arm) -> bool:
    """Whether one is clearly better; where a ratio cannot be taken (a goodput of zero), by intervals that are apart."""
    ratio = _ratio(spec, one, other)
    if ratio is not None:
        return _clearly_better(spec, ratio)
    if direction(spec.objective) == "maximize":
        return one.score.low > other.score.high
    return one.score.high < other.score.low


def _ratio(spec: StudySpec, one: Arm | Entrant, other: Arm | Entrant) -> Estimate | None:
    mine, theirs = ([scored(spec, side.config, m).value for m in side.rounds] for side in (one, other))
    common = min(len(mine), len(theirs))
    if common < 2 or min(*mine, *theirs) <= 0:
        return None
    return ratio_over_rounds(mine[:common], theirs[:common])


def _clearly_better(spec: StudySpec, ratio: Estimate | None) -> bool:
    if ratio is None:
        return False
    return ratio.low > 1 if direction(spec.objective) == "maximize" else ratio.high < 1


def _changes(spec: StudySpec, arm: Arm, reference: Arm | None) -> tuple[bool, int]:
    """Order arms by how much they change: the reference changes nothing."""
    before = {} if reference is None else reference.config.values
    now = arm.config.values
    pinned = {pin.flag for pin in spec.pins}
    differing = sum(before.get(flag) != now.get(flag) for flag in {*before, *now} - pinned)
    return (arm is not reference, differing)
