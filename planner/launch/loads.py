"""Programs that send requests, or measure an engine: how long, how many, how many at once.

Options and defaults of ``launchers/loads.csv`` are those of vllm/benchmarks (vLLM 0.11, 0.33),
python/sglang/bench_serving.py and its like (SGLang 0.4 to 0.5), tensorrt_llm/bench (TensorRT-LLM
1.0), genai-perf, llama.cpp's tools/llama-bench, and SemiAnalysisAI's bench_serving. A column ``of``
names the data set that an option is of. SGLang draws lengths evenly from ``--random-range-ratio``
of the longest up to it, vLLM evenly around the one that is given: the mean of both is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise

from planner.documents.shell.text import Given, stated
from planner.launch.option_table import Accepted, AcceptedOption, shipped_rows
from planner.launch.understood import LENGTHS, ONGOING, Found

REQUESTS = "requests"
"""In place of a target, of what sends requests to a server."""
_AT_ONCE = ("at_once", "batch")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@cache
def _clients() -> Mapping[str, tuple[Mapping[str, str], ...]]:
    rows = shipped_rows("launchers/loads.csv")
    groups: dict[str, list[Mapping[str, str]]] = {}
    names: dict[str, str] = {}
    for row in rows:
        first, *others = row["programs"].split("|")
        groups.setdefault(first, []).append(row)
        names |= dict.fromkeys((first, *others), first)
    return {name: tuple(groups[first]) for name, first in names.items()}


def client_of(words: Sequence[str]) -> str:
    """The program of the table that a command starts; empty where it starts none.

    >>> client_of(["trtllm-bench", "--model", "m", "throughput"])
    'trtllm-bench throughput'
    """
    if not words:
        return ""
    first = words[1] if words[0] == "-m" and len(words) > 1 else words[0].replace("\\", "/")
    known = [name for name in _clients() if _is(name, first, words)]
    return max(known, key=len, default="")


def _is(name: str, first: str, words: Sequence[str]) -> bool:
    program, *rest = name.split()
    return (first == program or first.endswith(f"/{program}")) and {*rest} <= {*words[1:]}


@cache
def accepted_by(name: str) -> Accepted:
    """The options of a program that say something of its requests."""
    options: dict[str, AcceptedOption] = {}
    aliases: dict[str, str] = {}
    for row in _clients()[name]:
        option, *others = row["option"].split("|")
        options[option] = AcceptedOption(name=option)
        aliases |= dict.fromkeys(others, option)
    return Accepted(options, aliases)


def is_of_clients(option: str) -> bool:
    """Whether an option is of some program that sends requests, and of no engine."""
    return any(accepted_by(name).find(option) is not None for name in (*_clients(),))


def requests_of(name: str, found: Found) -> Found:
    """What a command of the program ``name`` says of its requests, by term.

    What text alone does not tell has no text.
    """
    given = found.options
    said: dict[str, Given] = {}
    data = next((row for row in _clients()[name] if row["says"] == "dataset"), None)
    kind = ""
    if data is not None:
        own = given.get(data["option"])
        kind = data["default"] if own is None else own.single or ""
    for row in _clients()[name]:
        option, says = row["option"].split("|")[0], row["says"]
        if says in ("", "dataset") or not kind.startswith(row["of"]):
            continue
        if option in given:
            text = next(iter(given[option].texts), "")
            number = _NUMBER.match(text or "")
            if number or text is None:
                # Where nothing is generated, or no prompt is there, one token stands for it.
                least = "1" if says in LENGTHS and number and float(number[0]) == 0 else None
                said[says] = replace(given[option], texts=(least or (number and number[0]),))
            else:
                said.pop(says, None)
        elif row["default"] and says not in said:
            said[says] = stated(option, row["default"], found.line)
    shortest = said.pop("shortest", None)
    ratio = 1.0 if shortest is None else float(shortest.single or 1)
    for length in LENGTHS:
        if length in said and (longest := said[length].single) and ratio < 1:
            said[length] = said[length].saying(str(round(float(longest) * (1 + ratio) / 2)))
    if "batch" in said:
        said.setdefault("num_requests", said["batch"])
    return Found(target=REQUESTS, name=found.name, text=found.text, line=found.line, options=said)


def said_alone(sent: Found) -> str:
    """What is said of a program that sends requests to a server that its file does not start."""
    words = [
        f"--{name.replace('_', '-')} {given.single}"
        for name, given in sent.options.items()
        if given.single and name not in _AT_ONCE
    ]
    return (
        f"{sent.name}: line {sent.line}: sends requests to a server that it does not start: give "
        f"the file that starts one, or a folder of both. Of the requests it says "
        f"{' '.join(words) or 'nothing'}."
    )


def served_of(found: Sequence[Found], beside: Sequence[Found] = ()) -> Iterator[Found]:
    """The servers among what a file starts, in order, with the requests that are sent to them.

    A program that measures an engine says them itself, and what prepares them stands before it; to
    a server they are sent later, or by a file ``beside`` it.
    """
    is_own = [
        one.target == REQUESTS and following.target != REQUESTS and one.line == following.line
        for one, following in pairwise((*found, Found(target=REQUESTS, name="", text="")))
    ]
    for at, one in enumerate(found):
        if one.target == REQUESTS:
            continue
        clients = [
            (other > at, client)
            for other, client in enumerate(found)
            if client.target == REQUESTS and not is_own[other]
        ]
        before = [client for is_later, client in clients if not is_later][::-1]
        after = [client for is_later, client in clients if is_later]
        own = found[at - 1 : at] if at and is_own[at - 1] else []
        others = [*before, *after] if own else [*after, *before] or [*beside]
        yield _with_requests(one, own, others)


def _with_requests(found: Found, own: Sequence[Found], others: Sequence[Found]) -> Found:
    whole = [one for one in (*own, *others) if {*LENGTHS} <= {*one.options}]
    said: dict[str, Given] = {}
    for one in (*own, *(whole or others)[:1]):
        said = {**one.options, **said}
    limit = next((said[name] for name in _AT_ONCE if name in said and said[name].single), None)
    options = {**found.options} if limit is None else {**found.options, ONGOING: limit}
    load = {name: given for name, given in said.items() if limit is None or name not in _AT_ONCE}
    return replace(found, options=options, load=load)
