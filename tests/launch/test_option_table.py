"""A table of options is written by and read backwards."""

from __future__ import annotations

import pytest

from planner.launch.option_table import OptionRole, OptionRow, OptionTable, format_option_value


def row(
    parameter: str, value: str, role: str, option: str = "", text: str = "", **more: str
) -> OptionRow:
    return OptionRow(
        parameter=parameter, value=value, role=OptionRole(role), option=option, text=text,
        since="", note=more.get("note", ""),
    )  # fmt: skip


TABLE = OptionTable(
    (
        row("tensor_parallel", "", "is", "--tp", "{}"),
        row("tensor_parallel", "1", "omitted"),
        row("virtual_pipeline", ">1", "is", "--vp", "{}"),
        row("virtual_pipeline", "1", "omitted"),
        row("zero_stage", "1", "is", "--shard", "flag"),
        row("zero_stage", "3", "is", "--shard", "flag"),
        row("zero_stage", "3", "is", "--how", "all"),
        row("zero_stage", "3", "with", "--format", "sharded"),
        row("zero_stage", "0", "omitted"),
        row("recompute", "full", "is", "--recompute", "full"),
        row("recompute", "selective", "is", "--recompute", "selective"),
        row("recompute", "selective", "reads", "--recompute-activations", "flag"),
        row("recompute", "none", "omitted"),
        row("offload", "optimizer", "none", note="there is no host"),
        row("", "", "always", "--fast", "flag"),
        row("learning_rate", "", "left", note="the user's"),
        row("layout", "", "is", "--layout", "<{}>"),
    )
)


def written(**quantities: object) -> dict[str, str | None]:
    return {one.option: one.text for one in TABLE.write_options(quantities).options}


def read(**options: str | None) -> dict[str, str]:
    named = {f"--{name.replace('_', '-')}": text for name, text in options.items()}
    return {name: meaning.value for name, meaning in TABLE.read(named).items()}


def test_values_are_written_as_the_target_reads_them() -> None:
    found = written(tensor_parallel=8, virtual_pipeline=1, zero_stage=3, layout="a|b")
    assert found == {
        "--tp": "8", "--shard": None, "--how": "all", "--format": "sharded", "--fast": None,
        "--layout": "<a|b>",
    }  # fmt: skip


def test_a_row_above_one_is_not_of_one() -> None:
    assert "--vp" not in written(virtual_pipeline=1)
    assert written(virtual_pipeline=4)["--vp"] == "4"


def test_what_cannot_be_said_is_told_with_its_reason() -> None:
    settings = TABLE.write_options({"offload": "optimizer"})
    assert [str(one) for one in settings.unexpressed] == ["offload = optimizer: there is no host"]
    assert TABLE.write_options({"offload": "none"}).unexpressed == ()
    assert [str(one) for one in settings.left] == ["learning_rate: the user's"]


def test_options_are_read_backwards() -> None:
    found = read(tp="8", shard=None, how="all", recompute="full", layout="<x>")
    assert found == {
        "tensor_parallel": "8", "virtual_pipeline": "1", "zero_stage": "3", "recompute": "full",
        "layout": "x",
    }  # fmt: skip


def test_more_options_of_a_value_decide_over_fewer() -> None:
    assert read(shard=None)["zero_stage"] == "1"
    assert read(shard=None, how="all")["zero_stage"] == "3"


def test_other_ways_to_say_a_value_are_read() -> None:
    assert read(recompute_activations=None)["recompute"] == "selective"
    assert "--recompute-activations" not in written(recompute="selective")


def test_a_text_that_no_row_has_says_nothing() -> None:
    """Not what stands where no option is: the file says something, planner does not know what."""
    assert "recompute" not in read(recompute="sometimes")
    assert read()["recompute"] == "none"


def test_meanings_name_the_options_they_come_from() -> None:
    found = TABLE.read({"--shard": None, "--how": "all"})
    assert found["zero_stage"].options == ("--shard", "--how")
    assert found["tensor_parallel"].options == ()


@pytest.mark.parametrize(
    ("value", "word"), [(8, "8"), (8.0, "8"), (0.5, "0.5"), (True, "true"), ("bf16", "bf16")]
)
def test_words(value: object, word: str) -> None:
    assert format_option_value(value) == word


def test_a_table_has_the_rows_of_another_for_what_it_does_not_name() -> None:
    shared, own = OptionTable.load("training"), OptionTable.load("megatron-lm")
    of_bits, of_dispatcher = "norm_input_bits", "token_dispatcher"

    assert own.rows_of(of_bits, OptionRole.NONE) == shared.rows_of(of_bits, OptionRole.NONE) != []
    assert not own.can_express(of_bits, 8)
    assert own.can_express(of_bits, 0)
    # It names the dispatcher itself, so that none of the shared rows holds.
    assert own.rows_of(of_dispatcher, OptionRole.WITH)
    assert own.can_express(of_dispatcher, "flex")
    assert not shared.can_express(of_dispatcher, "flex")
