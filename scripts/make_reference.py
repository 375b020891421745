"""Make docs/reference/reference.md from the table of terms and the commands.

Run it after a change of either; a test fails while the file is not what it makes:

    python scripts/make_reference.py
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import planner
from planner.base import formatting
from planner.cli.app import app, command_line
from planner.cli.help import TITLES
from planner.commands.options import OPTIONS, option_name
from planner.question.terms import Term, glossary

FILE = Path(planner.__file__).parents[1] / "docs" / "reference" / "reference.md"

_WORKLOADS = {"train": "training", "inference": "static", "serve": "serving"}
_TYPES = {
    "count": "whole number",
    "counts": "whole number, or several",
    "number": "number",
    "1/s": "number",
    "share": "share up to 1",
    "1": "share",
    "flag": "true or false",
    "text": "text",
    "file": "a file",
    "price": "number, or GPU=number and more",
    "contract": "a word",
    "names": "name or several",
    "peak": "share, or a rate with a unit",
    "second": "time with a unit",
    "byte": "bytes with a unit",
    "usd": "USD",
    "watt": "power with a unit",
    "kg": "mass with a unit",
    "token": "tokens with a unit",
}
_TERM_SECTIONS = {
    "question": "Questions", "limit": "Limits", "sizing": "Sizing", "operator": "Operators",
}  # fmt: skip
_PLACEHOLDERS = {int: "N", float: "X", str: "NAME", Path: "FILE"}
_HEAD = """# Reference

Made by `python scripts/make_reference.py` from the table of terms
(`planner/question/terms.csv`) and the commands.

A name is the same everywhere: in `--set`, search spaces, columns, plans and `planner.Request`.
*Of* lists the workloads that know it: training (`--workload train`), static batches (`inference`),
serving (`serve`), reinforcement learning (`rl`).

Numbers may be written 8k (8,000), 2M, 1.4T, 8Ki (8,192) or 40%, also as text in Python. Times and
bytes have a unit (40ms, 6s, 20d, 8GiB); numbers in Python are in SI units. Several values are a
text with commas, in Python also a list, set, range or array."""
_PARAMETERS = """A configuration has a value of each: `--set NAME=VALUE[,VALUE]`, keys of a search
space, columns of results; a few have an option of their own. `--set` and `settings` in Python take
the *short* name, too. Without a default the specs set the value."""
_POOLS = """Of disaggregated plans, set like parameters. Prefill workers have the values of the
plain names where they have no other."""
_QUESTIONS = """What a user specifies in addition to parameters: options, fields of
`planner.Request`, answers of a plan."""
_SIZING = "Further options of `planner size`."
_OPERATORS = """Options of `planner operators` and `planner.operators`, one value or several, with
`--gpus` and `--precision`. A size of the operator without a default is required."""
_COMMANDS = """`-h` behind any of them shows its help, `planner search --workload serve -h` that of
one workload. `planner --install-completion` lets bash, zsh or fish complete commands, options,
specs, parameters and their values; `planner --show-completion` prints what it would install."""
_LIMITS = """Options of `planner search`; in Python `constraints`: numbers in SI units, or text."""
_OBJECTIVES = """Names for `--objective`, one to three; in Python `objectives`."""
_RESULTS = """Columns of results. A column's name ends with its unit where it has one and does not
name it already: `step_time_s`, `peak_memory_gib`, `time_to_train_days`. The *head* is that of the
printed table."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option or argument of a command as typer reads it."""

    name: str
    shown: str
    default: str
    words: str


def reference() -> str:
    """The text of the file."""
    terms = [*glossary().values()]
    parts = [
        _HEAD,
        _section("Parameters", _PARAMETERS, _parameters(_of_kind(terms, "parameter"))),
        _section("Derived from parameters", "", _plain(_of_kind(terms, "derived"))),
        _section("Prefill and decode workers", _POOLS, _pools(_of_kind(terms, "pool"))),
        _section("Questions", _QUESTIONS, ""),
        *_questions(_of_kind(terms, "question")),
        _section("Sizing", _SIZING, _sizes(_of_kind(terms, "sizing"))),
        _section("Operators", _OPERATORS, _sizes(_of_kind(terms, "operator"))),
        _section("Limits", _LIMITS, _limits(_of_kind(terms, "limit"))),
        _section("Objectives", _OBJECTIVES, _objectives(_of_kind(terms, "objective"))),
        _section("Results", _RESULTS, _results(_of_kind(terms, "result"))),
        _section("Commands", _COMMANDS, ""),
        *(_command(path, callback) for path, callback in commands()),
    ]
    return "\n\n".join(parts) + "\n"


def commands() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command: its words and its function."""
    assert app.registered_callback is not None
    yield "planner", app.registered_callback.callback  # type: ignore[misc]
    for name, named in command_line().commands.items():
        members = getattr(named.source, "registered_commands", None)
        if members is None:
            yield f"planner {name}", named.source
        for one in members or ():
            yield f"planner {name} {one.name}", one.callback


def options(callback: Callable[..., Any]) -> list[Option]:
    """The options and arguments of a command, in order."""
    places = inspect.signature(callback, eval_str=True).parameters.values()
    return [_option(place) for place in places if hasattr(place.annotation, "__metadata__")]


def _option(place: inspect.Parameter) -> Option:
    (info,) = place.annotation.__metadata__
    kind = _bare(place.annotation.__origin__)
    is_argument = type(info).__name__ == "ArgumentInfo"
    # Inside of Annotated, typer takes the first of the names for a default.
    names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    names = names or ["--" + place.name.replace("_", "-")]
    value = info.metavar or _PLACEHOLDERS.get(kind, "")
    if inspect.isclass(kind) and issubclass(kind, StrEnum):
        value = "|".join(kind)
    has_default = not any(place.default is none for none in (None, False, inspect.Parameter.empty))
    return Option(
        name=place.name,
        shown=place.name.upper() if is_argument else f"{', '.join(names)} {value}".strip(),
        default=f"{place.default}" if has_default else "",
        words=info.help,
    )


def _bare(kind: Any) -> Any:
    """The type of a value that may be missing, or of one of several."""
    for part in getattr(kind, "__args__", ()):
        if part is not type(None):
            return part
    return kind


def _of_kind(terms: Iterable[Term], kind: str) -> list[Term]:
    return [term for term in terms if kind in term.kind]


def _section(title: str, words: str, table: str) -> str:
    return "\n\n".join(filter(None, (f"## {title}", words, table)))


def _parameters(terms: Iterable[Term]) -> str:
    rows = [
        (_name(term), term.short, _of(term), _values(term), _code(term.default), term.description)
        for term in terms
    ]
    return _table(("name", "short", "of", "values", "default", "meaning"), rows)


def _plain(terms: Iterable[Term]) -> str:
    rows = [(_code(term.term), term.short, _of(term), term.description) for term in terms]
    return _table(("name", "short", "of", "meaning"), rows)


def _pools(terms: Iterable[Term]) -> str:
    rows = [(_code(term.term), term.short, _values(term), term.description) for term in terms]
    return _table(("name", "short", "values", "meaning"), rows)


def _questions(terms: Sequence[Term]) -> Iterator[str]:
    """A table for each group of the help."""
    for group, title in TITLES.items():
        rows = [
            (
                _code(term.term),
                _code(", ".join(term.options)),
                _of(term),
                _values(term),
                _code(term.default),
                term.description,
            )
            for term in terms
            if term.group == group
        ]
        if rows:
            head = ("name", "option", "of", "value", "default", "meaning")
            yield f"### {title}\n\n{_table(head, rows)}"


def _sizes(terms: Iterable[Term]) -> str:
    rows = [
        (
            _code(term.term),
            _code(", ".join(term.options)),
            _values(term),
            _code(term.default),
            term.description,
        )
        for term in terms
    ]
    return _table(("name", "option", "value", "default", "meaning"), rows)


def _limits(terms: Iterable[Term]) -> str:
    rows = [
        (
            _code(term.term),
            _code(term.option_name),
            _of(term),
            f"at {'most' if term.sign > 0 else 'least'}, {_values(term)}",
            formatting.format_limit(float(term.default), term.type) if term.default else "",
            term.description,
        )
        for term in terms
    ]
    return _table(("name", "option", "of", "bound", "assumed in a search", "meaning"), rows)


def _objectives(terms: Iterable[Term]) -> str:
    rows = [(_code(term.term), _of(term), term.better, term.description) for term in terms]
    return _table(("name", "of", "better", "meaning"), rows)


def _results(terms: Iterable[Term]) -> str:
    rows = [
        (
            _code(term.term),
            "" if term.unit == "1" else term.unit,
            term.header,
            _of(term) if term.of else "",
            term.description,
        )
        for term in terms
    ]
    return _table(("name", "unit", "head", "of", "meaning"), rows)


def _command(path: str, callback: Callable[..., Any]) -> str:
    found = options(callback)
    asked = [one for one in found if _is_of_a_term(one)]
    own = [one for one in found if one not in asked]
    words = " ".join((inspect.getdoc(callback) or "").split())
    rows = [(_code(one.shown), _code(one.default), one.words) for one in own]
    parts = [f"### {path}", words, _table(("option", "default", "meaning"), rows)]
    if asked:
        parts.append(_term_options(path.split()[1]))
    return "\n\n".join(parts)


def _term_options(command: str) -> str:
    """A sentence on the options of a command that sections above explain."""
    options = OPTIONS[command]
    links = [
        f"[{title}](#{title.lower()})" for title in map(_TERM_SECTIONS.__getitem__, options.kinds)
    ]
    without = "".join(f", without {_code(option_name(name))}" for name in options.without)
    return f"Further options: {' and '.join(links)}{without}."


def _is_of_a_term(option: Option) -> bool:
    """Whether an option is that of a question or limit, which a section above explains."""
    term = glossary().get(option.name)
    return term is not None and term.description[1:] in option.words


def _name(term: Term) -> str:
    return _code(term.term) + (f" ({_code(term.option_name)})" if term.option else "")


def _of(term: Term) -> str:
    return "all" if set(term.of) in (set(), {*_WORKLOADS}) else ", ".join(map(_word, term.of))


def _word(workload: str) -> str:
    return _WORKLOADS.get(workload, workload)


def _values(term: Term) -> str:
    if term.codes is not None:
        if term.is_level:
            return ", ".join(_code(str(int(code))) for code in term.codes)
        words = term.codes.words()
        joined = ", or several joined by `+`" if len(words) < len(term.codes) else ""
        return ", ".join(map(_code, words)) + joined
    least = f" from {term.least}" if term.least else ""
    unit = (
        f", {term.unit}" if term.type in ("number", "count", "price") and term.unit != "1" else ""
    )
    return _TYPES[term.type] + least + unit


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
