"""From a space file and the user's settings to a mesh."""

import pytest
from problems import problem
from rows import each

from planner.configurations.configuration_tables import NAMES
from planner.errors import SearchSpaceError
from planner.workloads.build_request import parse_settings


def choices(**request):
    (source,) = problem(**request).sources
    return {name: source.mesh.values(name).tolist() for name in NAMES}


@pytest.fixture
def space_file(tmp_path):
    def write(parameters):
        path = tmp_path / "mine.toml"
        head = 'name = "mine"\ndescription = "a test"\nframework = "megatron-lm"\n\n[parameters]\n'
        path.write_text(head + parameters)
        return str(path)

    return write


def test_settings_are_names_and_values():
    assert parse_settings(["zero_stage=0, 1", "micro-batch-size=2"]) == {
        "zero_stage": ["0", "1"],
        "micro_batch_size": ["2"],
    }
    assert parse_settings([]) == {}


@pytest.mark.parametrize("text", ["tensor_parallel", "=4", "tensor_parallel=", "recompute=a,,b"])
def test_faulty_settings_are_shown(text):
    with pytest.raises(SearchSpaceError, match="is not name=value") as error:
        parse_settings([text])
    assert repr(text) in str(error.value)


def test_a_setting_is_given_once():
    with pytest.raises(SearchSpaceError, match="gives zero_stage twice"):
        parse_settings(["zero_stage=0", "zero-stage=1"])


def test_settings_replace_the_values_of_the_space():
    space = choices()
    narrowed = choices(settings={"tensor_parallel": "2", "recompute": ["full"]})
    assert len(space["tensor_parallel"]) > 1
    assert narrowed["tensor_parallel"] == [2]
    assert narrowed["recompute"] == [choices(settings={"recompute": "FULL"})["recompute"][0]]
    assert narrowed["pipeline_parallel"] == space["pipeline_parallel"]


def test_settings_may_leave_the_space():
    assert choices(settings={"tensor_parallel": [16, 3, 16]})["tensor_parallel"] == [3, 16]
    wider = problem(settings={"context_parallel": [1, 2]})
    assert wider.num_rows == 2 * problem().num_rows


@each(
    ("settings", "message"),
    [
        ({"tensor_paralel": 2}, "Unknown parameter 'tensor_paralel'. Did you mean tensor_parallel"),
        ({"num_gpus": 8}, "give --gpus"),
        ({"recompute": "ful"}, "recompute is one of none, .*not 'ful'. Did you mean full"),
        ({"precision": "int3"}, "precision is one of .*bf16.*not 'int3'"),
        ({"zero_stage": 4}, "zero_stage is one of 0, 1, 2, 3, not 4"),
        ({"zero_stage": "one"}, "zero_stage is one of 0, 1, 2, 3, not 'one'"),
        ({"sequence_parallel": "maybe"}, "sequence_parallel is true or false, not 'maybe'"),
        ({"tensor_parallel": 0}, "whole number of at least 1, not 0"),
        ({"tensor_parallel": "-2"}, "whole number of at least 1, not '-2'"),
        ({"tensor_parallel": 2.5}, "whole number of at least 1, not 2.5"),
        ({"tensor_parallel": True}, "whole number of at least 1, not True"),
        ({"tensor_parallel": "nan"}, "whole number of at least 1, not 'nan'"),
        ({"tensor_parallel": "eight"}, "whole number of at least 1, not 'eight'"),
        ({"micro_batch_size": 10**12}, "out of range"),
        ({"micro_batch_size": "inf"}, "not 'inf'|out of range"),
        ({"micro_batch_size": []}, "no value for micro_batch_size"),
    ],
)
def test_unknown_parameters_and_values_are_refused(settings, message):
    with pytest.raises(SearchSpaceError, match=message):
        problem(settings=settings)


def test_a_faulty_space_is_named(space_file):
    space = space_file("tensor_paralel = [1, 2]\n")
    with pytest.raises(SearchSpaceError, match=r"Search space mine: Unknown.*tensor_parallel"):
        problem(space=space)


@pytest.mark.parametrize(
    ("text", "flag"), [("yes", True), ("On", True), (1, True), ("false", False), (0, False)]
)
def test_flags_have_several_words(text, flag):
    assert choices(settings={"sequence_parallel": text})["sequence_parallel"] == [flag]


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ("tensor_parallel = { powers_of_two_up_to = 20 }", [1, 2, 4, 8, 16]),
        ("tensor_parallel = { powers_of_two_up_to = 1 }", [1]),
        ('tensor_parallel = { divisors_of = "num_gpus" }', [1, 2, 3, 4, 6, 8, 12, 24]),
        ('tensor_parallel = { divisors_of = "num_gpus", up_to = 7 }', [1, 2, 3, 4, 6]),
        ('tensor_parallel = { divisors_of = "num_hidden_layers" }', [1, 2, 4, 8, 16, 32]),
        ("tensor_parallel = [8, 2]", [2, 8]),
        ("tensor_parallel = 4", [4]),
    ],
)
def test_choices_are_expanded(space_file, parameter, values):
    space = space_file(parameter + "\n")
    assert choices(space=space, num_gpus=24)["tensor_parallel"] == values


@pytest.mark.parametrize(("tokens", "values"), [(4096, [1]), (8192, [1, 2]), (65536, [1, 2, 4])])
def test_parts_of_a_sequence_keep_the_fewest_tokens(space_file, tokens, values):
    space = space_file("context_parallel = { powers_of_two_up_to = 4, fewest_tokens = 4096 }\n")
    question = {"model": "llama-3.1-8b", "sequence_length": tokens, "space": space}
    assert choices(**question)["context_parallel"] == values
    assert choices(**question, settings={"context_parallel": 8})["context_parallel"] == [8]


def test_multiples_of_the_batch(space_file):
    space = space_file(
        'global_batch_size = { multiples_of = "global_batch_size", factors = [0.5, 1, 2] }\n'
    )
    found = choices(space=space, global_batch_size=96)["global_batch_size"]
    assert found == [48, 96, 192]


def test_each_number_of_gpus_has_its_own_divisors(space_file):
    space = space_file('pipeline_parallel = { divisors_of = "num_gpus" }\n')
    found = [
        [source.mesh.values(name).tolist() for name in ("num_gpus", "pipeline_parallel")]
        for source in problem(space=space, num_gpus=(6, 4)).sources
    ]
    assert found == [[[4], [1, 2, 4]], [[6], [1, 2, 3, 6]]]


def test_parameters_that_nobody_mentions_have_one_value(space_file):
    found = choices(space=space_file("tensor_parallel = 2\n"), global_batch_size=64)
    assert {len(values) for values in found.values()} == {1}
    assert found["global_batch_size"] == [64]
    assert found["flash_attention"] == [True]


@pytest.mark.parametrize(
    "parameter",
    [
        "tensor_parallel = { powers_of_two_up_to = 0 }",
        'tensor_parallel = { divisors_of = "gpus" }',
        "tensor_paralel = [1]",
        "tensor_parallel = [0]",
        "tensor_parallel = 1.5",
        "tensor_parallel = [",
    ],
)
def test_faulty_spaces_are_refused(space_file, parameter):
    with pytest.raises(SearchSpaceError):
        problem(space=space_file(parameter + "\n"))


@pytest.mark.parametrize(
    ("gpus", "settings", "stage"),
    [
        (8, {}, 1),
        (1, {}, 0),
        (8, {"tensor_parallel": ["4"], "pipeline_parallel": ["2"]}, 0),
        (1, {"zero_stage": ["1"]}, 1),
    ],
)
def test_a_rank_alone_shards_nothing_unless_it_is_asked_to(gpus, settings, stage):
    request = {"model": "tinyllama-1.1b", "num_gpus": gpus, "space": "single"}
    assert choices(**request, settings=settings)["zero_stage"] == [stage]
