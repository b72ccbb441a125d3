"""Time that llmtune itself adds to each trial of a study: everything but the engine's start and stop, warm-up and load.

    python benchmarks/own_time.py outputs/tiny-llama/<study>

Prints each launched trial's phases and the median and largest sum of llmtune's own. The goal is below one second.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from tuner.domain.trial import Trial


def main() -> int:
    """Print a line for each trial of the study and a summary."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    study = Path(sys.argv[1])
    own: list[float] = []
    for path in sorted([*study.glob("trials/*/outcome.json"), *study.glob("verify/*/outcome.json")]):
        trial = Trial.model_validate(json.loads(path.read_text(encoding="utf-8")))
        if not trial.phases:
            continue
        own.append(trial.own_seconds)
        parts = ", ".join(f"{phase.name} {phase.seconds:.2f}{'*' if phase.own else ''}" for phase in trial.phases)
        whole = sum(phase.seconds for phase in trial.phases)
        print(f"{path.parent.name}: own {trial.own_seconds:.3f} s of {whole:.1f} s ({parts})")
    if not own:
        print("no launched trial in this study")
        return 1
    print(f"llmtune's own time (*): median {statistics.median(own):.3f} s, largest {max(own):.3f} s, {len(own)} trials")
    return 0


if __name__ == "__main__":
    sys.exit(main())
