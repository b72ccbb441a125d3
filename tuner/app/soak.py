"""The winner once more, for longer: what drifts, grows or breaks only shows after a while."""

from __future__ import annotations

import numpy as np

from tuner.app.events import LoadProgress, Note, PhaseEntered
from tuner.app.requests import requests_of
from tuner.app.scoring import replicas, shared_workload
from tuner.app.scrape import scrape
from tuner.app.trial import Bench
from tuner.app.watch import Watch
from tuner.domain.engine import LaunchSpec, ServerMetrics, StartupFacts
from tuner.domain.load_record import LoadRun, RequestRecord
from tuner.domain.plan import Arm, Soak
from tuner.domain.workload import ClosedLoop, Fixed, OpenLoop, Workload
from tuner.load.driver import Progress
from tuner.load.run import run_load
from tuner.output.evidence import TrialFolder
from tuner.output.files import output_error
from tuner.runtime.base import Server
from tuner.runtime.ready import NotReady, wait_ready

PERIODS = 3
WORSE_SHARE = 0.1
"""A last third that is worse than the first by more than this is a problem, and so is memory that grew by as much."""
_OVER = "the soak is over"
_BATCH_S = 20.0


def soak(bench: Bench, winner: Arm) -> Soak:
    """Start the winner, load it for the budget's `soak_s`, fill its context once, and say what went wrong.

    The load comes in batches of about twenty seconds, one after the other; each has prompts of its own.

    Raises:
        OutputError: the evidence cannot be written.
        EngineError: the program cannot be started at all.

    """
    spec = bench.engine.launch(bench.spec.model, winner.config, bench.spec.engine)
    path = bench.study_folder / "soak"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output_error(path, error) from error
    bench.tell(Note(f"soak: trial {winner.trial} under load for {bench.spec.budget.soak_s:.0f} s"))
    with bench.launcher.start(spec, path) as server:
        bench.tell(PhaseEntered("starting"))
        usual = bench.engine.start_timeout_s(bench.spec.model, winner.config)
        patience = bench.spec.budget.start_timeout_s or usual
        ready = wait_ready(
            server,
            spec,
            timeout_s=patience,
            fatal=bench.engine.fatal,
            phase=bench.engine.phase,
        )
        if isinstance(ready, NotReady):
            why = bench.engine.classify(server.log_text(), ready.exit_code).reason
            return Soak(seconds=0.0, requests=0, failed=0, throughput_change=0.0, problems=(f"did not start: {why}",))
        found = _Soaked(bench, winner, spec, server)
        found.run()
        TrialFolder(path).write_requests([record for run in found.runs for record in run.records])
        return found.sum_up()


class _Soaked:
    """One soak on one server."""

    def __init__(self, bench: Bench, winner: Arm, spec: LaunchSpec, server: Server) -> None:
        self._bench = bench
        self._winner = winner
        self._spec = spec
        self._server = server
        self._facts = StartupFacts()
        self._memory: list[int] = []
        self._before = self._after = ServerMetrics()
        self._fill_tokens: int | None = None
        self._fill = ""
        self._throttled = 0.0
        self.runs: list[LoadRun] = []

    def run(self) -> None:
        """Load the server until the time is over or it is gone, then fill its context."""
        bench, until = self._bench, self._bench.spec.budget.soak_s
        bench.tell(PhaseEntered("soaking"))
        text = scrape(self._server.url, path=self._spec.metrics_path)
        self._facts = bench.engine.startup_facts(self._server.log_text(), text)
        self._before = bench.engine.server_metrics(text)
        share = shared_workload(bench.spec.workload, replicas(bench.spec, self._winner.config))
        workload = share.model_copy(update={"requests": _batch(share, self._winner)})
        with Watch(self._server.url, bench.engine, local=True, period_s=5.0) as watch:
            while (left := until - sum(run.duration_s for run in self.runs)) > 0 and self._server.exit_code() is None:
                self._remember()
                self.runs.append(self._load(workload, f"soak-{len(self.runs)}", left))
            self._remember()
        readings = [gpu for reading in watch.readings for gpu in reading.gpus]
        self._throttled = sum(bool(gpu.held_back) for gpu in readings) / max(1, len(readings))
        if self._server.exit_code() is None:
            self._after = bench.engine.server_metrics(scrape(self._server.url, path=self._spec.metrics_path))
            self._fill_context()

    def _remember(self) -> None:
        size = self._server.memory_bytes()
        if size is not None:
            self._memory.append(size)

    def _load(self, workload: Workload, salt: str, left_s: float) -> LoadRun:
        """Send the workload, for no longer than so many seconds from its first request."""
        study, elapsed = self._bench.spec, [0.0]
        requests = requests_of(workload, vocab_size=study.model.vocab_size, seed=study.seed, salt=salt)

        def stop() -> str | None:
            code = self._server.exit_code()
            if code is not None:
                return f"the server ended with exit code {code}"
            return _OVER if elapsed[0] > left_s else None

        def see(progress: Progress) -> None:
            elapsed[0] = progress.elapsed_s
            self._bench.tell(LoadProgress(progress.done, progress.total, progress.output_tokens, progress.elapsed_s))

        return run_load(
            self._server.url, self._spec.served_name, requests, workload, seed=study.seed, stop=stop,
            on_progress=see,
        )

    def _fill_context(self) -> None:
        """Send one request as long as the server promises: it has to be answered."""
        footprint = self._bench.engine.footprint(self._bench.spec.model, self._winner.config)
        longest = footprint.max_context or self._bench.spec.model.max_context
        if longest is None or self._bench.spec.workload.prompts_file:
            return
        output = min(16, max(1, longest // 8))
        workload = Workload(
            name="fill", input_tokens=Fixed(tokens=longest - output), output_tokens=Fixed(tokens=output),
            arrivals=ClosedLoop(concurrency=1), requests=1, warmup_requests=0,
        )
        self._bench.tell(PhaseEntered("filling the context"))
        run = self._load(workload, "fill", workload.timeout_s)
        last = run.records[-1] if run.records else None
        self._fill_tokens = longest
        if last is None or not last.ok:
            self._fill = run.stopped or (last.detail or last.error if last else None) or "no answer"

    def sum_up(self) -> Soak:
        """Compare the last third with the first."""
        records = [r for run in self.runs for r in run.records if not r.warmup and (r.ok or r.failed)]
        failed = sum(record.failed for record in records)
        rate, ttft = _change_of_rate(self.runs), _change_of_ttft(records)
        grown = self._memory[-1] - self._memory[min(1, len(self._memory) - 1)] if self._memory else None
        preempted = None
        if self._before.preemptions is not None and self._after.preemptions is not None:
            preempted = self._after.preemptions - self._before.preemptions
        problems = []
        if self._server.exit_code() is not None:
            problems.append(f"the server ended with exit code {self._server.exit_code()}")
        if failed > 0.01 * max(1, len(records)):
            problems.append(f"{failed} of {len(records)} requests failed")
        if rate < -WORSE_SHARE:
            problems.append(f"the throughput fell by {-rate:.0%} from the first third to the last")
        if ttft is not None and ttft > 2 * WORSE_SHARE:
            problems.append(f"p95 TTFT rose by {ttft:.0%} from the first third to the last")
        if grown is not None and self._memory[0] and grown > WORSE_SHARE * self._memory[0]:
            problems.append(f"host memory grew by {grown / 2**20:.0f} MiB")
        if self._throttled > WORSE_SHARE:
            problems.append(f"clocks were held back in {self._throttled:.0%} of the readings")
        if self._fill:
            problems.append(f"a request of {self._fill_tokens} tokens failed: {self._fill}")
        return Soak(
            seconds=sum(run.duration_s for run in self.runs), requests=len(records), failed=failed,
            throughput_change=rate, p95_ttft_change=ttft, memory_growth_bytes=grown, preemptions=preempted,
            fill_tokens=self._fill_tokens, fill=self._fill, problems=tuple(problems),
        )


def _batch(workload: Workload, winner: Arm) -> int:
    """Requests for about twenty seconds, at the rate that the winner had in its verification."""
    if isinstance(workload.arrivals, OpenLoop):
        return max(workload.requests, round(workload.arrivals.rate_per_s * _BATCH_S))
    rate = float(np.mean([measurement.requests_per_s.value for measurement in winner.rounds]))
    return max(workload.requests, round(rate * _BATCH_S))


def _change_of_rate(runs: list[LoadRun]) -> float:
    """Return the change of the output rate from the first to the last third of the time, as a share."""
    ends = [(r.end_ns, r.output_tokens) for run in runs for r in run.records if r.ok]
    if len(ends) < PERIODS * 2:
        return 0.0
    times = np.array([end for end, _ in ends], dtype=float)
    tokens = np.array([count for _, count in ends], dtype=float)
    counts, _ = np.histogram(times, bins=PERIODS, weights=tokens)
    return float(counts[-1] / counts[0] - 1) if counts[0] > 0 else 0.0


def _change_of_ttft(records: list[RequestRecord]) -> float | None:
    """Return the change of p95 TTFT from the first to the last third of the requests, as a share."""
    waits = [(r.first_ns - r.start_ns) / 1e6 for r in sorted(records, key=lambda r: r.start_ns) if r.ok and r.first_ns]
    third = len(waits) // PERIODS
    if third < 20:
        return None
    before, after = float(np.percentile(waits[:third], 95)), float(np.percentile(waits[-third:], 95))
    return after / before - 1
