"""``planner size``: the fewest and the cheapest GPUs of each type that keep limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from planner.cli import options
from planner.cli.options import picture_of
from planner.cli.request import make_request
from planner.question.inputs import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.decide.sizing.day import Load
    from planner.decide.sizing.size import Sizes
    from planner.question.request import Request


@options.taking(
    "question",
    "limit",
    how=(
        "load", "num_gpus", "workload", "settings", "precision", "csv", "json", "plot",
        "picture", "dark", "picture_width", "workers", "specs", "quiet",
    ),
)  # fmt: skip
def size(given: options.Given) -> None:
    """Find the fewest and the cheapest GPUs of each type and contract that keep the limits."""
    from planner.base.files import check_outputs
    from planner.decide.sizing.day import read_load
    from planner.decide.sizing.size import contracts_given
    from planner.show.terminal import make_console, write
    from planner.show.views.sizes import sizes_blocks

    csv, json = given["csv"], given["json"]
    contracts = contracts_given(
        given.pop("contract") if options.is_given(given, "contract") else None, "--contract"
    )
    given.pop("contract", None)
    request = make_request(given)
    load = None if given["load"] is None else read_load(given["load"])
    check_outputs(csv, json)
    picture = picture_of("size", given)
    sizes = _sized(given, request, contracts, load)
    if sizes.best is None:
        _refuse(sizes)
    _write(given, sizes)
    if picture is not None:
        from planner.show.views.plots.curves import size_curves, size_title
        from planner.show.views.plots.picture import draw

        draw(picture, size_title(sizes), [size_curves(sizes)])
    if not given["quiet"]:
        write(make_console(stderr=Path("-") in (csv, json)), sizes_blocks(sizes))


def _sized(
    given: options.Given, request: Request, contracts: Sequence[str | None], load: Load | None
) -> Sizes:
    from planner.base.processes import num_cores
    from planner.decide.sizing.size import size_all, tasks_of
    from planner.show.terminal import progress_bar

    workers = whole(given["workers"] or num_cores(), "--workers", 1)
    number = len(tasks_of(request, contracts, load=load, said=options.option_name))
    with progress_bar(number, "GPUs", quiet=given["quiet"]) as progress:
        return size_all(
            request,
            contracts,
            load=load,
            said=options.option_name,
            progress=progress,
            workers=workers,
        )


def _refuse(sizes: Sizes) -> NoReturn:
    from planner.errors import InfeasibleError
    from planner.show.views.sizes import question_lines, reason_lines

    lines = [*question_lines(sizes), *filter(None, reason_lines(sizes))]
    raise InfeasibleError("\n".join(lines))


def _write(given: options.Given, sizes: Sizes) -> None:
    from planner.show.views.rows import row_files
    from planner.show.views.sizes import add_sizes

    with row_files(given["csv"], given["json"]) as files:
        add_sizes(files, sizes, given["context"].obj)
