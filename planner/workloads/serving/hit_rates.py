"""Prefix-cache hit rates of requests, from a trace or from sessions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.units import ceil_div
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.formulas.prefix_cache import (
    cache_filled,
    earlier_uses,
    random_routing_hit_probability,
    share_of_gaps_within,
    stack_distances,
)
from planner.logs.traces import Trace
from planner.question.request import Request
from planner.specs.serving_workload import CACHES, HitRateCurve, ServingWorkload
from planner.workloads.serving.traffic import file_state, trace_of

ROUND_ROBIN, RANDOM, CACHE_AWARE = "round_robin", "random", "cache_aware"
ROUTERS = (ROUND_ROBIN, RANDOM, CACHE_AWARE)
"""Routers: in turn, at random, or to the replica with the longest cached prefix."""
_POINTS = 33
_MOST_USES = 1 << 22
_GAPS = np.geomspace(0.01, 1e7, 16 * (_POINTS - 1) + 1)
_SCRAMBLED = 0x9E3779B97F4A7C15


def trace_hit_rates(path: Path, router: str, part: str | None = None) -> HitRateCurve | None:
    """The prefix-cache hit curve of a trace file (see `measured_hit_rates`), cached by file."""
    return _of_file(router, part, *file_state(path))


@cache
def _of_file(
    router: str, part: str | None, path: Path, changed: int, size: int
) -> HitRateCurve | None:
    return measured_hit_rates(trace_of(path, part), router)


def measured_hit_rates(trace: Trace, router: str = ROUND_ROBIN) -> HitRateCurve | None:
    """The prefix-cache hit curve of a trace; None: the trace has no reused blocks.

    Computed from stack distances: an LRU cache hits all uses with a distance below its size. Of
    more than four million uses only sampled blocks are counted, chosen by their names [1]_.

    References
    ----------
    .. [1] C. Waldspurger et al., "Efficient MRC construction with SHARDS," 2015, FAST.
    """
    if not trace.blocks.size:
        return None
    blocks, size = trace.blocks, trace.block_tokens
    weights = np.full(blocks.size, float(size))
    # The last block of each prompt, which stands first, may be a part of one.
    firsts = np.cumsum(trace.block_counts) - trace.block_counts
    has_blocks = trace.block_counts > 0
    rest = trace.input_tokens - (trace.block_counts - 1) * size
    weights[firsts[has_blocks]] = np.clip(rest[has_blocks], 0.0, size)
    stride = max(ceil_div(blocks.size, _MOST_USES), 1)
    if stride > 1:
        chosen = blocks.astype(np.uint64) * np.uint64(_SCRAMBLED) >> np.uint64(32)
        is_sampled = chosen % np.uint64(stride) == 0
        blocks, weights = blocks[is_sampled], weights[is_sampled]
    before, uses = earlier_uses(blocks)
    is_reuse = before >= 0
    prompt = float(trace.input_tokens.mean())
    if not is_reuse.any():
        return None
    distances = stack_distances(before)[is_reuse] * float(size * stride)
    order = np.argsort(distances)
    weights = weights[is_reuse][order] * stride / float(trace.input_tokens.sum())
    sizes = np.geomspace(distances.min() / 2, distances.max(), _POINTS)
    positions = np.searchsorted(distances[order], sizes, side="right")

    def hit_rates(shares: FloatArray) -> FloatArray:
        """The hit rate of caches of the sizes, from the shares of all uses."""
        within = np.concatenate([[0.0], np.cumsum(shares)])[positions]
        return np.asarray(np.minimum(within, 1 - 1 / prompt))

    hits, uses = hit_rates(weights), uses[is_reuse][order]
    # How many requests fill it: each leaves what it does not find.
    left = prompt * (1 - hits)
    steps = np.diff(sizes) * (1 / left[1:] + 1 / left[:-1]) / 2
    times = np.cumsum(np.concatenate([[sizes[0] / left[0]], steps]))
    answer = float(trace.output_tokens.mean())
    return HitRateCurve(
        times=tuple(times.tolist()),
        hits=tuple(hits.tolist()),
        filled=tuple((sizes + answer * times).tolist()),
        prompt=prompt,
        written=prompt + answer,
        per_second=False,
        scatter=_scattered_hit_rates(
            router, lambda caches: hit_rates(weights * random_routing_hit_probability(uses, caches))
        ),
    )


def session_hit_rates(request: Request, work: ServingWorkload) -> HitRateCurve | None:
    """The prefix-cache hit curve of multi-turn sessions; None: one request per session.

    A prompt contains all earlier prompts and answers of its session, and new tokens so that the
    mean prompt has ``input_tokens``.

    Raises SearchSpaceError if the prompts are too short for so many requests.
    """
    turns, calls = request.turns or 1, request.tool_calls * (request.turns or 1)
    number = turns + calls
    if number <= 1:
        return None
    for name, time, is_needed in (
        ("think", request.think_time, turns > 1),
        ("tool", request.tool_time, calls),
    ):
        if is_needed and time is None:
            raise SearchSpaceError(f"Give its mean time with --{name}-time.")
    prompt, answer, shared = work.input_tokens, work.output_tokens, work.shared_prefix_tokens
    new = (prompt - shared - (number - 1) / 2 * answer) / ((number + 1) / 2)
    if new < 1:
        minimum = int(shared + (number - 1) / 2 * answer + (number + 1) / 2) + 1
        raise SearchSpaceError(
            f"--input-tokens {prompt:,} is the mean prompt of a session, with all that stands "
            f"before: of {number:,} requests with answers of {answer:,} tokens it is at least "
            f"{minimum:,}. Give longer prompts, or fewer turns."
        )
    thinking = share_of_gaps_within(
        _GAPS, mean=request.think_time or 0.0, variation=request.think_variation
    )
    waiting = share_of_gaps_within(
        _GAPS, mean=request.tool_time or 0.0, variation=request.tool_variation
    )
    share = ((turns - 1) * thinking + calls * waiting) / (number - 1)
    hits = (shared + (prompt - shared - new) * share) / prompt
    filled = cache_filled(_GAPS, hits, prompt, prompt + answer)
    every_fourth = slice(None, None, 4)
    # What was new k requests ago has been used k times, and is in number - k prompts.
    uses = np.arange(1, number)
    shares = (number - uses) / (number * (number - 1) / 2)
    session_hits = hits - shared / prompt
    return HitRateCurve(
        times=tuple(_GAPS[every_fourth].tolist()),
        hits=tuple(hits[every_fourth].tolist()),
        filled=tuple(filled[every_fourth].tolist()),
        prompt=float(prompt),
        written=float(prompt + answer),
        per_second=True,
        scatter=_scattered_hit_rates(
            request.router,
            lambda caches: (
                hits - session_hits * (1 - shares @ random_routing_hit_probability(uses, caches))
            )[every_fourth],
        ),
    )


def is_drawn(router: str) -> bool:
    """True if the router assigns requests to random replicas."""
    return parse_router(router) == "random"


def hit_rate_curve_of(request: Request, work: ServingWorkload) -> HitRateCurve | None:
    """The prefix-cache hit curve of a request's sessions or trace.

    None if there are neither, or if the request sets the hit rate.

    Raises SpecError or SearchSpaceError if the sessions are impossible, or a cache is set without
    shared prefixes.
    """
    router, curve = parse_router(request.router), None
    if request.prefix_cache_hit_rate is None:
        curve = session_hit_rates(request, work)
        if curve is None and request.trace is not None:
            curve = trace_hit_rates(Path(request.trace), router, request.prompt_range)
    if curve is None:
        for name in ("host_cache", "disk_cache"):
            if getattr(request, name):
                option = "--" + name.replace("_", "-")
                raise SearchSpaceError(
                    f"{option} needs prompts that share prefixes: give --turns, or a --trace with "
                    "hash_ids, and leave out --prefix-cache-hit-rate."
                )
    return curve


def parse_router(text: str) -> str:
    """Parse the name of the router that assigns requests to replicas.

    Raises SpecError if the name is unknown.
    """
    router = text.strip().lower().replace("-", "_")
    if router not in ROUTERS:
        hint = did_you_mean(router, ROUTERS)
        raise SpecError(f"--router is one of {', '.join(ROUTERS)}, not {text!r}.{hint}")
    return router


def _scattered_hit_rates(
    router: str, left: Callable[[float], FloatArray]
) -> tuple[tuple[float, ...], ...]:
    """Hit rates for each number of caches, if the router ignores caches; else empty."""
    if parse_router(router) == CACHE_AWARE:
        return ()
    return tuple(tuple(left(caches).tolist()) for caches in CACHES)
