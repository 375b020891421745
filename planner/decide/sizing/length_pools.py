"""Pools by prompt length: their GPUs and cost compared with one mixed pool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from planner.base.csv_cells import Value, rows_to_columns
from planner.base.formatting import format_count
from planner.base.records import record
from planner.decide.sizing.autoscaling import AT_ONCE, Startup
from planner.decide.sizing.services import Service
from planner.decide.sizing.shared_services import SharedFleet, share_gpus
from planner.decide.sizing.size_all import Progress, with_default_confidence
from planner.errors import InfeasibleError, SearchSpaceError
from planner.question.parse_values import parse_int, split_items
from planner.question.request import Request
from planner.question.terms import glossary
from planner.workloads.build_request import OptionNamer
from planner.workloads.serving.question import USUAL_TOKENS, variations_of
from planner.workloads.serving.traffic import (
    LengthRange,
    PromptLengths,
    measured_answers,
    prompts_of,
)

if TYPE_CHECKING:
    import pandas as pd

MOST_POOLS = 4
# Deciles, and the few longest prompts.
_SHARES = (*(place / 10 for place in range(1, 10)), 0.95, 0.98)
# Without named GPUs, ends are searched on the GPUs that are cheapest with one pool.
_TYPES = 3
_NEGLIGIBLE_SHARE = 1e-6
_LATENCY, _ANY_TIME = "time_to_first_token", 1e6
ALL_PROMPTS = "all prompts"


@record(kw_only=True)
class LengthCut:
    """Prompt lengths at which requests are divided into pools.

    Parameters
    ----------
    ends : prompt lengths [tokens]
    cost : cost of the pools [USD/day]; infinite: a pool is infeasible
    """

    ends: tuple[int, ...]
    cost: float


@record(kw_only=True, repr=False)
class LengthPools:
    """Pools by prompt length compared with one mixed pool.

    Parameters
    ----------
    pools : pools of the cheapest cut
    mixed : one pool of all prompts
    cuts : cuts that were tried, cheapest first
    unlimited : GPUs of the pools and of the mixed pool without latency limits
    """

    pools: SharedFleet
    mixed: SharedFleet
    cuts: tuple[LengthCut, ...]
    unlimited: tuple[int, int]

    def __repr__(self) -> str:
        return f"<LengthPools: {self.pools.num_gpus} GPUs, {self.mixed.num_gpus} in one pool>"

    @property
    def request(self) -> Request:
        """Fields that all pools have in common."""
        return self.mixed.request

    @property
    def saved(self) -> float:
        """Share of the mixed pool's cost that the pools save; negative: they cost more."""
        return 1 - self.pools.cost / self.mixed.cost

    @property
    def limits_saved(self) -> int:
        """GPUs that pools save because each keeps its latency limits with fewer idle GPUs."""
        pools, mixed = self.unlimited
        return (self.mixed.num_gpus - mixed) - (self.pools.num_gpus - pools)

    @cached_property
    def rows(self) -> list[dict[str, Value]]:
        """A row for each pool on each type of GPU, then those of the mixed one."""
        return [*self.pools.rows, *self.mixed.rows]

    @cached_property
    def table(self) -> Mapping[str, list[Value]]:
        """The rows as columns; what a row lacks is None."""
        return rows_to_columns(self.rows)

    def to_frame(self) -> pd.DataFrame:
        """A row for each pool on each type of GPU: the plan's columns in full."""
        import pandas as pd

        return pd.DataFrame(self.table)


def read_pools(value: object, option_name: str = "pools") -> int | tuple[int, ...]:
    """Parse the number of pools, or their ascending ends [tokens].

    Raises SearchSpaceError if it is neither.
    """
    ends = [
        parse_int(end, option_name, 1, unit="tokens") for end in split_items(value, option_name)
    ]
    if len(ends) == 1 and ends[0] <= MOST_POOLS:
        if ends[0] < 2:
            raise SearchSpaceError(
                f"{option_name} is 2 to {MOST_POOLS}, or where to cut, such as 6k."
            )
        return ends[0]
    if len(ends) >= MOST_POOLS or any(end >= other for end, other in pairwise(ends)):
        raise SearchSpaceError(
            f"{option_name} is 2 to {MOST_POOLS}, or at most {MOST_POOLS - 1} ascending numbers of "
            f"tokens, such as 2k,8k, not {', '.join(map(str, ends))}."
        )
    return tuple(ends)


def candidate_cuts(
    request: Request, pools: int | tuple[int, ...], option_name: OptionNamer = str
) -> list[tuple[int, ...]]:
    """Return prompt lengths to cut pools at [tokens]: stated, or combinations of quantiles.

    Raises SpecError or SearchSpaceError if a file cannot be read; prompts are alike, or a part of
    them already.
    """
    if request.prompt_range is not None:
        raise SearchSpaceError(
            f"{option_name('pools')} cuts all prompts: leave out {option_name('prompt_range')}."
        )
    if request.workload != "serve":
        raise SearchSpaceError(
            f"{option_name('pools')} is for requests: give {option_name('workload')} serve."
        )
    quantiles = sorted({*_prompts(request).quantiles(_SHARES)})
    if isinstance(pools, tuple) and len(quantiles) > 1:
        return [pools]
    if not isinstance(pools, int) or len(quantiles) < pools:
        raise SearchSpaceError(
            f"{option_name('pools')}: prompts are all alike: give {option_name('lengths')}, "
            f"{option_name('trace')} or {option_name('input_variation')}."
        )
    return [*combinations(quantiles, pools - 1)]


def _prompts(request: Request) -> PromptLengths:
    tokens = request.input_tokens or USUAL_TOKENS
    return prompts_of(request.changed(input_tokens=tokens, **variations_of(request)))


def num_sizings(cuts: Sequence[tuple[int, ...]]) -> int:
    """Number of sizings of `pools_by_length`."""
    return 4 + (len({part for cut in cuts for part in _ranges(cut)}) if len(cuts) > 1 else 0)


def pools_by_length(
    service: Service,
    pools: int | tuple[int, ...],
    contracts: Sequence[str | None] = (None,),
    *,
    stock: Mapping[str, int] | None = None,
    startup: Startup = AT_ONCE,
    option_name: OptionNamer = str,
    progress: Progress | None = None,
    workers: int = 1,
) -> LengthPools:
    """Size a service in pools by prompt length, and in one mixed pool.

    Each pool serves the requests with prompts in its range, and has a search with all limits. If
    ``pools`` is a number, the cheapest ends are chosen from quantiles of the prompts (deciles, 95
    and 98 %). ``progress`` receives how many of `num_sizings` are done.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible; all prompts
    are alike; InfeasibleError if a pool, or one of all, keeps the limits on none of the GPUs.
    """
    service = replace(service, request=with_default_confidence(service.request))
    request, done = service.request, 0

    def shared(parts: Sequence[Service]) -> SharedFleet:
        """Assign GPUs to the services of these pools and report one more finished fleet."""
        nonlocal done
        fleet = share_gpus(
            parts, stock or {}, contracts, startup=startup, option_name=option_name, workers=workers
        )
        done += 1
        if progress is not None:
            progress(done)
        return fleet

    ends, prompts = candidate_cuts(request, pools, option_name), _prompts(request)
    if startup != AT_ONCE and service.load is None:
        raise SearchSpaceError(f"{option_name('startup_time')} needs {option_name('load')}.")
    mixed = shared([replace(service, name=ALL_PROMPTS)])
    costs: dict[LengthRange, float] = {}
    if len(ends) > 1:
        by_cost = sorted(mixed.of_one_type.items(), key=lambda type_and_cost: type_and_cost[1])
        gpus = request.gpu or tuple(gpu for gpu, _ in by_cost[:_TYPES])
        among = replace(service, request=request.changed(gpu=gpus))
        for part in dict.fromkeys(part for cut in ends for part in _ranges(cut)):
            try:
                costs[part] = sum(
                    shared([part_service]).cost
                    for part_service in _service_of_range(among, prompts, part)
                )
            except InfeasibleError:
                costs[part] = math.inf
    cuts = [
        LengthCut(ends=cut, cost=sum(costs.get(part, 0.0) for part in _ranges(cut))) for cut in ends
    ]
    cuts.sort(key=lambda cut: cut.cost)
    parts = [
        part_service
        for part in _ranges(cuts[0].ends)
        for part_service in _service_of_range(service, prompts, part)
    ]
    placed = shared(parts)
    return LengthPools(
        pools=placed,
        mixed=mixed,
        cuts=tuple(cuts) if costs else (replace(cuts[0], cost=placed.cost),),
        unlimited=(
            shared([*map(_unlimited, parts)]).num_gpus,
            shared([_unlimited(service)]).num_gpus,
        ),
    )


def _unlimited(service: Service) -> Service:
    """Return the service with time limits so long that every plan keeps them."""
    terms, bounds = glossary(), dict(service.request.constraints)
    times = [name for name in bounds if terms[name].type == "second"] or [_LATENCY]
    bounds |= dict.fromkeys(times, _ANY_TIME)
    return replace(service, request=replace(service.request, constraints=bounds))


def _ranges(ends: tuple[int, ...]) -> list[LengthRange]:
    bounds = [0.0, *map(float, ends), math.inf]
    return [LengthRange(above=above, most=longest) for above, longest in pairwise(bounds)]


def _service_of_range(service: Service, prompts: PromptLengths, part: LengthRange) -> list[Service]:
    """Return the service of the prompts in a range, in a list; empty: no such prompts."""
    of_all, lengths = prompts.within(part)
    if of_all < _NEGLIGIBLE_SHARE:
        return []
    name = f"prompts {format_count(part.above)} to {format_count(part.most)}"
    if not part.above:
        name = f"prompts up to {format_count(part.most)}"
    elif math.isinf(part.most):
        name = f"prompts above {format_count(part.above)}"
    if of_all > 1 - _NEGLIGIBLE_SHARE:
        return [replace(service, name=name)]
    of_share, request = service.of_share(of_all), service.request
    measured, is_measured = measured_answers(request), request.trace or request.lengths
    # Answers specified in addition to a trace or lengths stay.
    part_answers: dict[str, object] = {
        term: value
        for term, value in lengths.items()
        if not is_measured or getattr(request, term) == measured[term]
    }
    if is_measured:
        part_answers["prompt_range"] = part.text
    return [replace(of_share, name=name, request=of_share.request.changed(**part_answers))]
