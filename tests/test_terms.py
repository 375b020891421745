"""The table of terms is the only list of names, and everything made from it agrees with it."""

from __future__ import annotations

import ast
import dataclasses
import re
from functools import cache

import pytest
from syntax import nodes

from planner.configurations.configuration_tables import (
    PoolConfigurations,
    ServingConfigurations,
    TrainingConfigurations,
)
from planner.configurations.enumerate import AXES
from planner.configurations.rl import RlConfigurations
from planner.question import parse_values
from planner.question.request import Request
from planner.question.terms import (
    _rows,
    error_columns,
    glossary,
    groups,
    parameter_defaults,
    remedies_of,
    terms_about,
    terms_of,
)
from planner.workloads.serving.prefill_decode_pools import PrefillDecodeDeployments
from planner.workloads.serving.replicas import Replicas
from planner.workloads.serving.space import Batches
from planner.workloads.training.results import TrainingRuns

TABLES = {
    "train": TrainingConfigurations,
    "serve": ServingConfigurations,
    "rl": RlConfigurations,
}
KINDS = {"parameter", "derived", "pool", "question", "sizing", "operator"}
KINDS |= {"result", "limit", "objective", "answer"}
CANDIDATES = {
    "train": (TrainingRuns,),
    "inference": (Batches,),
    "serve": (Replicas, PrefillDecodeDeployments),
}
# Where a struct of arrays or a request declares the types of its fields.
TYPED = {"configurations/table.py", "request.py"}


@pytest.mark.parametrize("workload", TABLES)
def test_configurations_hold_the_parameters_of_their_workload(workload):
    assert set(TABLES[workload].names()) == set(terms_of(workload, "parameter"))


def test_a_request_has_a_field_for_every_question():
    fields = {field.name for field in dataclasses.fields(Request)}
    asked = {name for name, term in glossary().items() if "question" in term.kind}
    assert fields == asked | {
        "workload",
        "num_gpus",
        "settings",
        "precision",
        "objectives",
        "constraints",
        "specs",
    }


def test_every_parameter_of_training_has_one_axis():
    assert sorted(name for axis in AXES for name in axis) == sorted(terms_of("train", "parameter"))


@pytest.mark.parametrize("workload", CANDIDATES)
@pytest.mark.parametrize("kind", ["objective", "limit"])
def test_objectives_and_limits_are_attributes_of_candidates(workload, kind):
    known = terms_of(workload, kind)
    assert known
    for name, term in known.items():
        assert term.better in ("low", "high")
        assert all(hasattr(candidates, name) for candidates in CANDIDATES[workload]), name


def test_pools_have_the_parameters_of_both_kinds_of_workers():
    own = set(PoolConfigurations.names()) - set(ServingConfigurations.names())
    assert own == set(terms_of("serve", "pool"))


@pytest.mark.parametrize("workload", TABLES)
def test_defaults_and_remedies_are_values_of_their_parameters(workload):
    from planner.configurations.enumerate import coded_values

    for name, value in parameter_defaults(workload).items():
        assert glossary()[name].decode(coded_values(name, [value])[0]) == value
    for name, values in remedies_of(workload).items():
        assert len(coded_values(name, values)) == len(values)


def test_rows_are_complete():
    for term in glossary().values():
        assert set(term.kind) <= KINDS
        assert term.kind
        assert term.type.partition(":")[0] in {"", *parse_values._READERS}


def test_every_option_is_unique():
    names = [
        option
        for term in glossary().values()
        if {"question", "limit", "sizing", "operator"} & set(term.kind)
        for option in term.options
    ]
    assert len(names) == len(set(names))


def test_every_option_has_a_group():
    for term in glossary().values():
        has_option = {"question", "limit", "sizing", "operator"} & {*term.kind} or (
            "parameter" in term.kind and term.option
        )
        assert bool(term.group) == bool(has_option), term.term
        assert term.group in ("", "question", "hardware", "limits", "money", "search")


# They say each parameter in the words of one tool.
TRANSLATED = ("launch/targets/", "launch/read/hf_trainer/")


@cache
def words_of_literals():
    """The words of each literal of three or more, by file and line, and whether it is a text.

    Also the keywords of a ``dict`` and the words of a string.
    """
    found = []
    for path, of_module in nodes().items():
        name = path.removeprefix("planner/")
        for node in of_module:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                words = {item.value for item in node.elts if isinstance(item, ast.Constant)}
            elif isinstance(node, ast.Dict):
                words = {item.value for item in node.keys if isinstance(item, ast.Constant)}
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
                words = {item.arg for item in node.keywords}
            elif is_text:
                words = {*re.split(r"[\s,|]+", node.value.strip())}
            else:
                continue
            if len(words) > 2:
                found.append((name, node.lineno, words, is_text))
    return found


def literals(names):
    """Literals with three or more of some names, by file and line; texts of nothing but names."""
    for name, line, words, is_text in words_of_literals():
        if len(words & names) > 2 and (words <= names or not is_text):
            yield name, line, sorted(words & names)


@pytest.mark.slow
def test_no_module_lists_the_parameters_again():
    """Three or more parameters of training in one literal are a second list of them."""
    parameters = set(terms_of("train", "parameter")) - set(terms_of("serve", "parameter"))
    apart = ("validation/", "specs/", *TRANSLATED)
    found = {
        f"{name}:{line}": words
        for name, line, words in literals(parameters)
        if name not in TYPED and not name.startswith(apart)
    }
    assert found == {}


MOST_LITERALS = 10
"""They become fewer: a group or a column of the table of terms takes the place of one."""


def test_groups_are_of_a_workload_and_in_their_own_order():
    assert terms_about("collective") == ("tensor_parallel", "context_parallel", "expert_parallel")
    assert terms_about("collective", "serve") == terms_about("collective")
    assert terms_about("purchase") == ("gpu", "contract", "num_gpus")
    with pytest.raises(KeyError, match="colective"):
        terms_about("colective")


def test_every_group_is_described_and_has_terms_once_each():
    assert groups().keys() == {row["group"] for row in _rows("groups.csv") if row["description"]}
    for group, names in groups().items():
        assert names, group
        assert set(names) <= glossary().keys(), group
        assert len(set(names)) == len(names), group


def test_every_group_is_used():
    used = {
        node.args[0].value
        for of_module in nodes().values()
        for node in of_module
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        if getattr(node.func, "id", "") in ("terms_about", "columns_about")
    }
    assert groups().keys() == used


def test_a_result_follows_a_quantity_in_one_way():
    for quantity, (proportional, inverse) in error_columns().items():
        assert quantity in glossary()
        assert not {*proportional} & {*inverse}


def test_what_a_question_needs_is_a_question_too():
    for term in glossary().values():
        others = filter(None, term.needs.split("|"))
        assert all("question" in glossary()[one].kind for one in others)


def test_literals_of_several_terms_become_no_more():
    assert len([*literals({*glossary()})]) <= MOST_LITERALS
