"""Shell completions: names of specs, words of terms, parameters and their values.

It imports no numpy: a shell calls it at every press of the tab key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import typer

from planner.base.enums import ComputePrecision, Quantization
from planner.launch import TARGETS, WRAPPERS
from planner.question.parse_values import full_name
from planner.question.request import ALL, Request
from planner.question.terms import Term, terms_of
from planner.show.output_blocks import PICTURES
from planner.workloads.build_request import DRIVERS, SAMPLERS
from planner.workloads.registry import workload_names

Completions: TypeAlias = list[tuple[str, str]]
"""Completions with their descriptions."""

Completer: TypeAlias = Callable[[typer.Context, str], Completions]

KINDS = ("gpus", "clusters", "models", "spaces", "frameworks", "engines")
MODES = ("aggregated", "disaggregated", "attention-ffn")
OPERATORS = (
    "gemm", "grouped-gemm", "attention", "elementwise", "all-reduce", "custom-all-reduce",
    "all-gather", "reduce-scatter", "all-to-all", "send", "device-copy", "host-copy",
    "host-memory", "drive-copy",
)  # fmt: skip

_SHELL = "_PLANNER_COMPLETE"
_BASH = "complete_bash"
# The `name=` that bash removed from the completed word.
_PREFIX = "_PLANNER_COMPLETE_PREFIX"
_COUNTS = ("1", "2", "4", "8", "16", "32", "64")
_SHARES = ("0", "0.25", "0.5", "0.75", "1")
_WORDS: dict[str, Sequence[str]] = {
    "operators": OPERATORS,
    "mode": MODES,
    "driver": DRIVERS,
    "sampler": SAMPLERS,
    "wrapper": WRAPPERS,
    "target": TARGETS,
    "picture": [name for names in PICTURES.values() for name in names],
}


def mend_words() -> None:
    """Rejoin the words that bash split at ``=`` before it requests completions."""
    if os.environ.get(_SHELL) != _BASH:
        return
    words = os.environ.get("COMP_WORDS", "").split("\n")
    index = int(os.environ.get("COMP_CWORD") or 0)
    before, current = words[:index], words[index] if index < len(words) else ""
    if current == "=":
        before, current = [*before, "="], ""
    if len(before) > 1 and before[-1] == "=":
        before, name = before[:-2], before[-2]
        if name.startswith("-"):
            before = [*before, name]
        else:
            os.environ[_PREFIX] = f"{name}="
    joined = "\n".join(before).replace("\n=\n", "=").split("\n")
    os.environ["COMP_WORDS"] = "\n".join([*joined, current])
    os.environ["COMP_CWORD"] = str(len(joined))


def for_term(term: Term) -> Completer | None:
    """Return the function that completes the words of a term's option; None if it has none."""
    kinds = f"{term.term.rpartition('_')[2]}s"
    kind = kinds if kinds in KINDS else None
    if kind is not None:
        return _list_completer(
            lambda ctx: [*names(kind, ctx), *([ALL] if term.type == "names" else [])]
        )
    if term.choices:
        all_names = [ALL] if term.type == "names" else []
        return _list_completer(lambda _: [*term.choices, *all_names])
    return for_words(term.term)


def for_words(name: str) -> Completer | None:
    """The completer of an option that takes words of a fixed list; None if there is no list."""
    choices = _WORDS.get(name)
    return None if choices is None else _list_completer(lambda _: choices)


def workloads(ctx: typer.Context, incomplete: str) -> Completions:
    """Names of workloads."""
    return _matching(workload_names(), incomplete)


def objectives(ctx: typer.Context, incomplete: str) -> Completions:
    """Return the names and descriptions of objectives that complete the last word."""
    terms = terms_of(_workload(ctx), "objective")
    done, last = _split(incomplete)
    return [
        (done + name, term.description) for name, term in terms.items() if name.startswith(last)
    ]


def precisions(ctx: typer.Context, incomplete: str) -> Completions:
    """Number formats to train in, types of weights to serve with."""
    kind = ComputePrecision if _workload(ctx) == "train" else Quantization
    return _list_completer(lambda _: [*kind.words(), *kind.aliases(), ALL])(ctx, incomplete)


def kinds(ctx: typer.Context, incomplete: str) -> Completions:
    """Kinds of specs."""
    return _matching(KINDS, incomplete)


def sweeps(ctx: typer.Context, incomplete: str) -> Completions:
    """The shipped sweep plans."""
    return _matching(names("sweeps", ctx), incomplete)


def of_kind(ctx: typer.Context, incomplete: str) -> Completions:
    """Specs of the kind in the argument before."""
    kind = ctx.params.get("kind") or ""
    return _matching(names(kind if kind in KINDS else f"{kind}s", ctx), incomplete)


def profiles(ctx: typer.Context, incomplete: str) -> Completions:
    """Frameworks and engines."""
    return _matching([*names("frameworks", ctx), *names("engines", ctx)], incomplete)


def settings(ctx: typer.Context, incomplete: str) -> Completions:
    """Return completions of ``--set``: ``name=`` of each parameter, then its values."""
    parameters = dict(terms_of(_workload(ctx), "parameter", "pool"))
    del parameters["num_gpus"]
    prefix = os.environ.get(_PREFIX, "")
    name, equals, values = f"{prefix}{incomplete}".partition("=")
    if equals:
        return [
            (f"{name}={value}"[len(prefix) :], "")
            for value, _ in _matching(_values(parameters.get(full_name(name, parameters))), values)
        ]
    words = {**parameters, **{term.short: term for term in parameters.values() if term.short}}
    matching = {word: term for word, term in words.items() if word.startswith(name)}
    if len(matching) == 1:  # a shell would end the word behind the only name
        return [
            (f"{word}={value}", "") for word, term in matching.items() for value in _values(term)
        ]
    return [(f"{word}=", term.description) for word, term in matching.items()]


def names(kind: str, ctx: typer.Context) -> list[str]:
    """Return the names of all specs of a kind, including those of the --specs folder."""
    if kind not in (*KINDS, "sweeps"):
        return []
    from planner.specs.spec_paths import listing, spec_folders

    specs_folder = ctx.params.get("specs") or ctx.params.get("specs_folder")
    folders = spec_folders(kind, None if specs_folder is None else Path(specs_folder))
    return sorted({name for folder in folders for name in listing(folder, ".toml")})


def _workload(ctx: typer.Context) -> str:
    workload = ctx.params.get("workload")
    return workload if workload in workload_names() else Request.workload


def _list_completer(choices: Callable[[typer.Context], Iterable[str]]) -> Completer:
    """Return a completer of the last word of a comma-separated list."""

    def complete(ctx: typer.Context, incomplete: str) -> Completions:
        return _matching(choices(ctx), incomplete)

    return complete


def _matching(choices: Iterable[str], incomplete: str) -> Completions:
    """Return the words that complete the text after the last comma."""
    done, last = _split(incomplete)
    chosen = done.split(",")
    return [
        (done + choice, "")
        for choice in choices
        if choice.startswith(last) and choice not in chosen
    ]


def _split(incomplete: str) -> tuple[str, str]:
    head, comma, last = incomplete.rpartition(",")
    return head + comma, last


def _values(term: Term | None) -> Sequence[str]:
    """Return the completions of a term's value: its words, flags, or example numbers."""
    if term is None:
        return ()
    if term.codes is not None:
        return [str(term.decode(code)) for code in term.codes]
    if term.type == "flag":
        return ("true", "false")
    return _SHARES if term.type == "share" else _COUNTS
