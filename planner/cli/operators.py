"""``planner operators``: kernels, collectives and copies one by one."""

from __future__ import annotations

from pathlib import Path

from planner.cli import options
from planner.cli.how import texts_of
from planner.question.inputs import several

_HOW = ("operators", "num_gpus", "precision", "csv", "json", "specs", "quiet")


@options.taking("operator", how=_HOW, texts=texts_of("operators"))
def operators(given: options.Given) -> None:
    """Show how long one kernel, collective or copy takes, and what bounds it."""
    from planner.base.files import check_outputs
    from planner.decide.explaining.operators import operator_times, read_question
    from planner.show.terminal import make_console, write
    from planner.show.views.explanation import add_operators, operators_blocks
    from planner.show.views.rows import row_files
    from planner.specs.catalogue import Catalogue

    others = {"context", "operators", "csv", "json", "specs", "quiet"}
    asked = {n: v for n, v in given.items() if n not in others and options.is_given(given, n)}
    words = [word for listed in given["operators"] for word in several(listed, "an operator")]
    question = read_question(words, asked, options.option_name)
    csv, json = given["csv"], given["json"]
    check_outputs(csv, json)
    times = operator_times(question, Catalogue(given["specs"]))
    with row_files(csv, json) as files:
        add_operators(files, times, given["context"].obj)
    if not given["quiet"]:
        write(make_console(stderr=Path("-") in (csv, json)), operators_blocks(times))
