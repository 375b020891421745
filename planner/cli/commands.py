"""The commands that plan: what each prints and writes besides its answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.options import Command, OptionValues, draw_plan, is_set, picture_of
from planner.cli.run_command import (
    call_of,
    check_files,
    print_result,
    run_command,
    show_result,
    uses_stdout,
)
from planner.cli.text_options import COMMANDS
from planner.commands.options import command_of
from planner.question.explain_words import Meaning
from planner.show.output_blocks import Block, make_lines

if TYPE_CHECKING:
    from planner.commands.command import Call
    from planner.commands.estimate import Estimated
    from planner.commands.search import Searched
    from planner.launch.write.rewrite_launch import RewriteResult
    from planner.launch.write.write_launch import WrittenLaunch


_MOST = 20
"""Lines of a meaning."""


def meanings_blocks(meanings: Iterable[Meaning]) -> Iterator[Block]:
    """Yield the lines of each meaning, its usage last."""
    for meaning in meanings:
        usage = f" {meaning.usage[:1].upper()}{meaning.usage[1:]}." if meaning.usage else ""
        yield make_lines(f"{meaning.name}: {meaning.text}{usage}", indent="", most=_MOST)


def search(values: OptionValues) -> None:
    """Find the best configurations of a model on given GPUs.

    Predicts every layout of the search space, and recommends one.
    """
    call = call_of(values)
    if values["launch"] is not None:
        from planner.commands.launch import with_default_workload

        _check_launch(values, values["launch"])
        call = with_default_workload(call, values["launch"])
    from planner.commands.search import SEARCH

    check_files(values)
    picture = picture_of("search", values)
    # A line about an interruption is printed twice where errors go to the same terminal.
    shares_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    extra = {
        "has_levers": values["json"] is not None or (values["full"] and not values["quiet"]),
        "shows_interruption": not (uses_stdout(values) or shares_terminal),
        "arguments": tuple(values["context"].obj or ()),
    }
    call = replace(call, extra={**call.extra, **extra})
    if values["all_rows"]:
        searched = _search_all(values, call)
        if picture is not None and SEARCH.draw is not None:
            SEARCH.draw(picture, searched)
        if not values["quiet"]:
            print_result(values, SEARCH, searched)
    else:
        searched = run_command(values, SEARCH, call, picture)
    plan, result = searched.plan, searched.result
    if values["save_plan"] is not None:
        from planner.show.presenters.json_files import save_plan

        save_plan(values["save_plan"], plan, result.recommended)
    if values["launch"] is not None and result.recommended is not None:
        from planner.commands.launch import LAUNCH, LaunchInputs
        from planner.launch import SCRIPT
        from planner.workloads.saved_plan import SavedPlan

        launched = LAUNCH.run(
            LaunchInputs(
                question=searched.inputs.question,
                request=SavedPlan.of(plan, result.recommended.row).request(),
                target=values["launch"],
                wrapper=values["wrapper"] or SCRIPT,
            )
        )
        _save_launch(values, launched.launch)
        if not values["quiet"]:
            print_result(values, LAUNCH, launched)
    if result.interrupted:
        from planner.show.presenters.search import interrupted_message

        raise KeyboardInterrupt(interrupted_message(plan, result))


def _search_all(values: OptionValues, call: Call) -> Searched:
    """Run a search and write every feasible row while it runs."""
    from planner.commands.search import SEARCH
    from planner.show.presenters.row_tables import result_blocks, row_files

    inputs = SEARCH.read(call)
    with row_files(values["csv"], values["json"]) as files:

        def add(table: Mapping[str, object]) -> None:
            files.add(result_blocks(inputs.plan, table))

        searched = SEARCH.run(replace(inputs, sink=add))
        if problem := SEARCH.problem(searched):
            raise problem
        SEARCH.write(files, searched, values["context"].obj)
    return searched


def size(values: OptionValues) -> None:
    """Find the fewest and the cheapest GPUs for given limits.

    Tries each GPU type and contract. Give a deadline, a budget or a request rate.
    """
    from planner.base.worker_processes import num_cores
    from planner.commands.size import SIZE

    check_files(values)
    picture = picture_of("size", values)
    call = call_of(values)
    if picture is not None:
        call = replace(call, extra={**call.extra, "picture": picture.name})
    run_command(values, SIZE, replace(call, extra={"workers": num_cores(), **call.extra}), picture)


def estimate(values: OptionValues) -> None:
    """Predict one configuration: time, memory, cost.

    The configuration is --set NAME=VALUE, a plan, or your launch file (--from).
    """
    from planner.commands.estimate import ESTIMATE

    check_files(values)
    picture, call = picture_of("estimate", values), call_of(values)
    estimated = ESTIMATE.answer(replace(call, extra={**call.extra, "rewrites": True}))
    plan, evaluation = estimated.plan, estimated.evaluation
    if not evaluation.rejected_by:
        draw_plan(values, picture, plan, evaluation.candidates)
    save = partial(_save_change, values) if values["write"] else None
    show_result(values, ESTIMATE, estimated, after=save)


def _save_change(values: OptionValues, estimated: Estimated) -> None:
    """Write the best change into the user's files.

    Raises LaunchError if the change is not whole in the files.
    """
    from planner.errors import LaunchError

    change = estimated.launch
    if change is None or change.rewritten is None:
        return
    if not change.is_complete:
        path = change.question.imported.path
        raise LaunchError(f"{path}: nothing was written: the change is not whole there.")
    for edited_file in (change.rewritten, *change.rewritten.others):
        if edited_file.before != edited_file.after:
            _write_file(edited_file.path, edited_file, quiet=values["quiet"])


def explain(values: OptionValues) -> None:
    """Explain a plan: what bounds it. Or explain a word.

    Without a plan it explains the recommended one. With WORD it prints the meaning of a word.
    """
    if values["words"]:
        _explain_words(values)
        return
    check_files(values)
    run_command(values, command_of("explain"))


def _explain_words(values: OptionValues) -> None:
    """Print the meanings of words. Raises SearchSpaceError if a word is unknown, or for a plan."""
    from planner.errors import SearchSpaceError
    from planner.question.explain_words import explain_word
    from planner.show.terminal import make_console, print_blocks

    if any(is_set(values, name) for name in values if name not in ("context", "words", "quiet")):
        raise SearchSpaceError("Words are explained without a plan: leave out WORD or the options.")
    meanings = [meaning for word in values["words"] for meaning in explain_word(word)]
    print_blocks(make_console(), meanings_blocks(meanings))


def plain_command(name: str) -> Command:
    """Return a command that only writes and prints its answer."""

    def run(values: OptionValues) -> None:
        check_files(values)
        run_command(values, command_of(name))

    run.__name__, run.__doc__ = name, COMMANDS[name]
    return run


def launch(values: OptionValues) -> None:
    """Write the launch files of a plan.

    The plan is yours, or the recommended one. Without TARGET all tools are listed.
    """
    if values["target"] is None:
        from planner.errors import LaunchError
        from planner.show.presenters.launch_file import targets_blocks
        from planner.show.terminal import make_console, print_blocks

        if any(is_set(values, name) for name in values if name not in ("context", "quiet")):
            raise LaunchError(
                "Name the target first: planner launch TARGET; without options all show."
            )
        print_blocks(make_console(), targets_blocks())
        return
    from planner.commands.launch import LAUNCH

    _check_launch(values, values["target"])
    call = call_of(values)
    call = replace(call, extra={**call.extra, "is_compared": not values["quiet"]})
    launched = LAUNCH.answer(call)
    _save_launch(values, launched.launch)
    if not values["quiet"]:
        print_result(values, LAUNCH, launched)


def _check_launch(values: OptionValues, target: str) -> None:
    """Check target, wrapper and folder before any work.

    Raises LaunchError if target or wrapper is unknown, or there is no directory for the files.
    """
    from planner.errors import LaunchError
    from planner.launch import SCRIPT
    from planner.launch.targets import target_of
    from planner.launch.wrappers import wrapper_of

    target_of(target)
    wrapper_of(values["wrapper"] or SCRIPT)
    if values["launch_output"] is None:
        raise LaunchError("Give a directory for the files with --output.")


def _save_launch(values: OptionValues, written: WrittenLaunch) -> None:
    """Write launch files into the directory of ``--output``."""
    from planner.launch.write.write_launch import save_launch

    folder: Path = values["launch_output"]
    save_launch(folder, written)


def _write_file(path: Path, rewritten: RewriteResult, *, quiet: bool) -> None:
    """Write the change into the user's file; the original stays as ``NAME.orig``."""
    from planner.base.atomic_write import write_atomically
    from planner.errors import OutputError
    from planner.show.terminal import make_console

    names = [f"{path.name}.orig", *(f"{path.name}.orig{number}" for number in range(1, 100))]
    backup = next((path.with_name(n) for n in names if not os.path.exists(path.with_name(n))), None)
    if backup is None:
        raise OutputError(f"{path}: has 100 .orig files already: move them away.")
    mode = path.stat().st_mode
    for target, text in ((backup, rewritten.before), (path, rewritten.after)):
        with write_atomically(target) as file:
            file.write(text)
        target.chmod(mode & 0o7777)
    if not quiet:
        make_console(stderr=True).print(f"{path} is changed; {backup.name} has the original.")
