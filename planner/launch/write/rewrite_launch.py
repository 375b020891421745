"""Changes of a plan written into a user's launch file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path

from planner.base.records import record
from planner.documents.shell.edits import (
    Changes,
    EditResult,
    ParsedOption,
    edit_command,
    make_patch,
)
from planner.documents.yaml_writer import edit_document
from planner.launch.option_table import OptionRole, OptionTable, ParameterNote, Quantities
from planner.launch.read.import_launch import SPLITS, ImportedLaunch
from planner.launch.read.parsed_launch import OptionReader, ParsedCommand
from planner.launch.read.read_launch import is_document, parse_launches
from planner.launch.target import LaunchJob, LaunchTarget
from planner.launch.targets import target_of

_Texts = tuple[str, ...]
# Concurrency of a plan is the limit of sequences in options of engines.
_OPTION_PARAMETERS = {"concurrency": ("max_num_seqs", "server_seqs")}


@record(kw_only=True)
class RewriteResult:
    """A file after a change.

    ``changes`` are all changed options by name, with their texts, None if removed; ``unwritten``
    have no readable position in the file. ``unexpressed`` are parameters that the target cannot
    express, ``notes`` further steps for the user. ``others`` are changed files that this one
    reads; ``path`` is the path of each.
    """

    path: Path

    name: str
    before: str
    after: str
    unexpressed: tuple[ParameterNote, ...] = ()
    unwritten: Changes = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    others: tuple[RewriteResult, ...] = ()

    @property
    def diff(self) -> str:
        """A unified diff of all files; empty without changes."""
        patch = make_patch(self.before, self.after, self.name)
        return "".join((patch, *(other.diff for other in self.others)))


def rewrite_launch(
    imported: ImportedLaunch, before: LaunchJob, after: LaunchJob, changed: Collection[str]
) -> RewriteResult:
    """Change the file of a launch from the plan ``before`` to the plan ``after``.

    ``changed`` are the parameters that differ.
    """
    target, command = imported.target, imported.command
    changed = {
        *changed,
        *(written_name for name in changed for written_name in _OPTION_PARAMETERS.get(name, ())),
    }
    changes = option_changes(target, before, after, changed, command.options)
    for other in other_targets(imported):
        parameter_options = {row.option for row in other.table.rows if row.parameter in changed}
        other_changes = option_changes(other, before, after, changed, command.options)
        changes |= {
            name: texts for name, texts in other_changes.items() if name in parameter_options
        }
    changes |= _replaced_options(target.make_reader(command), target, changes, changed)
    command_changes, file_changes = target.honoured(command, changes)
    changes = dict(command_changes)
    if is_document(imported.path) and not any(name.startswith("-") for name in command.options):
        direct_changes = {
            name: texts for name, texts in changes.items() if not name.startswith("-")
        }
        lines = [launch.line for launch in parse_launches(imported.path, command.text)]
        number = lines.index(command.line) if command.line in lines else 0
        edited = edit_document(command.text, command.name, direct_changes, number)
    else:
        command_options = [row.option for row in target.table.rows if row.option.startswith("-")]
        # Other options are in a separate document.
        of_command = (
            command_options or target.table.options | OptionTable.load("transformers").options
        )
        direct_changes = {name: texts for name, texts in changes.items() if name in of_command}
        # A word of several parsers belongs to the first parser.
        parser_options = {
            name: target.options.find(f"--{name.lstrip('-')}") for name in direct_changes
        }
        spelled_changes = {
            option.name if (option := parser_options[name]) else name: direct_changes[name]
            for name in direct_changes
        }
        edited = _edit_command(imported, spelled_changes)
    sibling_changes = {name: texts for name, texts in changes.items() if name not in direct_changes}
    rewritten_files, unwritten = _rewrite_files(
        imported, edited.text, {**sibling_changes, **file_changes}
    )
    text = edited.text
    if command.text.count("\r\n") == command.text.count("\n") > 0:  # keeps Windows line ends
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    unexpressed = tuple(
        remark
        for remark in target.settings(after).unexpressed
        if remark.parameter in changed
        and not any(
            other.table.can_express(remark.parameter, remark.value)
            for other in other_targets(imported)
        )
    )
    return RewriteResult(
        path=imported.path,
        name=command.name,
        before=command.text,
        after=text,
        unexpressed=unexpressed,
        unwritten={**edited.unwritten, **unwritten},
        changes={**changes, **file_changes},
        notes=_replica_notes(before, after),
        others=rewritten_files,
    )


def can_express(imported: ImportedLaunch, parameter: str, value: str | int | float) -> bool:
    """True if the program of a launch, or of files that it reads, has an option for a value.

    Parallel degrees must be expressed by the target itself.
    """
    targets = [] if parameter in SPLITS else other_targets(imported)
    tables = [target.table for target in (imported.target, *targets)]
    return any(table.can_express(parameter, value) for table in tables)


def other_targets(imported: ImportedLaunch) -> list[LaunchTarget]:
    """The targets of files that a file reads, such as a configuration of DeepSpeed."""
    names = dict.fromkeys(file.target for file in imported.command.files.values() if file.target)
    return [target_of(name) for name in names if name != imported.target.name]


def _rewrite_files(
    imported: ImportedLaunch, text: str, changes: Changes
) -> tuple[tuple[RewriteResult, ...], Changes]:
    """Return changed files that the new ``text`` reads, and changes without an option there."""
    if not changes:
        return (), {}
    reparsed = _same_command(imported)(text)
    files = {} if reparsed is None else reparsed.files
    remaining, results = dict(changes), []
    for file in files.values():
        file_options = target_of(file.target).table.options if file.target else frozenset()
        direct_changes = {name: texts for name, texts in remaining.items() if name in file_options}
        if file.path is None:  # a here-document of the text, which may be changed already
            current = {
                name: file.options[name].texts for name in direct_changes if name in file.options
            }
            written = {name for name, texts in direct_changes.items() if current.get(name) == texts}
        else:
            edited = edit_document(file.text, file.name, direct_changes)
            written = direct_changes.keys() - edited.unwritten.keys()
            result = RewriteResult(
                path=file.path, name=file.name, before=file.text, after=edited.text
            )
            results += [result] if result.diff else []
        remaining = {name: texts for name, texts in remaining.items() if name not in written}
    return tuple(results), remaining


def _edit_command(imported: ImportedLaunch, changes: Changes) -> EditResult:
    """Return the file's text with a changed command, and changes that could not be written.

    New options follow the order of the option table.
    """
    text, find_command = imported.command.text, _same_command(imported)

    @cache
    def options(changed: str) -> Mapping[str, ParsedOption]:
        """Options of the command in a changed text; cached, as edits ask repeatedly."""
        command = find_command(changed)
        return {} if command is None else command.options

    unwritten: dict[str, tuple[str, ...] | None] = {}
    order = list(dict.fromkeys(row.option for row in imported.target.table.rows if row.option))
    for name, texts in changes.items():
        present = options(text)
        index = order.index(name) if name in order else 0
        after = next((option for option in reversed(order[:index]) if option in present), "")
        edited = edit_command(text, {name: texts}, options, after)
        text = edited.text
        unwritten |= edited.unwritten
    return EditResult(text=text, unwritten=unwritten)


def _replica_notes(before: LaunchJob, after: LaunchJob) -> tuple[str, ...]:
    """Return a note for the user if the number of replicas changes; else empty."""
    old, new = (job.row.get("replicas") for job in (before, after))
    if new is None or old == new:
        return ()
    gpus_per_replica = int(after.num_gpus / new)
    return (
        f"It is then {int(new)} replicas in place of {int(old or 1)}, on {gpus_per_replica} "
        "GPUs each.",
    )


def option_changes(
    target: LaunchTarget,
    before: LaunchJob,
    after: LaunchJob,
    changed: Collection[str],
    file_options: Collection[str],
) -> dict[str, _Texts | None]:
    """Return options that differ between two plans: their new texts, None if removed.

    ``file_options`` are those in the file: options that it leaves to the engine's defaults are
    not added.
    """
    jobs = (before, after)
    server_options = None if before.workload == "train" else file_options
    script = _differences(OptionTable.load("transformers"), map(target.script, jobs), changed)
    return script | _differences(
        target.table, map(target.table_input, jobs), changed, server_options
    )


def _differences(
    table: OptionTable,
    jobs: Iterable[Quantities],
    changed: Collection[str],
    file_options: Collection[str] | None = None,
) -> dict[str, _Texts | None]:
    """Return options that differ between two jobs: their new texts, None if removed.

    With ``file_options``, options that the file leaves to defaults are added only if ``changed``
    parameters set them, or the first job does not have them.
    """
    old, new = (_written_options(table, quantities, changed) for quantities in jobs)
    changed_options = {row.option for row in table.rows if row.parameter in changed}
    changes: dict[str, _Texts | None] = {
        option: texts
        for option, texts in new.items()
        if old.get(option) != texts
        and (
            file_options is None
            or option in file_options
            or option in changed_options
            or option not in old
        )
    }
    return changes | {option: None for option in old if option not in new}


def _written_options(
    table: OptionTable, quantities: Quantities, changed: Collection[str]
) -> dict[str, _Texts]:
    """Return the options that the table writes for these quantities, with their texts.

    Options that accompany others (role ``with``) count only if their parameter is ``changed``.
    """
    options: dict[str, _Texts] = {}
    for row in table.rows:
        value = quantities.get(row.parameter)
        if (
            value is None
            or not (
                row.role is OptionRole.IS
                or (row.role is OptionRole.WITH and row.parameter in changed)
            )
            or not row.matches(value)
        ):
            continue
        text = row.write(value)
        options[row.option] = () if text is None else (text,)
    return options


def _replaced_options(
    reading: OptionReader, target: LaunchTarget, changes: Changes, changed: Collection[str]
) -> dict[str, None]:
    """Return options of the file to remove: other options for a changed parameter are written."""
    used_options = (
        option
        for name in changed
        if name in reading.meanings
        for option in reading.meanings[name].options
    )
    written = {
        row.option for row in target.table.rows if row.role in (OptionRole.IS, OptionRole.WITH)
    }
    return {
        option: None for option in used_options if option not in changes and option not in written
    }


def _same_command(imported: ImportedLaunch) -> Callable[[str], ParsedCommand | None]:
    """Return a function from a changed text to the command with the same index in that text."""

    def started(text: str) -> list[ParsedCommand]:
        """Return the commands of a changed text that start the same target."""
        return [
            launch
            for launch in parse_launches(imported.path, text)
            if launch.target == imported.target.name
        ]

    lines = [launch.line for launch in started(imported.command.text)]
    number = lines.index(imported.command.line) if imported.command.line in lines else 0
    return lambda text: next(iter(started(text)[number:]), None)
