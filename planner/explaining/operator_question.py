"""What is asked about operators one by one, read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.explaining.operator_kinds import KINDS
from planner.question.inputs import chosen, read, read_all, several, whole
from planner.question.request import ALL
from planner.question.terms import glossary
from planner.workloads.place import every_count

Said = Callable[[str], str]

_PLACE = ("gpu", "cluster", "framework")


@record(kw_only=True)
class OperatorQuestion:
    """Which operators, of which sizes, on which GPUs; what is not given is None or not there.

    ``sizes`` are numbers in SI units by term, ``words`` those of parameters that choose kernels;
    each may be several, of which every combination is asked for.
    """

    kinds: Sequence[str]
    sizes: Mapping[str, Sequence[float]]
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gpus: Sequence[str] = ()
    cluster: str | None = None
    frameworks: Sequence[str] = ()


def read_question(operator: Any, given: Mapping[str, Any], said: Said = str) -> OperatorQuestion:
    """The question that texts or values ask; None stands for what is not given.

    Raises
    ------
    SearchSpaceError
        A value is not what its name takes, is missing, or is of no use.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    kinds = [chosen(word, "an operator", KINDS) for word in several(operator, "an operator")]
    sizes: dict[str, Sequence[float]] = {}
    words: dict[str, Sequence[str]] = {}
    for name in [name for name in asked if name not in _PLACE]:
        if not any(name in (*kind.sizes, *kind.words) for kind in KINDS.values()):
            raise SearchSpaceError(f"Operators have no {name}.")
        if name == "num_gpus":
            sizes[name] = _counts(asked[name], said(name))
        elif (codes := glossary()[name].codes) is not None:
            given = codes.usual() if asked[name] in (ALL, [ALL], (ALL,)) else asked[name]
            words[name] = read_all(glossary()[name], given, said(name))
        else:
            sizes[name] = _sizes(name, asked[name], said(name))
    gpus, frameworks = (
        read_all(glossary()[name], asked[name], said(name)) if name in asked else []
        for name in ("gpu", "framework")
    )
    cluster = None
    if "cluster" in asked:
        cluster = read(glossary()["cluster"], asked["cluster"], said("cluster"))
    if gpus == [ALL] and cluster is not None:
        raise SearchSpaceError(
            f"{said('gpu')} all compares GPUs on their own links: leave out {said('cluster')}."
        )
    question = OperatorQuestion(
        kinds=list(dict.fromkeys(kinds)),
        sizes=sizes,
        words=words,
        gpus=gpus,
        cluster=cluster,
        frameworks=frameworks,
    )
    _check(question, said)
    return question


def _counts(given: Any, said: str) -> list[float]:
    """Numbers of GPUs; ``all`` are powers of two, those of one left out."""
    if given in (ALL, [ALL], (ALL,)):
        return [float(count) for count in every_count(None)[1:]]
    return [float(whole(value, said, 1)) for value in several(given, said)]


def _sizes(name: str, given: Any, said: str) -> list[float]:
    values = [float(value) for value in read_all(glossary()[name], given, said)]
    if min(values) <= 0:
        raise SearchSpaceError(f"{said} is more than 0.")
    return values


def _check(question: OperatorQuestion, said: Said) -> None:
    """That every operator has its sizes, and every size an operator."""
    used = {name for kind in question.kinds for name in (*KINDS[kind].sizes, *KINDS[kind].words)}
    for name in (*question.sizes, *question.words):
        if name not in used:
            takers = [k for k, kind in KINDS.items() if name in (*kind.sizes, *kind.words)]
            raise SearchSpaceError(
                f"{said(name)} says nothing about {' and '.join(question.kinds)}: it is for "
                f"{', '.join(takers)}."
            )
    for kind in question.kinds:
        missing = [said(name) for name in KINDS[kind].required if name not in question.sizes]
        if missing:
            raise SearchSpaceError(f"{kind} needs {', '.join(missing)}.")
        if KINDS[kind].is_group and min(question.sizes.get("num_gpus", [2])) < 2:
            raise SearchSpaceError(f"{kind} is of two GPUs or more: {said('num_gpus')} is not 1.")
    if "eager" in question.words.get("attention_kernel", ()):
        raise SearchSpaceError(
            "eager attention is several operators: ask for gemm and elementwise instead."
        )
    pairs = (question.sizes.get(name, [1]) for name in ("heads", "key_value_heads"))
    heads, of_keys = pairs
    if max(of_keys) > min(heads):
        raise SearchSpaceError(
            f"{said('key_value_heads')} is at most {said('heads')}: {max(of_keys):g} is not."
        )
