"""``planner size``: the fewest and the cheapest GPUs of each type that keep limits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli import options
from planner.cli.options import make_request, picture_of, split_answers
from planner.errors import SearchSpaceError
from planner.question.names import BUDGET, SERVICES
from planner.question.parse_values import parse_int
from planner.question.request import Request
from planner.workloads.build_request import parse_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.decide.near import MayBe
    from planner.decide.sizing.size_all import Sizes


@options.with_term_options(
    "question",
    "limit",
    "sizing",
    how=(
        "pools", "from_file", "row", "num_gpus", "workload", "settings", "precision", "csv",
        "json", "plot", "picture", "dark", "picture_width", "workers", "specs", "quiet",
    ),
)  # fmt: skip
def size(values: options.OptionValues) -> None:
    """Find the fewest and the cheapest GPUs of each type and contract that keep the limits."""
    from planner.base.atomic_write import check_outputs
    from planner.decide.sizing.autoscaling import read_startup
    from planner.decide.sizing.budget import read_budget
    from planner.decide.sizing.fits import is_memory_only
    from planner.decide.sizing.load_profile import read_load_or_trace
    from planner.decide.sizing.size_all import parse_contracts, without_contract
    from planner.show.presenters.row_files import row_files
    from planner.show.presenters.sizes import add_sizes, sizes_blocks
    from planner.show.terminal import make_console, print_blocks

    csv, json = values["csv"], values["json"]
    contracts = parse_contracts(
        values["contract"] if options.is_set(values, "contract") else None, "--contract"
    )
    if values["services"] is not None or values["pools"] is not None:
        if values["from_file"] is not None:
            option = "--services" if values["pools"] is None else "--pools"
            raise SearchSpaceError(f"--from is of one run or service: leave it out, or {option}.")
        (_size_services if values["pools"] is None else _size_pools)(values, contracts)
        return
    if values["stock"] is not None:
        raise SearchSpaceError("--stock needs --services or --pools, which share the GPUs.")
    option_name = options.option_name
    startup = read_startup(values["startup_time"] or 0, "--startup-time")
    file = None if values["load"] is None else Path(values["load"])
    file_requests = _requests_of_file(values) if values["from_file"] is not None else []
    question = (
        _search_request_of_file(values, file_requests) if file_requests else make_request(values)
    )
    request, load = read_load_or_trace(
        without_contract(question), file, values["startup_time"], option_name
    )
    budget = None if values["budget"] is None else read_budget(values["budget"], "--budget")
    check_outputs(csv, json)
    picture = picture_of("size", values)
    if picture is not None and picture.name == "day" and load is None:
        from planner.show.presenters.plots.curves import NO_DAY

        raise SearchSpaceError(NO_DAY)
    if file_requests and is_memory_only(request, load, budget):
        sizes = _size_to_fit(values, file_requests, contracts)
    else:
        sizes = _size_hardware(
            values, request, contracts, load=load, startup=startup, budget=budget
        )
    if sizes.best is None:
        from planner.errors import InfeasibleError
        from planner.show.presenters.sizes import question_lines, reason_lines

        lines = [*question_lines(sizes), *filter(None, reason_lines(sizes))]
        raise InfeasibleError("\n".join(lines))
    with row_files(values["csv"], values["json"]) as files:
        add_sizes(files, sizes, values["context"].obj)
    if picture is not None:
        from planner.show.presenters.plots.curves import size_picture
        from planner.show.presenters.plots.picture import draw

        draw(picture, *size_picture(picture.name, sizes))
    if not values["quiet"]:
        print_blocks(make_console(stderr=Path("-") in (csv, json)), sizes_blocks(sizes))


def _requests_of_file(values: options.OptionValues) -> list[tuple[Request, MayBe]]:
    """Return a file's request for each GPU of --gpu; otherwise for the GPU in the file.

    If the file names no GPU, requests are for all current GPUs. Each request comes with a function
    that is True for the values which the file can express.
    """
    from planner.decide.sizing.size_all import gpus_of
    from planner.question.parse_values import split_items

    if options.is_set(values, "gpu"):
        gpus = gpus_of(tuple(map(str, split_items(values["gpu"], "--gpu"))), specs=values["specs"])
    else:
        request = make_request(values)
        imported = values.get("imported")
        if imported is None or "gpu" not in imported.assumed:
            return [(request, _can_say(values))]
        gpus = gpus_of(None, specs=values["specs"])
    requests = []
    for gpu in gpus:
        on_gpu = {**values, "gpu": gpu, "launch_assumed": {"gpu": gpu}}
        request = make_request(on_gpu).changed(gpu=gpu)
        requests.append((request, _can_say(on_gpu)))
    values["workload"] = requests[0][0].workload
    return requests


def _can_say(values: options.OptionValues) -> MayBe:
    """Return a function that is True for values which the launch file can express.

    A saved plan can express all values.
    """
    from planner.launch.write.rewrite_launch import can_express

    imported = values.get("imported")
    return (lambda *_: True) if imported is None else partial(can_express, imported)


def _search_request_of_file(
    values: options.OptionValues, file_requests: Sequence[tuple[Request, MayBe]]
) -> Request:
    """Return the question of a file without its layout and its number of GPUs."""
    gpus = tuple(str(request.gpu) for request, _ in file_requests)
    first = {**values, "gpu": gpus[0], "launch_assumed": {"gpu": gpus[0]}}
    request = make_request(first, is_search=True)
    is_counted = options.is_set(values, "num_gpus")
    return request.changed(gpu=gpus, num_gpus=request.num_gpus if is_counted else None)


def _size_to_fit(
    values: options.OptionValues,
    file_requests: Sequence[tuple[Request, MayBe]],
    contracts: Sequence[str | None],
) -> Sizes:
    """Find the fewest GPUs on which the plan of a file fits."""
    from planner.decide.sizing.fits import fewest_gpus_that_fit
    from planner.show.terminal import progress_bar
    from planner.workloads.priced_hardware import gpu_counts

    counts = gpu_counts(file_requests[0][0].num_gpus) if options.is_set(values, "num_gpus") else ()
    with progress_bar(len(file_requests), "GPUs", quiet=values["quiet"]) as progress:
        return fewest_gpus_that_fit(file_requests, contracts, tuple(sorted(counts)), progress)


def _size_services(values: options.OptionValues, contracts: Sequence[str | None]) -> None:
    """Size several services that share GPUs."""
    from planner.base.atomic_write import check_outputs
    from planner.base.worker_processes import num_cores
    from planner.decide.sizing.autoscaling import read_startup
    from planner.decide.sizing.shared_services import (
        read_services,
        read_stock,
        refuse_single_service_options,
        share_gpus,
    )
    from planner.show.presenters.row_files import row_files
    from planner.show.presenters.services import add_services, services_blocks
    from planner.show.terminal import make_console, print_blocks, progress_bar

    refuse_single_service_options(
        [n for n in values if options.is_set(values, n)], options.option_name
    )
    check_outputs(values["csv"], values["json"])
    answers = split_answers(values)
    common = {"specs": values["specs"], **answers.questions, "constraints": answers.limits}
    common["settings"] = parse_settings(values["settings"] or [])
    option_name = options.option_name
    services, stock = read_services(values["services"], common, option_name)
    if values["stock"] is not None:
        stock = read_stock(values["stock"], "--stock")
    with progress_bar(len(services), "services", quiet=values["quiet"]) as progress:
        fleet = share_gpus(
            services,
            stock,
            contracts,
            startup=read_startup(values["startup_time"] or 0, "--startup-time"),
            option_name=option_name,
            progress=progress,
            workers=parse_int(values["workers"] or num_cores(), "--workers", 1),
        )
    with row_files(values["csv"], values["json"]) as files:
        add_services(files, fleet, values["context"].obj)
    if not values["quiet"]:
        outputs = values["csv"], values["json"]
        print_blocks(make_console(stderr=Path("-") in outputs), services_blocks(fleet))


def _size_pools(values: options.OptionValues, contracts: Sequence[str | None]) -> None:
    """Size a service in pools by the length of its prompts."""
    from planner.base.atomic_write import check_outputs
    from planner.base.worker_processes import num_cores
    from planner.decide.sizing.autoscaling import read_startup
    from planner.decide.sizing.length_pools import (
        candidate_cuts,
        num_sizings,
        pools_by_length,
        read_pools,
    )
    from planner.decide.sizing.load_profile import read_load
    from planner.decide.sizing.shared_services import Service, read_stock
    from planner.decide.sizing.size_all import without_contract
    from planner.show.presenters.row_files import row_files
    from planner.show.presenters.services import add_length_pools, length_pools_blocks
    from planner.show.terminal import make_console, print_blocks, progress_bar

    for name in (SERVICES, BUDGET, "num_gpus", "plot"):
        if options.is_set(values, name):
            raise SearchSpaceError(f"{options.option_name(name)} is no question of --pools.")
    check_outputs(values["csv"], values["json"])
    option_name, pools = options.option_name, read_pools(values["pools"], "--pools")
    load = None if values["load"] is None else read_load(values["load"])
    service = Service(name="", request=without_contract(make_request(values)), load=load)
    number = num_sizings(candidate_cuts(service.request, pools, option_name))
    with progress_bar(number, "pools", quiet=values["quiet"]) as progress:
        length_pools = pools_by_length(
            service,
            pools,
            contracts,
            stock=None if values["stock"] is None else read_stock(values["stock"], "--stock"),
            startup=read_startup(values["startup_time"] or 0, "--startup-time"),
            option_name=option_name,
            progress=progress,
            workers=parse_int(values["workers"] or num_cores(), "--workers", 1),
        )
    with row_files(values["csv"], values["json"]) as files:
        add_length_pools(files, length_pools, values["context"].obj)
    if not values["quiet"]:
        outputs = values["csv"], values["json"]
        print_blocks(make_console(stderr=Path("-") in outputs), length_pools_blocks(length_pools))


def _size_hardware(
    values: options.OptionValues,
    request: Request,
    contracts: Sequence[str | None],
    **sizing_options: Any,
) -> Sizes:
    """Find the sizes of a request on each GPU and contract in parallel worker processes."""
    from planner.base.worker_processes import num_cores
    from planner.decide.sizing.size_all import size_all, sizing_tasks
    from planner.show.terminal import progress_bar

    workers = parse_int(values["workers"] or num_cores(), "--workers", 1)
    option_name = options.option_name
    number = len(sizing_tasks(request, contracts, option_name=option_name, **sizing_options))
    with progress_bar(number, "GPUs", quiet=values["quiet"]) as progress:
        return size_all(
            request,
            contracts,
            option_name=option_name,
            progress=progress,
            workers=workers,
            **sizing_options,
        )
