"""Event simulation of a replica with continuous batching: latencies of requests of a trace.

It uses no queueing formulas. Requests arrive, wait for a place, have their prompts computed in
chunks that fill the steps' tokens, first come first served, and decode a token in every step. Only
the costs of a step come from the estimator.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np

from planner.base.arrays import FloatArray, first
from planner.base.records import record
from planner.base.units import ceil_div
from planner.estimators.inference.continuous_batching import Phases

_LEAST_STEP = 1e-9


@record(kw_only=True)
class StepCosts:
    """A step over B sequences and x prompt tokens takes ``fixed + slope B + start + token x``.

    All in seconds. Without mixing, a step with prompts holds no sequences that decode.
    """

    fixed: float
    slope: float
    start: float
    token: float
    mixes: bool = True

    @classmethod
    def of(cls, phases: Phases, new_tokens: float, mixes: bool) -> StepCosts:
        """Return linear prompt costs: seconds of the first prompt in a step, and of each other."""
        first_prompt, further = phases.prefill, phases.added
        if not mixes:
            first_prompt, further = (
                phases.single,
                np.where(phases.most > 1, phases.another, phases.added),
            )
        return cls(
            fixed=first(phases.fixed),
            slope=first(phases.slope),
            start=first((first_prompt - further) / phases.parts),
            token=first(further) / new_tokens,
            mixes=mixes,
        )


@record(kw_only=True)
class Requests:
    """Requests in order of arrival: arrays of one length.

    ``arrivals`` in seconds, ``prompts`` in tokens that are not cached, ``answers`` in tokens.
    ``blocks``: names of the blocks of each prompt from its begin on, where a cache may have them.
    """

    arrivals: FloatArray
    prompts: FloatArray
    answers: FloatArray
    blocks: Sequence[Sequence[int]] = ()


class PrefixCache:
    """A cache of ``room`` blocks of ``block_tokens``, which drops what was used last longest ago.

    A prompt hits the blocks from its start to the first missing one. Of a request's blocks the last
    are dropped first. ``hit_tokens`` and ``prompt_tokens``: hit tokens and prompt tokens so far.
    """

    def __init__(self, room: int, block_tokens: int) -> None:
        self.room, self.block_tokens = room, block_tokens
        self.hit_tokens = self.prompt_tokens = 0.0
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._written = 0

    def take(self, blocks: Sequence[int], prompt: float, answer: int) -> float:
        """Return the prompt tokens with a cache hit; store the tokens of the request."""
        cached = self._blocks
        number = next((n for n, block in enumerate(blocks) if block not in cached), len(blocks))
        hits = min(number * self.block_tokens, prompt - 1.0)
        for _ in range(ceil_div(answer, self.block_tokens)):
            self._written -= 1
            cached[self._written] = None
        for block in reversed(blocks):
            cached[block] = None
            cached.move_to_end(block)
        while len(cached) > self.room:
            cached.popitem(last=False)
        self.hit_tokens += hits
        self.prompt_tokens += prompt
        return hits


@record(kw_only=True)
class ClientLatencies:
    """Latencies of each request as its client sees them [s], in order of the requests.

    ``per_token`` is NaN of answers of one token.
    """

    first: FloatArray
    per_token: FloatArray
    latency: FloatArray


def replay(
    requests: Requests,
    costs: StepCosts,
    *,
    places: int,
    step_tokens: int,
    cache: PrefixCache | None = None,
) -> ClientLatencies:
    """Simulate one replica and return the latencies of its requests.

    Parameters
    ----------
    places : sequences that the replica holds at once
    step_tokens : tokens of a step at most
    cache : where a prompt is looked up when it gets a place
    """
    arrivals, answers = requests.arrivals.tolist(), requests.answers.astype(int).tolist()
    left = requests.prompts.tolist()
    number = len(arrivals)
    first_tokens, end_times = [math.nan] * number, [math.nan] * number
    fixed, slope, start, token = costs.fixed, costs.slope, costs.start, costs.token
    mixes = costs.mixes
    waiting: deque[int] = deque()
    prompts: deque[int] = deque()
    ending: list[tuple[int, int]] = []
    now, steps, decoding, next_arrival, done = 0.0, 0, 0, 0, 0
    while done < number:
        if not (waiting or prompts or decoding):
            now = max(now, arrivals[next_arrival])
        while next_arrival < number and arrivals[next_arrival] <= now:
            waiting.append(next_arrival)
            next_arrival += 1
        while waiting and decoding + len(prompts) < places:
            prompts.append(waiting.popleft())
            if cache is not None:
                index = prompts[-1]
                left[index] -= cache.take(requests.blocks[index], left[index], answers[index])
        budget, finished = float(step_tokens - decoding), []
        tokens = 0.0
        while prompts and budget > tokens:
            request = prompts[0]
            part = min(left[request], budget - tokens)
            left[request] -= part
            tokens += part
            if left[request] > 0:
                break
            finished.append(prompts.popleft())
        if tokens:
            work = start + token * tokens
            now += max(fixed + slope * decoding + work, _LEAST_STEP) if mixes else work
            passed = int(mixes)
        else:
            # Nothing changes until an answer ends or a request comes.
            step = max(fixed + slope * decoding, _LEAST_STEP)
            passed = ending[0][0] - steps if ending else 1
            if next_arrival < number and passed > 1:
                passed = min(passed, max(math.ceil((arrivals[next_arrival] - now) / step), 1))
            now += passed * step
        steps += passed
        while passed and ending and ending[0][0] <= steps:
            request = heappop(ending)[1]
            end_times[request] = now
            decoding -= 1
            done += 1
        for request in finished:
            first_tokens[request] = now
            if answers[request] <= 1:
                end_times[request] = now
                done += 1
                continue
            decoding += 1
            heappush(ending, (steps + answers[request] - 1, request))
    arrival_times = requests.arrivals
    with np.errstate(invalid="ignore", divide="ignore"):
        further = np.where(requests.answers > 1, requests.answers - 1, np.nan)
    firsts, ended = np.asarray(first_tokens), np.asarray(end_times)
    return ClientLatencies(
        first=firsts - arrival_times,
        per_token=(ended - firsts) / further,
        latency=ended - arrival_times,
    )
