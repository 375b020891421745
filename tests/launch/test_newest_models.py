"""Models whose layers no argument of a launcher describes are refused in words."""

from __future__ import annotations

import pytest

from planner.errors import LaunchError
from planner.launch.expressions import ExpressionValue, attribute
from planner.launch.model_shape import find_model, shape_of
from planner.launch.option_table import OptionRole, OptionTable
from planner.launch.read.expression_rows import plan_notes
from planner.specs.catalogue import Catalogue, load_model


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro"])
def test_compressed_attention_is_of_checkpoints_alone(name: str) -> None:
    with pytest.raises(LaunchError, match="only a checkpoint can describe them"):
        shape_of(load_model(name))
    model = load_model(name)

    def value(attribute_name: str) -> ExpressionValue:
        of_model = attribute_name.startswith("model.")
        return attribute(model, attribute_name.removeprefix("model.")) if of_model else 1

    rows = OptionTable.load("megatron-run")
    notes = {note.value for note in plan_notes(rows, OptionRole.UNEXPRESSED, value)}
    assert {"sparse attention", "several residual streams"} <= notes
    assert "a norm of the embedding" not in notes


def test_they_are_not_in_the_way_of_shapes_that_are_looked_for() -> None:
    """One of 43 layers and this width is compared with all that has them, too."""
    shape = shape_of(load_model("llama-3.1-8b"))
    assert find_model(shape, Catalogue(), "a test") is not None
    assert find_model({**shape, "num_hidden_layers": 43}, Catalogue(), "a test") is None


def test_of_models_of_one_shape_that_which_ties_its_embeddings_as_said_is_meant():
    shape = {**shape_of(load_model("pythia-6.9b")), "vocab_size": None}

    untied, tied = (
        find_model({**shape, "tie_word_embeddings": is_tied}, Catalogue(), "a test", 2048)
        for is_tied in (False, True)
    )

    assert untied is not None
    assert untied.name == "Pythia 6.9B"
    assert tied is not None
    assert tied.tie_word_embeddings
