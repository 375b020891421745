"""``planner estimate``: one configuration in full."""

from __future__ import annotations

from pathlib import Path

from planner.cli import options
from planner.cli.options import draw_plan, make_request, picture_of


@options.with_term_options(
    "question",
    without=("space",),
    how=(
        *options.PLAN_OPTIONS,
        "json",
        "plot",
        "picture",
        "dark",
        "picture_width",
        "timeline",
        "mocker_profile",
        "compare_api",
        "write",
        "full",
        "specs",
        "quiet",
    ),
)
def estimate(values: options.OptionValues) -> None:
    """Show one configuration in full."""
    request = make_request(values)
    from planner.base.atomic_write import check_outputs
    from planner.decide.api_comparison import compare_with_apis
    from planner.decide.fitting import MEMORIES
    from planner.errors import InfeasibleError
    from planner.show.presenters.api_comparison import api_comparison_blocks
    from planner.show.presenters.infeasible import infeasible_message
    from planner.show.presenters.load_check import refuse_overload
    from planner.show.presenters.search import estimate_blocks, misfit_blocks, write_estimate
    from planner.show.terminal import make_console, print_blocks
    from planner.workloads.make_plan import evaluate, make_single_plan, result_of

    if values.get("imported") is not None:
        from planner.cli.launch import estimate_imported

        return estimate_imported(values, request)
    json, quiet = values["json"], values["quiet"]
    check_outputs(None, json, values["mocker_profile"])
    picture = picture_of("estimate", values)
    plan = make_single_plan(request, values["burst"])
    evaluation = evaluate(plan, values["burst"])
    console = make_console(stderr=json == Path("-"))
    if evaluation.rejected_by:
        if evaluation.rejected_by in MEMORIES:
            write_estimate(json, plan, evaluation, values["context"].obj)
        result = result_of(plan, evaluation)
        if (
            evaluation.rejected_by in evaluation.source.rejections
            and result.nearest_misses
            and not quiet
        ):
            print_blocks(console, misfit_blocks(plan, evaluation))
        raise InfeasibleError(infeasible_message(plan, result, evaluation))
    compared = compare_with_apis(plan, evaluation.candidates) if values["compare_api"] else None
    apis = {"api": compared.to_dict()} if compared else {}
    draw_plan(values, picture, plan, evaluation.candidates)
    write_estimate(json, plan, evaluation, values["context"].obj, **apis)
    if not quiet:
        print_blocks(console, estimate_blocks(plan, evaluation))
        if compared is not None:
            print_blocks(console, api_comparison_blocks(compared, is_full=True))
    refuse_overload(plan, evaluation.candidates)
    return None
