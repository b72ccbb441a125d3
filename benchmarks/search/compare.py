"""Compare searchers in worlds whose truth is known: how far from the true best after so many GPU-minutes.

    .venv/bin/python -m benchmarks.search.compare [--seeds 20] [--worlds NAME ...] [--contenders NAME ...]

Writes `benchmarks/results/search.json` and `search.txt`; what is already there of other worlds and contenders stays, so
that Optuna's GP, which needs torch and scipy, can be run later by a Python that has them. Every start and every load
is paid for. The horizon of a world is what 32 whole trials take on average; random search goes on beyond it until it
has reached the goal, so that the ratio to it is known. A search whose pick is the true best has nothing to gain: it
counts as ended there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from benchmarks.search import replay, synthetic
from benchmarks.search.contenders import CONTENDERS, Contender
from benchmarks.search.tables import LONGER, table
from benchmarks.search.world import World
from tuner.search.observed import Observed

RESULTS = Path(__file__).parents[1] / "results"
GOAL, DONE = 0.05, 0.001
TRIALS = 32
CHECKPOINTS = (0.1, 0.2, 0.4, 0.7, 1.0)


def main() -> None:
    """Run what was asked for, merge it with what is there, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--worlds", nargs="*", help="names, all by default")
    parser.add_argument("--contenders", nargs="*", choices=list(CONTENDERS), help="names, all by default")
    parser.add_argument("--grid", type=Path, default=replay.GRID, help="the measured grid")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = asked.results / "search.json"
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for world in [*replay.worlds(asked.grid), *synthetic.worlds()]:
        if asked.worlds and world.name not in asked.worlds:
            continue
        here = results.setdefault(world.name, {"about": world.about, "contenders": {}})
        here["horizon_min"] = round(horizon(world), 2)
        for name in asked.contenders or CONTENDERS:
            if name == "gp" and not (importlib.util.find_spec("torch") and importlib.util.find_spec("scipy")):
                print(f"{world.name}: gp skipped, it needs torch and scipy", flush=True)
                continue
            began = time.process_time()
            here["contenders"][name] = race(world, name, asked.seeds, here["horizon_min"])
            print(f"{world.name}: {name}: {time.process_time() - began:.0f} s", flush=True)
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = table(results)
    (asked.results / "search.txt").write_text(text, encoding="utf-8")
    print(text)


def horizon(world: World) -> float:
    """Return the minutes that 32 whole trials of random launchable points take."""
    rng = np.random.default_rng(1)
    seconds: list[float] = []
    values = [dimension.values for dimension in world.space.dimensions]
    flags = [dimension.flag for dimension in world.space.dimensions]
    while len(seconds) < 400:
        point = {flag: choices[int(rng.integers(len(choices)))] for flag, choices in zip(flags, values, strict=True)}
        if not world.ruled_out(point):
            truth = world.truth(point)
            seconds.append(truth.start_s + truth.load_s)
    return TRIALS * float(np.mean(seconds)) / 60


def race(world: World, name: str, seeds: int, minutes: float) -> dict[str, Any]:
    """Return for every seed the regret at the checkpoints and the minutes to the goal (none: not reached)."""
    regrets, reached, trials = [], [], []
    for seed in range(seeds):
        line, count = play(world, CONTENDERS[name], seed, minutes * (LONGER if name == "random" else 1), minutes)
        regrets.append([round(_at(line, share * minutes), 5) for share in CHECKPOINTS])
        goal = next((minute for minute, regret in line if regret <= GOAL), None)
        reached.append(None if goal is None else round(goal, 3))
        trials.append(count)
    return {"regret": regrets, "minutes_to_goal": reached, "trials": trials}


def play(
    world: World, contender: Contender, seed: int, most: float, least: float
) -> tuple[list[tuple[float, float]], int]:
    """Let one contender search, and return (minutes, regret of its pick) after each run, and how many runs there were.

    Past `least` minutes it ends as soon as the goal is reached, past `most` in any case.
    """
    rng = np.random.default_rng([seed, 77])
    search = contender(world, seed)
    line: list[tuple[float, float]] = []
    seconds, picked, regret, count = 0.0, None, 1.0, 0
    reply: Observed | None = None
    while seconds < 60 * most and not (seconds > 60 * least and any(past <= GOAL for _, past in line)):
        try:
            step = next(search) if reply is None else search.send(reply)
        except StopIteration:
            break
        count += 1
        runs = [world.run(step.point, rng, step.target) for _ in range(max(1, step.loads))]
        reply = runs[0]
        seconds += (reply.start_s or 0.0) + (sum(run.load_s or 0.0 for run in runs) if step.loads else 0.0)
        if step.loads > 1 and reply.state == "measured":
            reply = _averaged(runs)
        good = reply.state == "measured" and reply.score is not None and (reply.violation or 0.0) <= 0
        if good and step.loads and seconds <= 60 * most:
            score = (reply.score or 0.0) * (1 if world.direction == "maximize" else -1)
            if picked is None or score > picked:
                picked, regret = score, world.regret(step.point)
        line.append((seconds / 60, regret))
        if regret <= DONE:
            break
    return line, count


def _averaged(runs: Sequence[Observed]) -> Observed:
    score = float(np.mean([run.score for run in runs if run.score is not None]))
    worst = [run.violation for run in runs if run.violation is not None]
    return Observed(point=runs[0].point, state="measured", score=score, start_s=runs[0].start_s,
                    violation=float(np.median(worst)) if worst else None)


def _at(line: Sequence[tuple[float, float]], minutes: float) -> float:
    past = [regret for minute, regret in line if minute <= minutes and not math.isnan(regret)]
    return past[-1] if past else 1.0


if __name__ == "__main__":
    main()
