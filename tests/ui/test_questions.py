"""Questions of queries and objects, their commands, and what they refuse."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest

from planner.commands.options import form_fields, option_name
from planner.errors import PlannerError, SearchSpaceError
from planner.question.request import Request
from planner.ui.form import field_groups
from planner.ui.question import COMMANDS, PLACED, Question
from planner.ui.request_limits import is_loopback
from planner.workloads.build_request import make_request
from planner.workloads.registry import workload_names


def _of(query, command="search"):
    return Question.of(command, parse_qsl(query, keep_blank_values=True))


def _request(question: Question) -> Request:
    return make_request(question.request_arguments(None), option_name=option_name)


def test_a_question_is_its_link_and_its_command():
    question = _of("settings=tp%3D4,8+mbs%3D1&num_gpus=64&model=llama-7b&gpu=&ideal=true")
    assert question.query == "model=llama-7b&num_gpus=64&ideal=true&settings=tp%3D4%2C8+mbs%3D1"
    assert _of(question.query) == question
    assert question.line == (
        "planner search --model llama-7b --gpus 64 --ideal --set tp=4,8 --set mbs=1"
    )
    request = _request(question)
    assert (request.model, request.num_gpus, request.ideal) == ("llama-7b", 64, True)
    assert request.settings == {"tensor_parallel": [4, 8], "micro_batch_size": 1}


def test_a_flag_that_is_off_is_said_so():
    question = _of("model=llama-7b&num_gpus=8&double_quantization=false&adapter=qlora")
    assert "--no-double-quantization" in question.arguments
    assert _request(question).double_quantization is False


def test_limits_are_limits_and_serving_says_its_workload():
    question = _of("workload=serve&model=llama-3.1-8b&num_gpus=2&time_to_first_token=500ms")
    assert _request(question).constraints == {"time_to_first_token": 0.5}
    assert question.arguments[:3] == ["search", "--workload", "serve"]
    assert question.query.startswith("workload=serve&")


def test_an_object_asks_what_a_query_asks():
    table = {
        "model": "llama-7b",
        "num_gpus": [8, 16],
        "settings": {"tp": [1, 2], "sequence_parallel": True},
        "constraints": {"time_to_train": "300d"},
        "objectives": ["throughput", "cost"],
        "gpu": None,
    }
    assert Question.of_object("search", table) == _of(
        "model=llama-7b&num_gpus=8,16&settings=tp=1,2 sequence_parallel=true&time_to_train=300d"
        "&objectives=throughput,cost"
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("model=llama-7b&modle=x", "has no 'modle'. Did you mean model"),
        ("model=a&model=b", "model is given twice"),
        ("workload=dream&model=a", "dream"),
        ("model=llama-7b&input_tokens=4", "has no 'input_tokens'"),
        ("model=/etc/passwd", "is a path"),
        ("model=meta-llama/../etc", "is a path"),
        ("model=a/b/c", "is a path"),
        ("gpu=a/b", "is a path"),
        ("model=mine.toml", "is a path"),
        ("gpu=..%5Cx&model=a", "is a path"),
        ("cluster=x.json&model=a", "is a path"),
        ("load=list.csv&model=a", "has no 'load'"),
        ("specs=/&model=a", "has no 'specs'"),
    ],
)
def test_what_a_query_may_not_ask(query, words):
    with pytest.raises(SearchSpaceError, match=words.replace("\\", ".")):
        _of(query)


@pytest.mark.parametrize("network", ["100 Gbit/s per GPU", "10GbE/node", "8x NDR per node"])
def test_a_rate_is_no_path(network):
    assert _of(f"model=llama-7b&num_gpus=16&network={network}").fields["network"] == network


@pytest.mark.parametrize("table", [[1], "x", {"model": {"a": object}}, {"constraints": 3}])
def test_what_is_no_question(table):
    with pytest.raises(PlannerError):
        Question.of_object("search", table).request(None)


def test_settings_that_are_none_are_told():
    with pytest.raises(SearchSpaceError, match="is not name=value"):
        _request(_of("model=llama-7b&num_gpus=8&settings=tp"))


def test_a_draft_keeps_what_a_form_knows():
    draft = Question.draft("search", [("model", "a/b"), ("nonsense", "1"), ("workload", "serve")])
    assert draft.fields == {"model": "a/b"}
    assert draft.workload == "serve"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("workload", workload_names())
def test_every_field_is_in_the_form_once_with_the_option_of_the_command(command, workload):
    from planner.cli.app import command_line

    question = Question(command=command, workload=workload, fields={"model": "x"})
    fields = [field for group in field_groups(question) for field in group.fields]
    assert sorted(field.name for field in fields) == sorted(form_fields(command, workload))
    built = command_line().commands[command].built
    built = built.commands["run"] if command == "sweep" else built
    options = {o for p in built.params for o in p.opts}
    placed = {option_name(name) for name in PLACED}
    assert {option_name(name) for name in form_fields(command, workload)} <= options | placed
    assert all(field.title for field in fields)


def test_which_addresses_others_reach():
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("[::1]")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")
