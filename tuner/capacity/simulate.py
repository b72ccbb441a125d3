"""A discrete-event model of continuous batching as the engine schedules it. Every number is PREDICTED.

In each step every running sequence decodes first, prompts fill what is left of the token budget in order of arrival
(cut into chunks), at most `max_sequences` run at once, and blocks of the KV cache come from one pool: when it is empty
the sequence that started last is stopped, loses its cache and goes to the head of the queue (recompute). Idle blocks
keep their content until the pool has gone round once, so a prompt that shares its beginning skips that part
(vllm/v1/core/sched/scheduler.py, block_pool.py). Steps in which nothing but decoding happens are taken together.

Left out: the share of a block that the last tokens of a sequence do not fill is taken as half a block; blocks of a
whole prompt are claimed with its first chunk; images, adapters and structured output cost nothing.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from tuner.capacity.blocks import Kept, Pool
from tuner.capacity.host_step import HostStep
from tuner.capacity.jobs import Bound, Engine, Job, Simulated
from tuner.capacity.latency import StepTime

_BIG = 1 << 60


class Simulation:
    """One run. The state of requests lies in plain lists, because a step touches few of them."""

    def __init__(
        self, jobs: Sequence[Job], engine: Engine, step: StepTime | HostStep, pace: float = 1.0, *,
        stop_s: float = math.inf, bound: Bound | None = None,
    ) -> None:
        """Prepare a run of `jobs` on one server; they come `pace` times as fast as they say, until `stop_s`.

        With a `bound` it ends as soon as no more is needed to say that it is broken.
        """
        self.pace, self.stop_s, self.came = pace, stop_s, 0
        self.bound = bound
        self.jobs, self.engine, self.step = jobs, engine, step
        count = len(jobs)
        self.arrival, self.first, self.end = [np.nan] * count, [np.nan] * count, [np.nan] * count
        self.left = [job.prompt for job in jobs]  # tokens of prompt still to compute
        self.done = [0] * count  # tokens that were answered
        self.held: list[list[str]] = [[] for _ in jobs]
        self.own = [0.0] * count  # tokens of cache in blocks of its own, when it last was counted
        self.began = [0] * count  # value of the step counter when its decoding began
        self.version = [0] * count
        self.pool = Pool(engine.blocks, engine.block_tokens)
        self.coming: list[tuple[float, int]] = []
        self.waiting: deque[int] = deque()
        self.prefill: list[int] = []
        self.ending: list[tuple[int, int, int]] = []
        self.order: list[tuple[int, int]] = []  # started last is stopped first
        self.decoding, self.context, self.count = 0, 0.0, 0
        self.now, self.busy, self.area = 0.0, 0.0, 0.0
        self.steps = self.preemptions = self.hits = self.asked = self.refused = 0
        self.peak = 0.0
        self.gaps: list[float] = []
        self.times: list[float] = []
        self.weights: list[float] = []
        self.repeats: list[int] = []
        self.spans = [(0, 0)] * count
        followers = {job.then for job in jobs if job.then is not None}
        self.backlog = deque(
            number for number, job in enumerate(jobs) if job.at_s is None and number not in followers
        )

    def run(self) -> Simulated:
        """Simulate until every request is answered."""
        for number, job in enumerate(self.jobs):
            if job.at_s is not None:
                heapq.heappush(self.coming, (job.at_s / self.pace, number))
        while self.now < self.stop_s:
            if self.coming and self.coming[0][0] <= self.now:
                self._arrive()
            if self.waiting:
                self._admit()
            if self.prefill:
                self._mixed_step()
            elif self.decoding:
                self._decode_steps()
            elif self.coming:
                self.now = max(self.now, self.coming[0][0])
            else:
                break
        return self._result()

    def _arrive(self) -> None:
        while self.coming and self.coming[0][0] <= self.now:
            at, number = heapq.heappop(self.coming)
            self.arrival[number] = at
            self.waiting.append(number)
            self.came += 1

    def _admit(self) -> None:
        engine, pool = self.engine, self.pool
        room = engine.token_budget - self.decoding * engine.queries - sum(self.left[one] for one in self.prefill)
        while self.waiting and room > 0 and self.decoding + len(self.prefill) < engine.max_sequences:
            number = self.waiting[0]
            job = self.jobs[number]
            known = job.prompt + self.done[number]
            found, names = pool.find(job.shared) if engine.prefix_caching and job.shared else (0, [])
            found = min(found, known - 1)
            needed = (known - found) / pool.block + 1
            if needed > pool.free:
                if self.decoding or self.prefill:
                    return
                self._refuse()
                continue
            if not engine.chunked and self.prefill and known - found > room:
                return
            self.waiting.popleft()
            for name in names:
                pool.hold(name)
            self.held[number] = list(names)
            used = job.shared[: len(names)]
            self.own[number] = known - sum(min(tokens, pool.kept[name].tokens) for name, tokens in used)
            self.left[number] = known - found
            self._claim(self.own[number] / pool.block + 0.5)
            self.hits += found
            self.asked += known
            self.prefill.append(number)
            self.version[number] += 1
            self.order.append((number, self.version[number]))
            room -= self.left[number]

    def _refuse(self) -> None:
        number = self.waiting.popleft()
        self.refused += 1
        self.first[number] = self.end[number] = np.nan
        self._follow(number)

    def _claim(self, blocks: float) -> None:
        pool = self.pool
        pool.free -= blocks
        pool.claimed += blocks
        self.peak = max(self.peak, pool.total - pool.free)

    def _mixed_step(self) -> None:
        engine = self.engine
        if not self._make_room(1):
            return
        room = max(1.0, engine.token_budget - self.decoding * engine.queries)
        chunk_sum, looked, finished = 0.0, 0.0, []
        for number in self.prefill:
            left = self.left[number]
            take = left if left <= room or not engine.chunked else int(room)
            if take <= 0:
                break
            before = self.jobs[number].prompt + self.done[number] - left
            looked += take * (before + take / 2)
            chunk_sum += take
            self.left[number] = left - take
            room -= take
            if self.left[number] <= 0:
                finished.append(number)
            if room <= 0:
                break
        seconds = self.step.seconds(self.decoding, self.context, chunk_sum, looked, engine.queries)
        self._advance(1, seconds)
        if finished:
            self.prefill = self.prefill[len(finished):]  # prompts are computed in order, so the first ones are done
            for number in finished:
                self._begin(number)
        if self.ending and self.ending[0][0] <= self.count:
            self._finish()

    def _begin(self, number: int) -> None:
        """Give the first token (or the next one after a stop), and decode from here on."""
        job, speed = self.jobs[number], self.engine.tokens_per_step
        if math.isnan(self.first[number]):
            self.first[number] = self.now
            if self.bound is not None:
                self._watch(number)
        self.done[number] += 1
        if job.shared and self.engine.prefix_caching:
            self._name(number, job)
        self.began[number] = self.count
        self.spans[number] = (len(self.gaps), 0)
        self.decoding += 1
        self.context += job.prompt + self.done[number]
        steps = -(-(job.output - self.done[number]) // speed) if job.output > self.done[number] else 0
        heapq.heappush(self.ending, (self.count + int(steps), number, self.version[number]))

    def _watch(self, number: int) -> None:
        """Count a first token that came too late, and end the run when there are more than may be."""
        bound = self.bound
        if bound is None or number < bound.settled:
            return
        if self.now - self.arrival[number] + self.step.request_s > bound.ttft_s:
            bound.late += 1
            if bound.late > bound.may_be_late:
                self.stop_s = self.now

    def _name(self, number: int, job: Job) -> None:
        """Keep the computed beginning under its names; from now on its blocks count apart from the request's own."""
        kept, held = self.pool.kept, self.held[number]
        for name, tokens in job.shared:
            entry = kept.get(name)
            if entry is None:
                kept[name] = Kept(tokens)
                held.append(name)
                self.own[number] -= tokens
            elif name in held and tokens > entry.tokens:
                self.own[number] -= tokens - entry.tokens
                entry.tokens = tokens

    def _decode_steps(self) -> None:
        """Take the steps together until a sequence ends, a request comes or the cache is full."""
        self._drop_stale()
        if not self.decoding:
            return
        engine, speed = self.engine, self.engine.tokens_per_step
        growth = self.decoding * speed / self.pool.block
        until = max(1, self.ending[0][0] - self.count)
        until = min(until, int(self.pool.free / growth) if growth > 0 else _BIG)
        if until < 1:
            if self._make_room(1):
                until = 1
            else:
                return
        one = self.step.seconds(self.decoding, self.context, queries=engine.queries)
        if self.coming and until > 1:
            gap = self.coming[0][0] - self.now
            until = max(1, min(until, int(gap / one) + 1))
        if until > 1:
            middle = self.context + self.decoding * speed * (until - 1) / 2
            one = self.step.seconds(self.decoding, middle, queries=engine.queries)
        self._advance(until, one)
        self._finish()

    def _advance(self, steps: int, seconds: float) -> None:
        """Let time pass: all decoding sequences give their tokens."""
        seconds *= 1 + self.engine.draft_share
        if self.came:
            seconds += self.came * self.step.arrival_s / steps
            self.came = 0
        total, speed = steps * seconds, self.engine.tokens_per_step
        self.now += total
        self.busy += total
        self.steps += steps
        self.area += (self.decoding + len(self.prefill)) * total
        if self.decoding:
            self.count += steps
            self.context += self.decoding * speed * steps
            self._claim(self.decoding * speed * steps / self.pool.block)
            self.gaps.append(seconds)
            self.times.append(self.now)
            self.weights.append(self.decoding * steps)
            self.repeats.append(steps)

    def _finish(self) -> None:
        while self.ending and self.ending[0][0] <= self.count:
            _, number, version = heapq.heappop(self.ending)
            if version != self.version[number]:
                continue
            job = self.jobs[number]
            self.end[number] = self.now
            self.spans[number] = (self.spans[number][0], len(self.gaps))
            self._release(number)
            self.done[number] = job.output
            self._follow(number)

    def _follow(self, number: int) -> None:
        following = self.jobs[number].then
        if following is None and self.backlog:
            following = self.backlog.popleft()
        if following is not None:
            heapq.heappush(self.coming, (self.now + self.step.turn_s + self.jobs[following].wait_s, following))

    def _release(self, number: int) -> int:
        """Give the blocks of a decoding sequence back; return the tokens that it decoded since it began."""
        grown = int((self.count - self.began[number]) * self.engine.tokens_per_step)
        job = self.jobs[number]
        self.decoding -= 1
        self.context -= job.prompt + self.done[number] + grown
        if self.decoding == 0:
            self.context = 0.0
        self.pool.free += (self.own[number] + grown) / self.pool.block + 0.5
        for name in self.held[number]:
            self.pool.drop(name)
        self.held[number] = []
        self.version[number] += 1
        return grown

    def _drop_stale(self) -> None:
        while self.ending and self.ending[0][2] != self.version[self.ending[0][1]]:
            heapq.heappop(self.ending)

    def _make_room(self, steps: int) -> bool:
        """Stop the sequences that started last until the next steps fit; False when nothing decodes any more."""
        speed = self.engine.tokens_per_step
        while self.decoding and self.pool.free < self.decoding * speed * steps / self.pool.block:
            if self.decoding == 1 and not self.prefill:
                self.pool.free = self.pool.total  # alone it takes what there is: the engine would refuse the length
                return True
            self._preempt()
        return bool(self.decoding or self.prefill)

    def _preempt(self) -> None:
        while self.order:
            number, version = self.order.pop()
            if version != self.version[number]:
                continue
            if number in self.prefill:
                self.prefill.remove(number)
                self.pool.free += self.own[number] / self.pool.block + 0.5
                for name in self.held[number]:
                    self.pool.drop(name)
                self.held[number] = []
                self.version[number] += 1
            else:
                self.done[number] += self._release(number)
            self.preemptions += 1
            self.waiting.appendleft(number)
            return
        raise AssertionError("a decoding sequence is always in the order of starts")

    def _result(self) -> Simulated:
        chosen = np.array([job.measured for job in self.jobs], dtype=bool)
        first, end = np.array(self.first), np.array(self.end)
        chosen &= ~np.isnan(end)
        extra = self.step.request_s
        return Simulated(
            arrival=np.array(self.arrival)[chosen],
            first=first[chosen] + extra,
            end=end[chosen] + extra,
            output=np.array([job.output for job in self.jobs], dtype=np.int64)[chosen],
            gaps=np.array(self.gaps),
            weights=np.array(self.weights, dtype=float),
            steps=self.steps,
            preemptions=self.preemptions,
            hit_tokens=self.hits,
            prompt_tokens=self.asked,
            peak_blocks=self.peak,
            busy_s=self.busy,
            running=self.area / self.busy if self.busy else 0.0,
            refused=self.refused,
            spans=np.array(self.spans, dtype=np.int64).reshape(-1, 2)[chosen],
            repeats=np.array(self.repeats, dtype=np.int64),
            times=np.array(self.times),
            firsts=first[~np.isnan(first)],
            now_s=self.now,
            cut_s=self._first_cut(),
        )

    def _first_cut(self) -> float:
        """Return when the first measured request came that the end of the run cut off; infinite without any."""
        if self.now < self.stop_s:
            return math.inf
        open_now = [at for at, end, job in zip(self.arrival, self.end, self.jobs, strict=True)
                    if job.measured and not math.isnan(at) and math.isnan(end)]
        return min(open_now, default=math.inf)


def simulate(
    jobs: Sequence[Job], engine: Engine, step: StepTime | HostStep, pace: float = 1.0, *,
    stop_s: float = math.inf, bound: Bound | None = None,
) -> Simulated:
    """Run all jobs on one server of these settings, `pace` times as fast as they say, until `stop_s`. PREDICTED.

    With a `bound` it also ends when that is broken (`bound.broken` then says so), and the numbers mean nothing.
    """
    return Simulation(jobs, engine, step, pace, stop_s=stop_s, bound=bound).run()
