"""``size``: the fewest and the cheapest GPUs of each type that keep limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from planner.base.records import record
from planner.commands.command import Bar, Call, Command, PlanQuestion, read_question
from planner.decide.near import MayBe
from planner.decide.sizing.autoscaling import read_load, read_load_or_trace, read_startup
from planner.decide.sizing.fits import fewest_gpus_that_fit, is_memory_only
from planner.decide.sizing.length_pools import (
    LengthPools,
    candidate_cuts,
    num_sizings,
    pools_by_length,
    read_pools,
)
from planner.decide.sizing.purchase import UNCHANGED, read_price_change
from planner.decide.sizing.services import (
    Service,
    read_services,
    read_stock,
    refuse_single_service_options,
)
from planner.decide.sizing.shared_services import SharedFleet, share_gpus
from planner.decide.sizing.size import POWER, read_budget
from planner.decide.sizing.size_all import (
    Sizes,
    gpus_of,
    parse_contracts,
    size_all,
    sizing_tasks,
    without_contract,
)
from planner.errors import InfeasibleError, SearchSpaceError
from planner.question.names import (
    BUDGET,
    CONTRACT,
    LOAD,
    PRICE_CHANGE,
    SERVICES,
    STARTUP_TIME,
    STOCK,
)
from planner.question.parse_values import parse_si, split_items
from planner.question.request import Answers, Request
from planner.question.terms import glossary
from planner.show.output_blocks import Block
from planner.show.presenters.row_tables import RowFiles
from planner.show.presenters.services import (
    add_length_pools,
    add_services,
    length_pools_blocks,
    services_blocks,
)
from planner.show.presenters.sizes import add_sizes, question_lines, reason_lines, sizes_blocks
from planner.workloads.build_request import OptionNamer
from planner.workloads.priced_hardware import gpu_counts

if TYPE_CHECKING:
    from planner.show.presenters.plots.picture import Picture

POOLS = "pools"

Sized: TypeAlias = Sizes | SharedFleet | LengthPools
"""GPUs of one run or service, of several services, or of one service in pools by length."""


@record(kw_only=True)
class SizeInputs:
    """What is sized: the number of its steps, their name, and a function that sizes it."""

    bar: Bar
    steps: int
    unit: str
    size: Callable[..., Sized]


def _read(call: Call) -> SizeInputs:
    """Return what is sized: one run or service, several services, or pools by length.

    Raises PlannerError if a value is unknown, faulty or impossible.
    """
    extra, name = call.extra, call.option_name
    contracts = parse_contracts(call.request.get(CONTRACT), name(CONTRACT))
    startup = read_startup(extra.get(STARTUP_TIME) or 0, name(STARTUP_TIME))
    stock = None if extra.get(STOCK) is None else read_stock(extra[STOCK], name(STOCK))
    options: dict[str, Any] = {
        "contracts": contracts, "startup": startup, "option_name": name, "workers": call.workers,
    }  # fmt: skip
    several = next((option for option in (POOLS, SERVICES) if extra.get(option) is not None), None)
    if several is not None and extra.get("from_file") is not None:
        raise SearchSpaceError(
            f"{name('from_file')} is of one run or service: leave it out, or {name(several)}."
        )
    if several is None and stock is not None:
        raise SearchSpaceError(
            f"{name(STOCK)} needs {name(SERVICES)} or {name(POOLS)}, which share the GPUs."
        )
    if several is None:
        return _read_one(call, options)
    values = {n: value for n, value in {**call.request, **extra}.items() if value is not None}
    if several == SERVICES:
        refuse_single_service_options(values, name)
        shared = {n: value for n, value in call.request.items() if n != "workload"}
        options["power"] = _pop_power(shared)
        services, file_stock = read_services(extra[SERVICES], shared, name)  # type: ignore[arg-type]
        options |= _money(extra, name)
        size = partial(share_gpus, services, file_stock if stock is None else stock, **options)
        return SizeInputs(bar=call.bar, steps=len(services), unit="services", size=size)
    others = (SERVICES, BUDGET, PRICE_CHANGE, "num_gpus", "plot")
    if option := next((n for n in others if n in values), None):
        raise SearchSpaceError(f"{name(option)} is no question of {name(POOLS)}.")
    load = None if extra.get(LOAD) is None else read_load(Path(str(extra[LOAD])))
    request = without_contract(read_question(call).request)
    pools = read_pools(extra[POOLS], name(POOLS))
    service = Service(name="", request=request, load=load)
    steps = num_sizings(candidate_cuts(request, pools, name))
    of_pools = partial(pools_by_length, service, pools, stock=stock, **options)
    return SizeInputs(bar=call.bar, steps=steps, unit="pools", size=of_pools)


def _read_one(call: Call, options: Mapping[str, Any]) -> SizeInputs:
    """Return the sizing of one run or service, or of the plan of a file."""
    extra, name = call.extra, call.option_name
    files = _requests_of_file(call) if extra.get("from_file") is not None else []
    request = _search_request_of_file(call, files) if files else read_question(call).request
    request, load = read_load_or_trace(
        without_contract(request), extra.get(LOAD), extra.get(STARTUP_TIME), name  # type: ignore[arg-type]
    )  # fmt: skip
    money = _money(extra, name)
    if extra.get("picture") == "day" and load is None:
        from planner.show.presenters.plots.curves import NO_DAY

        raise SearchSpaceError(NO_DAY)
    if files and is_memory_only(request, load, money[BUDGET]):
        is_counted = call.request.get("num_gpus") is not None
        counts = tuple(sorted(gpu_counts(files[0][0].num_gpus))) if is_counted else ()
        fit = partial(fewest_gpus_that_fit, files, options["contracts"], counts)
        return SizeInputs(bar=call.bar, steps=len(files), unit="GPUs", size=fit)
    options = {**options, "load": load, "budget": money[BUDGET]}
    of_tasks = {n: value for n, value in options.items() if n != "workers"}
    steps = len(sizing_tasks(request, **of_tasks))
    size = partial(size_all, request, **options, price_change=money[PRICE_CHANGE])
    return SizeInputs(bar=call.bar, steps=steps, unit="GPUs", size=size)


def _money(extra: Answers, name: OptionNamer) -> dict[str, Any]:
    """Return the budget and the change of prices; raises SearchSpaceError if one is invalid."""
    budget, change = extra.get(BUDGET), extra.get(PRICE_CHANGE)
    return {
        BUDGET: None if budget is None else read_budget(budget, name(BUDGET)),
        PRICE_CHANGE: UNCHANGED
        if change is None
        else read_price_change(change, name(PRICE_CHANGE)),
    }


def _pop_power(shared: dict[str, object]) -> float:
    """Remove the limit of the power of all services from their limits, and return it [W]."""
    limits = dict(shared.get("constraints") or {})  # type: ignore[call-overload]
    value = limits.pop(POWER, None)
    shared["constraints"] = limits
    return math.inf if value is None else parse_si(value, glossary()[POWER].type, POWER)


def _requests_of_file(call: Call) -> list[tuple[Request, MayBe]]:
    """Return a file's request for each specified GPU; otherwise for the GPU in the file.

    If the file names no GPU, requests are for all current GPUs. Each request comes with a function
    that is True for the values which the file can express.
    """
    if (gpu := call.request.get("gpu")) is not None:
        items = split_items(gpu, call.option_name("gpu"))
        gpus = gpus_of(tuple(map(str, items)), specs=call.specs)
    else:
        question = read_question(call)
        if question.launch is None or "gpu" not in question.launch.imported.assumed:
            return [(question.request, _values_of_file(question))]
        gpus = gpus_of(None, specs=call.specs)
    questions = [(gpu, read_question(_on_gpu(call, gpu))) for gpu in gpus]
    return [
        (question.request.changed(gpu=gpu), _values_of_file(question))
        for gpu, question in questions
    ]


def _on_gpu(call: Call, gpu: str | None) -> Call:
    return replace(call, request={**call.request, "gpu": gpu}, launch_answers={"gpu": gpu})


def _values_of_file(question: PlanQuestion) -> MayBe:
    """Return a function that is True for values which the file can express.

    A saved plan can express all values.
    """
    from planner.launch.write.rewrite_launch import can_express

    launch = question.launch
    return (lambda *_: True) if launch is None else partial(can_express, launch.imported)


def _search_request_of_file(call: Call, files: Sequence[tuple[Request, MayBe]]) -> Request:
    """Return the question of a file without its layout and its number of GPUs."""
    gpus = tuple(str(request.gpu) for request, _ in files)
    request = read_question(_on_gpu(call, gpus[0]), is_search=True).request
    is_counted = call.request.get("num_gpus") is not None
    return request.changed(gpu=gpus, num_gpus=request.num_gpus if is_counted else None)


def _run(inputs: SizeInputs) -> Sized:
    """Return the GPUs of what is sized.

    Raises InfeasibleError if a service or a pool runs on none of the GPUs, or the stock is too
    small.
    """
    with inputs.bar(inputs.steps, inputs.unit) as progress:
        return inputs.size(progress=progress)


def _problem(sized: Sized) -> InfeasibleError | None:
    """Return why no GPU keeps the limits; None if one does."""
    if not isinstance(sized, Sizes) or sized.best is not None:
        return None
    return InfeasibleError("\n".join([*question_lines(sized), *filter(None, reason_lines(sized))]))


_SHOWN: Mapping[type, tuple[Callable[..., Iterable[Block]], Callable[..., None]]] = {
    Sizes: (sizes_blocks, add_sizes),
    SharedFleet: (services_blocks, add_services),
    LengthPools: (length_pools_blocks, add_length_pools),
}
"""What presents each kind of result, and what writes it."""


def _present(sized: Sized, is_full: bool) -> Iterable[Block]:
    return [] if _problem(sized) else _SHOWN[type(sized)][0](sized, is_full=is_full)


def _write(files: RowFiles, sized: Sized, arguments: Sequence[str]) -> None:
    _SHOWN[type(sized)][1](files, sized, arguments)


def _draw(picture: Picture, sized: Sized) -> None:
    """Draw the costs of the GPUs, or the day of a load."""
    from planner.show.presenters.plots.curves import size_picture
    from planner.show.presenters.plots.picture import draw

    if not isinstance(sized, Sizes):
        raise SearchSpaceError("A picture is of one run or service, not of several or of pools.")
    draw(picture, *size_picture(picture.name, sized))


SIZE = Command(read=_read, run=_run, present=_present, write=_write, draw=_draw, problem=_problem)
