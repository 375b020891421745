"""A replica of continuous batching, event by event: the truth for the closed forms.

It knows nothing of queues in closed form: requests come, wait for a place, have their prompts
computed in parts that fill the steps' tokens, first come first served, and decode a token in
every step. Only the costs of a step are those of the estimator.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from planner.estimators.inference.replica_simulation import StepCosts


def step_time(costs: StepCosts, decoding: int, tokens: float) -> float:
    """Seconds of a step."""
    prompts = costs.start + costs.token * tokens if tokens else 0.0
    if tokens and not costs.mixes:
        return prompts
    return max(costs.fixed + costs.slope * decoding + prompts, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Lognormal lengths of a mean and a coefficient of variation; 0 is the same for all."""

    mean: float
    variation: float = 0.0

    def draw(self, chance: random.Random) -> int:
        """The length of one request; at least one token."""
        if self.variation == 0:
            return round(self.mean)
        spread = math.log1p(self.variation**2)
        drawn = chance.lognormvariate(math.log(self.mean) - spread / 2, math.sqrt(spread))
        return max(round(drawn), 1)


@dataclass(kw_only=True)
class Request:
    """One request and what became of it; times in seconds."""

    arrival: float
    prompt: int
    answer: int
    left: float = 0.0
    first: float = math.nan
    end: float = math.nan


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What clients saw of the requests that were counted, sorted.

    ``end``: of the last answer; ``token``: mean time per token of all tokens.
    """

    first: list[float]
    per_token: list[float]
    latency: list[float]
    rate: float
    decoding: float
    end: float
    token: float

    @staticmethod
    def mean(values: list[float]) -> float:
        """The mean of sorted values."""
        return sum(values) / len(values)

    @staticmethod
    def within(values: list[float], share: float) -> float:
        """What a share of sorted values does not exceed."""
        return values[min(int(share * len(values)), len(values) - 1)]


@dataclass(kw_only=True)
class Replica:
    """A replica with ``places`` for sequences and steps of at most ``step_tokens``.

    Clients of a closed loop ask again after ``pause`` seconds on average.
    """

    costs: StepCosts
    places: int
    step_tokens: int
    prompts: Lengths
    answers: Lengths
    pause: float = 0.0
    seed: int = 1
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def request(self, arrival: float) -> Request:
        """A request of drawn lengths."""
        prompt, answer = self.prompts.draw(self.chance), self.answers.draw(self.chance)
        return Request(arrival=arrival, prompt=prompt, answer=answer, left=prompt)

    def poisson(self, rate: float, number: int) -> Seen:
        """So many requests that come at random; the first fifth only fills the replica."""
        return self._run(self._arrivals(rate), number=number, closed=False)

    def closed(self, clients: int, number: int, together: bool = False) -> Seen:
        """Clients that ask again when they are answered.

        ``together``: all start at once; else within the time of an answer or so.
        """
        step = step_time(self.costs, min(clients, self.places), 0)
        span = 0.0 if together else self.answers.mean * step
        first = sorted(self.chance.random() * span for _ in range(clients))
        return self._run(map(self.request, first), number=number, closed=True)

    def burst(self, number: int) -> Seen:
        """So many requests at once, all of them counted."""
        return self.benchmark(number, number)

    def benchmark(self, clients: int, number: int) -> Seen:
        """Clients that start at once and send so many requests in all, all of them counted."""
        first = (self.request(0.0) for _ in range(min(clients, number)))
        return self._run(first, number=number, closed=True, warm=0.0)

    def ending(self, rate: float, number: int) -> Seen:
        """So many requests that come at random at an empty replica, and no others."""
        arrivals = islice(self._arrivals(rate), number)
        return self._run(arrivals, number=number, closed=False, warm=0.0)

    def _arrivals(self, rate: float) -> Iterator[Request]:
        now = 0.0
        while True:
            now += self.chance.expovariate(rate)
            yield self.request(now)

    def _run(
        self, arrivals: Iterator[Request], *, number: int, closed: bool, warm: float = 0.2
    ) -> Seen:
        waiting: deque[Request] = deque()
        prompts: deque[Request] = deque()
        ending: dict[int, list[Request]] = {}
        done: list[Request] = []
        waves = islice(arrivals, None if closed else 1)
        coming = [(one.arrival, order, one) for order, one in enumerate(waves)]
        now, steps, decoding, area, since, sent = 0.0, 0, 0, 0.0, 0.0, len(coming)
        while len(done) < number:
            if not (waiting or prompts or decoding) and coming:
                now = max(now, coming[0][0])
            while coming and coming[0][0] <= now:
                waiting.append(heappop(coming)[2])
                if not closed:
                    coming = [(one.arrival, 0, one) for one in islice(arrivals, 1)]
            while waiting and decoding + len(prompts) < self.places:
                prompts.append(waiting.popleft())
            tokens, finished = self._fill(prompts, self.step_tokens - decoding)
            pauses = tokens > 0 and not self.costs.mixes
            time = step_time(self.costs, decoding, tokens)
            now += time
            area += time * decoding
            ended: list[Request] = []
            if not pauses:
                steps += 1
                ended = ending.pop(steps, [])
                decoding -= len(ended)
            for request in finished:
                request.first = now
                if request.answer == 1:
                    ended.append(request)
                    continue
                decoding += 1
                ending.setdefault(steps + request.answer - 1, []).append(request)
            for request in ended:
                request.end = now
                done.append(request)
                if closed and (warm or sent < number):
                    again = now + (self.chance.expovariate(1 / self.pause) if self.pause else 0.0)
                    heappush(coming, (again, sent, self.request(again)))
                    sent += 1
            if len(done) <= warm * number:
                since, area = now, 0.0
        return _seen(done[int(warm * number) :], now - since, area)

    def _fill(self, prompts: deque[Request], room: int) -> tuple[float, list[Request]]:
        """Prompt tokens of a step, and the requests whose prompts it ends."""
        tokens, finished = 0.0, []
        while prompts and room > tokens:
            first = prompts[0]
            part = min(first.left, room - tokens)
            first.left -= part
            tokens += part
            if first.left > 0:
                break
            finished.append(prompts.popleft())
        return tokens, finished


def _seen(done: list[Request], time: float, area: float) -> Seen:
    long = [one for one in done if one.answer > 1]
    return Seen(
        first=sorted(one.first - one.arrival for one in done),
        per_token=sorted((one.end - one.first) / (one.answer - 1) for one in long),
        latency=sorted(one.end - one.arrival for one in done),
        rate=len(done) / time if time else math.nan,
        decoding=area / time if time else math.nan,
        end=max(one.end for one in done),
        token=sum(one.end - one.first for one in long) / sum(one.answer - 1 for one in long),
    )
