"""The message when no configuration is feasible."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np

from planner.configurations.rules import unsupported
from planner.configurations.table import word
from planner.configurations.training import TrainingConfigurations
from planner.estimators.estimate import REJECTIONS
from planner.optimize.problem import Problem
from planner.optimize.result import NearestMiss, SearchResult
from planner.report import text
from planner.report.overview import describe
from planner.report.remedies import limit_texts, remedies
from planner.request import Request
from planner.terms import terms_of

_WIDTH = 80


def infeasible_message(request: Request, result: SearchResult) -> str:
    """Counts per rule, nearest misses, and what was found to help."""
    problem = result.problem
    misses = {miss.rejection: miss for miss in result.nearest_misses}
    counts = sorted(result.rejected_by.items(), key=lambda item: -item[1])
    width = max((len(text.count(number)) for _, number in counts), default=1)
    lines = [_headline(result)]
    for name, number in counts:
        sentence = _sentence(problem, name, misses.get(name))
        number_first = f"{text.count(number):>{width}}  "
        alone = result.configurations_evaluated == 1
        lines.append(wrapped(sentence, "  " + ("" if alone else number_first)))
    helpful = remedies(request, result)
    if helpful:
        lines.append(wrapped(f"Try {listed(helpful)}.", ""))
    return "\n".join(lines)


def layout(configuration: TrainingConfigurations) -> str:
    """The values of the first row that are not the plainest, as --set takes them."""
    words = []
    for name, term in terms_of("train", "parameter").items():
        given = term.shown(getattr(configuration, name).ravel()[0])
        if not term.option and given != term.plain:
            words.append(f"{name}={str(given).lower()}")
    return " ".join(words)


def _unsupported(problem: Problem, name: str) -> str:
    """The options of the only configuration that the framework does not support."""
    if name != "framework" or problem.mesh.num_rows > 1:
        return ""
    (configuration,) = problem.mesh.blocks()
    asked = unsupported(configuration, problem.setting.framework)
    given = {
        option: word(option, getattr(configuration, option).ravel()[0])
        for option, is_unsupported in asked.items()
        if np.any(is_unsupported)
    }
    return ": " + ", ".join(f"{option}={value}" for option, value in given.items())


def _headline(result: SearchResult) -> str:
    setting = result.problem.setting
    counts = " or ".join(text.count(n) for n in result.problem.mesh.values["num_gpus"])
    where = f"{setting.model.name} on {counts} x {setting.machine.gpu.name}"
    if result.configurations_evaluated > 1:
        return f"No configuration of {text.count(result.configurations_evaluated)} fits {where}."
    if result.nearest_misses:
        return f"The configuration does not fit {where}."
    return f"The configuration is impossible for {where}."


def _sentence(problem: Problem, name: str, miss: NearestMiss | None) -> str:
    if miss is None:
        return describe(problem, name) + _unsupported(problem, name)
    if not math.isfinite(miss.value):
        return f"{describe(problem, name)}: {name} is unknown, give --price"
    bound, value = limit_texts(miss, problem)
    if problem.mesh.num_rows == 1:
        return f"{describe(problem, name)}: {value} against {bound}"
    what = f"need more than {bound}" if name == REJECTIONS[-1] else f"miss {name} {bound}"
    plain = layout(miss.configuration)
    return f"{what} (nearest: {value}{', ' if plain else ''}{plain})"


def listed(options: Sequence[str]) -> str:
    """``a, b or c``."""
    if len(options) == 1:
        return options[0]
    return f"{', '.join(options[:-1])} or {options[-1]}"


def wrapped(sentence: str, indent: str) -> str:
    """A sentence in lines of 80 columns, words left whole."""
    return textwrap.fill(
        sentence,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
