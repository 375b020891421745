"""``planner size``: the fewest and the cheapest GPUs of each type that keep limits."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli import options
from planner.cli.options import given_answers, make_request, picture_of
from planner.errors import SearchSpaceError
from planner.question.inputs import whole
from planner.question.names import BUDGET, SERVICES
from planner.question.request import Request
from planner.workloads.given import parse_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.decide.near import MayBe
    from planner.decide.sizing.size import Sizes


@options.taking(
    "question",
    "limit",
    "sizing",
    how=(
        "pools", "from_file", "row", "num_gpus", "workload", "settings", "precision", "csv",
        "json", "plot", "picture", "dark", "picture_width", "workers", "specs", "quiet",
    ),
)  # fmt: skip
def size(given: options.Given) -> None:
    """Find the fewest and the cheapest GPUs of each type and contract that keep the limits."""
    from planner.base.files import check_outputs
    from planner.decide.sizing.envelope import read_budget
    from planner.decide.sizing.fits import is_only_to_fit
    from planner.decide.sizing.load import load_of
    from planner.decide.sizing.scaling import read_startup
    from planner.decide.sizing.size import contracts_given, without_contract
    from planner.show.terminal import make_console, write
    from planner.show.views.rows import row_files
    from planner.show.views.sizes import add_sizes, sizes_blocks

    csv, json = given["csv"], given["json"]
    contracts = contracts_given(
        given["contract"] if options.is_given(given, "contract") else None, "--contract"
    )
    if given["services"] is not None or given["pools"] is not None:
        if given["from_file"] is not None:
            both = "--services" if given["pools"] is None else "--pools"
            raise SearchSpaceError(f"--from is of one run or service: leave it out, or {both}.")
        (_share if given["pools"] is None else _pools)(given, contracts)
        return
    if given["stock"] is not None:
        raise SearchSpaceError("--stock needs --services or --pools: what shares the GPUs.")
    said = options.option_name
    startup = read_startup(given["startup_time"] or 0, "--startup-time")
    file = None if given["load"] is None else Path(given["load"])
    of_file = _requests_of_file(given) if given["from_file"] is not None else []
    question = _searched_of_file(given, of_file) if of_file else make_request(given)
    request, load = load_of(without_contract(question), file, given["startup_time"], said)
    budget = None if given["budget"] is None else read_budget(given["budget"], "--budget")
    check_outputs(csv, json)
    picture = picture_of("size", given)
    if picture is not None and picture.name == "day" and load is None:
        from planner.show.views.plots.curves import NO_DAY

        raise SearchSpaceError(NO_DAY)
    if of_file and is_only_to_fit(request, load, budget):
        sizes = _fitting(given, of_file, contracts)
    else:
        sizes = _sized(given, request, contracts, load=load, startup=startup, budget=budget)
    if sizes.best is None:
        from planner.errors import InfeasibleError
        from planner.show.views.sizes import question_lines, reason_lines

        lines = [*question_lines(sizes), *filter(None, reason_lines(sizes))]
        raise InfeasibleError("\n".join(lines))
    with row_files(given["csv"], given["json"]) as files:
        add_sizes(files, sizes, given["context"].obj)
    if picture is not None:
        from planner.show.views.plots.curves import size_picture
        from planner.show.views.plots.picture import draw

        draw(picture, *size_picture(picture.name, sizes))
    if not given["quiet"]:
        write(make_console(stderr=Path("-") in (csv, json)), sizes_blocks(sizes))


def _requests_of_file(given: options.Given) -> list[tuple[Request, MayBe]]:
    """The plan of a file on each GPU: of the user, of the file, or else each current one."""
    from planner.decide.sizing.size import gpus_of
    from planner.question.inputs import several

    if options.is_given(given, "gpu"):
        gpus = gpus_of(tuple(map(str, several(given["gpu"], "--gpu"))), specs=given["specs"])
    else:
        request = make_request(given)
        imported = given.get("imported")
        if imported is None or "gpu" not in imported.assumed:
            return [(request, _can_say(given))]
        gpus = gpus_of(None, specs=given["specs"])
    requests = []
    for gpu in gpus:
        on_gpu = {**given, "gpu": gpu, "launch_assumed": {"gpu": gpu}}
        request = make_request(on_gpu).changed(gpu=gpu)
        requests.append((request, _can_say(on_gpu)))
    given["workload"] = requests[0][0].workload
    return requests


def _can_say(given: options.Given) -> MayBe:
    """Whether the launch file has words for a value; a plan of planner's has all."""
    from planner.launch.rewrite import can_say

    imported = given.get("imported")
    return (lambda *_: True) if imported is None else partial(can_say, imported)


def _searched_of_file(given: options.Given, of_file: Sequence[tuple[Request, MayBe]]) -> Request:
    """The question of a file without its layout and its number of GPUs."""
    gpus = tuple(str(request.gpu) for request, _ in of_file)
    first = {**given, "gpu": gpus[0], "launch_assumed": {"gpu": gpus[0]}}
    request = make_request(first, is_search=True)
    is_counted = options.is_given(given, "num_gpus")
    return request.changed(gpu=gpus, num_gpus=request.num_gpus if is_counted else None)


def _fitting(
    given: options.Given, of_file: Sequence[tuple[Request, MayBe]], contracts: Sequence[str | None]
) -> Sizes:
    """The fewest GPUs on which the plan of a file fits."""
    from planner.decide.sizing.fits import fewest_that_fit
    from planner.show.terminal import progress_bar
    from planner.workloads.place import gpu_counts

    counts = gpu_counts(of_file[0][0].num_gpus) if options.is_given(given, "num_gpus") else ()
    with progress_bar(len(of_file), "GPUs", quiet=given["quiet"]) as progress:
        return fewest_that_fit(of_file, contracts, tuple(sorted(counts)), progress)


def _share(given: options.Given, contracts: Sequence[str | None]) -> None:
    """Size several services that share GPUs."""
    from planner.base.files import check_outputs
    from planner.base.processes import num_cores
    from planner.decide.sizing.scaling import read_startup
    from planner.decide.sizing.services import read_services, read_stock, refuse_of_one, share
    from planner.show.terminal import make_console, progress_bar, write
    from planner.show.views.rows import row_files
    from planner.show.views.services import add_services, services_blocks

    refuse_of_one([n for n in given if options.is_given(given, n)], options.option_name)
    check_outputs(given["csv"], given["json"])
    answers = given_answers(given)
    common = {"specs": given["specs"], **answers.questions, "constraints": answers.limits}
    common["settings"] = parse_settings(given["settings"] or [])
    said = options.option_name
    services, stock = read_services(given["services"], common, said)
    if given["stock"] is not None:
        stock = read_stock(given["stock"], "--stock")
    with progress_bar(len(services), "services", quiet=given["quiet"]) as progress:
        fleet = share(
            services,
            stock,
            contracts,
            startup=read_startup(given["startup_time"] or 0, "--startup-time"),
            said=said,
            progress=progress,
            workers=whole(given["workers"] or num_cores(), "--workers", 1),
        )
    with row_files(given["csv"], given["json"]) as files:
        add_services(files, fleet, given["context"].obj)
    if not given["quiet"]:
        outputs = given["csv"], given["json"]
        write(make_console(stderr=Path("-") in outputs), services_blocks(fleet))


def _pools(given: options.Given, contracts: Sequence[str | None]) -> None:
    """Size a service in pools by the length of its prompts."""
    from planner.base.files import check_outputs
    from planner.base.processes import num_cores
    from planner.decide.sizing.by_length import cuts_of, num_parts, pools_by_length, read_pools
    from planner.decide.sizing.load import read_load
    from planner.decide.sizing.scaling import read_startup
    from planner.decide.sizing.services import Service, read_stock
    from planner.decide.sizing.size import without_contract
    from planner.show.terminal import make_console, progress_bar, write
    from planner.show.views.rows import row_files
    from planner.show.views.services import add_length_pools, length_pools_blocks

    for name in (SERVICES, BUDGET, "num_gpus", "plot"):
        if options.is_given(given, name):
            raise SearchSpaceError(f"{options.option_name(name)} is no question of --pools.")
    check_outputs(given["csv"], given["json"])
    said, pools = options.option_name, read_pools(given["pools"], "--pools")
    load = None if given["load"] is None else read_load(given["load"])
    service = Service(name="", request=without_contract(make_request(given)), load=load)
    number = num_parts(cuts_of(service.request, pools, said))
    with progress_bar(number, "pools", quiet=given["quiet"]) as progress:
        found = pools_by_length(
            service,
            pools,
            contracts,
            stock=None if given["stock"] is None else read_stock(given["stock"], "--stock"),
            startup=read_startup(given["startup_time"] or 0, "--startup-time"),
            said=said,
            progress=progress,
            workers=whole(given["workers"] or num_cores(), "--workers", 1),
        )
    with row_files(given["csv"], given["json"]) as files:
        add_length_pools(files, found, given["context"].obj)
    if not given["quiet"]:
        outputs = given["csv"], given["json"]
        write(make_console(stderr=Path("-") in outputs), length_pools_blocks(found))


def _sized(
    given: options.Given, request: Request, contracts: Sequence[str | None], **asked: Any
) -> Sizes:
    from planner.base.processes import num_cores
    from planner.decide.sizing.size import size_all, tasks_of
    from planner.show.terminal import progress_bar

    workers = whole(given["workers"] or num_cores(), "--workers", 1)
    said = options.option_name
    number = len(tasks_of(request, contracts, said=said, **asked))
    with progress_bar(number, "GPUs", quiet=given["quiet"]) as progress:
        return size_all(request, contracts, said=said, progress=progress, workers=workers, **asked)
