"""What a launch file says of itself in its first lines, as comments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Any

from planner.base.text import chance as percent
from planner.base.text import count, limit, printable
from planner.base.units import DAY, GIB
from planner.launch.environment import fabric
from planner.launch.job import Job
from planner.launch.target import Argument, Draft, Process, Target, Variable
from planner.optimize.result_columns import fit_probability
from planner.question.terms import plain_values, terms_of
from planner.version import __version__

WRITTEN = "Written by planner"
"""How a line of each file begins that is written here."""

_WIDTH = 96
_MEMORY = "peak_memory"
_PREDICTED = {
    "train": (
        "step_time",
        "tokens_per_s",
        "model_flops_utilization",
        "peak_memory",
        "calendar_time",
        "cost",
    ),
    "inference": ("prefill_latency", "decode_latency", "output_tokens_per_s", "peak_memory"),
    "serve": (
        "time_to_first_token",
        "time_per_output_token",
        "requests_per_s",
        "output_tokens_per_s",
        "peak_memory",
    ),
}
_SUFFIXES = {"s": "_s", "d": "_days", "GiB": "_gib", "USD": "_usd"}
_SCALES = {"_gib": GIB, "_days": DAY}
GIVEN = frozenset(
    {"NODE_RANK", "NUM_NODES", "MASTER_ADDR", "MASTER_PORT", "PORT", "COPY", "HOST_ADDRESS"}
)
"""Variables that wrappers set themselves."""


def one_line(text: str) -> str:
    """A text that cannot end a comment."""
    return " ".join(printable(text).split())


def comment(lines: Iterable[str]) -> list[str]:
    """Lines of a comment of a shell or of YAML, folded; an empty one stays."""
    found = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip(" ")))
        folded = wrap(
            one_line(line),
            _WIDTH,
            initial_indent=indent,
            subsequent_indent=indent + "  " * bool(indent),
            break_long_words=False,
            break_on_hyphens=False,
        )
        found += [f"# {part}" for part in folded] or ["#"]
    return found


def heading(
    target: Target,
    job: Job,
    draft: Draft,
    processes: Sequence[Process],
    how: Sequence[str],
    also: Sequence[str] = (),
) -> list[str]:
    """Comment lines: the plan, what was predicted, what is not said here, what the user does.

    ``how`` says how the file is started, ``also`` what else it asks of the user.
    """
    lines = [
        f"{job.model.name} on {count(job.num_gpus)} x {job.gpu.name}, started by {target.title}.",
        f"{WRITTEN} {__version__} for {target.version}; plan.toml beside it is the plan.",
    ]
    lines += _part("Plan", [_settings(job)])
    lines += _part("Predicted, with the interval that holds 90 % of published runs", _numbers(job))
    lines += _part("Links assumed", fabric(job))
    lines += _part(f"{target.title} cannot express", map(str, draft.unexpressed))
    lines += _part("Left to you or to the framework", map(str, draft.left))
    notes = (*draft.notes, *(note for process in processes for note in process.notes))
    lines += _part("Notes", dict.fromkeys(notes))
    asked = [f"{one.name}: {one.meaning}{_default(one)}" for one in variables_of(processes)]
    lines += _part("What you set", [*asked, *also])
    lines += ["", *how] if how else []
    return comment(lines)


def variables_of(processes: Iterable[Process]) -> tuple[Variable, ...]:
    """What only the user knows, each once."""
    found: dict[str, Variable] = {}
    for process in processes:
        for argument in arguments_of(process):
            for word in argument.words:
                if isinstance(word, Variable) and not is_given(word.name):
                    found.setdefault(word.name, word)
    return tuple(found.values())


def arguments_of(process: Process) -> tuple[Argument, ...]:
    """All arguments of a process, its launcher's too."""
    return (*process.launcher_arguments, *process.arguments, *process.follower_arguments)


def is_given(name: str) -> bool:
    """Whether wrappers set a variable: places in the job and addresses of its processes."""
    stem, _, index = name.rpartition("_")
    return name in GIVEN or (index.isdecimal() and stem.endswith(("_URL", "_HOST")))


def _default(variable: Variable) -> str:
    return "" if variable.default is None else f" ({variable.default} where you do not)"


def _part(title: str, lines: Iterable[str]) -> list[str]:
    inside = [f"  {line}" for line in lines if line]
    return ["", f"{title}:", *inside] if inside else []


def _settings(job: Job) -> str:
    usual = plain_values(job.workload)
    said = (
        f"{name}={_word(value)}"
        for name, value in job.pinned.parameters.items()
        if value is not None and value != usual.get(name)
    )
    return " ".join(said)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _numbers(job: Job) -> list[str]:
    terms = terms_of(job.workload, "result")
    found = []
    most = float(job.gpu.allocatable_memory / GIB)
    for name in _PREDICTED.get(job.workload, ()):
        term = terms.get(name)
        if term is None:
            continue
        suffix = _SUFFIXES.get(term.unit, "")
        scale = _SCALES.get(suffix, 1.0)
        value, low, high = (job.row.get(f"{name}{end}{suffix}") for end in ("", "_low", "_high"))
        if value is None:
            continue
        words = f"{name}: {limit(float(value) * scale, term.type)}"
        if name == _MEMORY:
            words += f" of {limit(most * GIB, term.type)}"
        if low is not None and high is not None and not (name == _MEMORY and high > most):
            ends = (limit(float(end) * scale, term.type) for end in (low, high))
            words += f" ({' to '.join(ends)})"
        found.append(words)
    chance = fit_probability(job.row)
    if math.isfinite(chance):
        found.append(f"it fits with a probability of {percent(chance)}")
    return found
