"""Expressions in cells of option tables: what they compute, and what they refuse."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from rows import each

from planner.documents.shell.edits import implied_option
from planner.errors import LaunchError
from planner.launch import READ_ONLY_TOOLS, TARGETS
from planner.launch.expressions import Expression, attribute
from planner.launch.option_table import (
    EXPRESSION_ROLES,
    OptionAlias,
    OptionAliasTable,
    OptionRole,
    OptionRow,
    OptionTable,
    program_defaults,
    shipped_rows,
)
from planner.launch.read.expression_rows import (
    apply_read_rows,
    derive_options,
    plan_environment,
    plan_notes,
    user_rows,
    write_quantities,
)
from planner.launch.read.hf_trainer import derive_settings
from planner.launch.read.hf_trainer.option_sources import OptionSources
from planner.launch.read.hf_trainer.read_script import build_settings
from planner.launch.read.parsed_launch import (
    JobResources,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    require_split,
)
from planner.question.terms import terms_of

NAMES = {"model.num_experts": 8, "width": 8, "share": 0.5, "on": True, "word": "Full", "zero": 0}


def evaluate(text: str) -> object:
    return Expression.parse(text).evaluate(NAMES.get)


@each(
    "text, value",
    [
        ("width * 2 + 1", 17),
        ("width // 3 - -1", 3),
        ("parts('3,0, 1/2', '0')", 3),
        ("parts('0,1,')", 2),
        ("parts(absent)", None),
        ("width / 16", 0.5),
        ("width % 3", 2),
        ("absent or width", 8),
        ("zero or absent or 4", 4),
        ("width and share", 0.5),
        ("absent * 2", None),
        ("word * 2", None),
        ("width / zero", None),
        ("-absent", None),
        ("absent < 1", False),
        ("absent >= 1", False),
        ("word > 1", False),
        ("1 < width <= 8", True),
        ("absent == missing", True),
        ("word in ('Full', 'none')", True),
        ("word not in ('Full', 'none')", False),
        ("not on", False),
        ("'full' if share > 0.4 else 'none'", "full"),
        ("max(width, absent, 3)", 8),
        ("min(width, absent)", 8),
        ("max(absent)", None),
        ("ceil_div(width, 3)", 3),
        ("ceil_div(width, absent)", None),
        ("int(width * 0.7)", 5),
        ("lower(word)", "full"),
        ("last('a.b.C')", "C"),
        ("words('[a, b]')", "a b"),
        ("words(absent)", None),
        ("ends('a.b', 'b', 'c')", True),
        ("starts(absent, 'b')", False),
        ("contains('abc', 'x', 'b')", True),
        ("model.num_experts * 2", 16),
    ],
)
def test_an_expression_has_its_value(text: str, value: object) -> None:
    found = evaluate(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "a.b",
            "model._x",
            "model.x()",
            "[1]",
            "{}",
            "lambda: 1",
            "a[0]",
            "f'{a}'",
            "a ** 9",
            "a := 1",
            "*a",
            "a b",
        ),
        *("open('x')", "a.b('x')", "number(a)", "number('a', default=1)", "x for x in a", ""),
    ],
)
def test_other_python_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Expression.parse(text)


def table(*rows: tuple[str, str, str, str, str]) -> OptionTable:
    made = tuple(
        OptionRow(
            parameter=name, value=condition, role=OptionRole(role), option="", text=text, since="",
            note=note,
        )
        for name, condition, role, text, note in rows
    )  # fmt: skip
    return OptionTable((), expressions=made)


def read(rows: OptionTable, **options: str) -> tuple[SettingsBuilder, object]:
    named = {name: implied_option(name, text) for name, text in options.items()}
    command = ParsedCommand(target="nanotron", name="it", text="", options=named)
    settings, reading = SettingsBuilder(), OptionReader(command=command, meanings={})
    return settings, apply_read_rows(reading, rows, settings, {})


def test_the_first_row_with_a_value_counts_and_later_rows_use_it() -> None:
    rows = table(
        ("heads", "", "read", "number('heads')", ""),
        ("tensor_parallel", "flag('off')", "read", "9", ""),
        ("tensor_parallel", "", "read", "number('tp')", ""),
        ("tensor_parallel", "", "read", "1", "one of {heads:,}"),
        ("zero_stage", "tensor_parallel == 1", "read", "2", ""),
        ("num_hidden_layers", "", "size", "number('layers')", ""),
        ("hidden_size", "", "size", "heads * 128", ""),
        ("num_attention_heads", "", "size", "heads", ""),
        ("model", "not has('name')", "required", "", ""),
        ("", "", "noted", "heads > 2", "{heads} heads"),
        ("", "", "refused", "has('moe_*')", "no experts"),
    )
    settings, sizes = read(rows, heads="2000", layers="4")
    assert settings.values == {"tensor_parallel": 1, "zero_stage": 2}
    assert settings.defaults == {"tensor_parallel": "one of 2,000"}
    assert settings.missing == ["model"]
    assert settings.notes == ["2000 heads"]
    assert sizes == {
        "num_hidden_layers": 4, "hidden_size": 256_000, "num_attention_heads": 2000,
    }  # fmt: skip
    settings, sizes = read(rows, heads="2", tp="4", name="x")
    assert settings.values == {"tensor_parallel": 4}
    assert (settings.missing, settings.notes, sizes) == ([], [], None)
    with pytest.raises(LaunchError, match="it:1: no experts"):
        read(rows, moe_top="2")


def test_written_quantities_are_computed_from_the_plan() -> None:
    rows = table(
        ("num_prompts", "", "write", "prompts * steps", ""),
        ("limit", "num_prompts > 5", "write", "num_prompts - 1", ""),
        ("lora_rank", "", "write", "rank if adapted else missing", ""),
    )
    plan = {"prompts": 2, "steps": 3, "rank": 8}
    found = write_quantities(rows, plan.get)
    assert found == {"num_prompts": 6, "limit": 5, "lora_rank": None}


def test_a_row_refuses_a_plan() -> None:
    rows = table(
        ("samples", "", "write", "prompts * 2", ""),
        ("", "steps > 1", "impossible", "samples % 8", "{samples} answers: --set prompts=4"),
    )
    assert write_quantities(rows, {"prompts": 3, "steps": 1}.get) == {"samples": 6}
    with pytest.raises(LaunchError, match=r"^6 answers: --set prompts=4$"):
        write_quantities(rows, {"prompts": 3, "steps": 2}.get)


def test_notes_and_options_of_the_user_are_those_of_the_plan() -> None:
    rows = table(
        ("zero_stage", "zero < 1", "unexpressed", "zero", "not {share:g}"),
        ("model", "zero > 1", "unexpressed", "'x'", ""),
        ("data", "", "advice", "", "yours"),
        ("DATA", "zero < 1", "user", "width", "a path"),
        ("NAME", "zero > 1", "user", "", ""),
    )
    plan = {"zero": 0, "share": 0.5, "width": 8}.get
    (note,) = plan_notes(rows, OptionRole.UNEXPRESSED, plan)
    assert str(note) == "zero_stage = 0: not 0.5"
    assert [str(note) for note in plan_notes(rows, OptionRole.ADVICE, plan)] == ["data: yours"]
    assert [(row.parameter, text) for row, text in user_rows(rows, plan)] == [("DATA", "8")]
    assert write_quantities(rows, plan) == {}


def test_a_row_may_replace_what_earlier_rows_set() -> None:
    rows = table(
        ("recompute", "", "read", "'full'", "full by default"),
        ("recompute", "has('half')", "set", "'selective'", ""),
        ("recompute", "has('full')", "read", "'none'", ""),
    )
    assert read(rows, full="1")[0].defaults == {"recompute": "full by default"}
    settings, _ = read(rows, half="1", full="1")
    assert (settings.values, settings.defaults) == ({"recompute": "selective"}, {})


def test_an_option_of_an_expression_is_used() -> None:
    row = table(("a", "flag('on')", "read", "number('x', 'y') or text('z')", "")).expressions[0]
    assert row.read_options == {"on", "x", "y", "z"}


def test_all_texts_of_an_option_are_joined_in_lower_case() -> None:
    rows = table(
        ("recompute", "", "read", "joined('mode')", ""),
        ("precision", "contains(joined('made'), 'fp8')", "read", "'fp8'", ""),
        ("optimizer_state_precision", "joined('absent') == missing", "read", "'bf16'", ""),
    )
    settings, _ = read(rows, mode="None", made="A.FP8 b")
    assert settings.values == {
        "recompute": "none", "precision": "fp8", "optimizer_state_precision": "bf16",
    }  # fmt: skip


def test_an_option_is_on_unless_a_text_says_off() -> None:
    rows = table(
        ("recompute", "on('a', 'b')", "read", "'full'", ""),
        ("recompute", "", "read", "'none'", ""),
    )
    texts = ("true", "1", "False", "0", "none")
    assert [read(rows, b=text)[0].values["recompute"] for text in texts] == [
        *("full", "full", "none", "none", "none"),
    ]
    assert read(rows)[0].values["recompute"] == "none"


def test_a_fallback_stands_beside_the_value() -> None:
    rows = table(
        ("zero_stage", "", "read", "number('stage')", ""),
        ("zero_stage", "", "read", "0", "nothing sets it"),
        ("zero_stage", "not has('stage')", "fallback", "3", "unsharded it does not fit"),
    )
    settings, _ = read(rows)
    assert settings.values == {"zero_stage": 0}
    assert settings.fallbacks == {"zero_stage": (3, "unsharded it does not fit")}
    assert not read(rows, stage="2")[0].fallbacks


OF_TRAINER = ("trainer-setup", "trainer-run")
SOURCES = {"script": "transformers", "deepspeed": "deepspeed", "accelerate": "accelerate"}


def test_the_rows_of_the_trainer_use_names_that_something_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: set[str] = set()
    monkeypatch.setattr(
        derive_settings, "apply_read_rows",
        lambda reading, rows, settings, quantities: (
            given.update(quantities), apply_read_rows(reading, rows, settings, quantities)
        ),
    )  # fmt: skip
    build_settings(OptionSources(worlds=[JobResources()]), True)
    given |= {f"{source}_{name}" for source in SOURCES
              for name in OptionTable.load(SOURCES[source]).parameters}  # fmt: skip
    given |= {f"{kind}_{row.term}" for row in program_defaults("trl") for kind in ("trl", "why")}
    given |= {
        "hidden_size",
        "adapted_matrices",
        "adapted_experts",
        *terms_of("train", "parameter", "question"),
    }
    given |= {"launcher_gpus", "launcher_nodes"}
    for name in OF_TRAINER:
        rows = OptionTable.load(name).expressions
        given |= {row.parameter for row in rows}
        for row in rows:
            texts = filter(None, (row.value, row.text))
            assert set().union(*(Expression.parse(text).names for text in texts)) <= given, row
            if row.role in (OptionRole.READ, OptionRole.NOTED):
                assert {*re.findall(r"\{(\w+)", row.note)} <= given, row


WITHOUT_TEXT = (OptionRole.REQUIRED, OptionRole.ADVICE, OptionRole.USER, OptionRole.UNSET)


@each("name", sorted({*TARGETS, *READ_ONLY_TOOLS}))
def test_every_shipped_expression_is_valid(name: str) -> None:
    """Also of a step's table: each parses, and evaluates without any option or value."""
    for stem in (name, f"{name}-step"):
        try:
            rows = OptionTable.load(stem)
        except OSError:
            continue
        for row in rows.expressions:
            assert bool(row.option) is (row.role in (OptionRole.USER, OptionRole.ENVIRONMENT))
            assert bool(row.text) or row.role in WITHOUT_TEXT
            assert row.read_options or row.role
        written = {row["role"] for row in shipped_rows(f"options/{stem}.csv")}
        assert bool(rows.expressions) is bool(written & {*EXPRESSION_ROLES, "include"})


def test_a_degree_that_is_no_number_is_asked_for() -> None:
    rows = table(
        ("tensor_parallel", "", "read", "text('tp')", ""),
        ("context_parallel", "", "read", "text('cp')", ""),
        ("model", "unknown('name')", "required", "", ""),
    )
    settings, _ = read(rows, tp="fp8", cp="2", name="<MODEL>")
    assert settings.values == {"context_parallel": "2"}
    assert settings.missing == ["tensor_parallel", "model"]


@pytest.mark.parametrize(("text", "value"), [("nearest(14, 8)", 16), ("nearest(3, 8)", 8)])
def test_the_nearest_positive_multiple(text: str, value: int) -> None:
    assert Expression.parse(text).evaluate({}.get) == value
    assert Expression.parse("nearest(a, 8)").evaluate({}.get) is None


def test_a_degree_is_at_least_one() -> None:
    reading = OptionReader(command=ParsedCommand(target="verl", name="it", text=""), meanings={})
    require_split(reading, None, tensor_parallel=2)
    with pytest.raises(LaunchError, match="it:1: tensor_parallel is 0: a degree is at least 1"):
        require_split(reading, None, tensor_parallel=0)


def aliases(*rows: tuple[str, str, str, str, str, str]) -> OptionAliasTable:
    made = tuple(
        OptionAlias(role=role, option=option, text=text, into=into, word=word, term=term, note="so")
        for role, option, text, into, word, term in rows
    )
    return OptionAliasTable(made)


def test_a_text_is_translated_by_an_expression_of_it() -> None:
    rows = aliases(
        ("value", "activation", "", "--swiglu", "contains(lower(value), 'glu')", ""),
        ("value", "modules", "", "--modules", "words(value)", ""),
        ("value", "modules", "", "--never", "missing", ""),
    )
    assert [*rows.translate("activation", "fast-SwiGLU")] == [("--swiglu", "true")]
    assert [*rows.translate("activation", "gelu")] == []
    assert [*rows.translate("modules", "[a,b]")] == [("--modules", "a b")]
    assert [*rows.translate("modules", None)] == []


def test_options_follow_from_others_in_the_order_of_the_rows() -> None:
    rows = aliases(
        ("derive", "--old", "", "--new", "name('--old')", ""),
        ("derive", "", "has('--old')", "--flagged", "true", ""),
        ("derive", "", "number('--new') == 1", "--new", "false", ""),
        ("derive", "", "has('--absent')", "--never", "1", ""),
        ("derive", "--batch", "", "--steps", "ceil_div(number('--batch'), gpus)", "steps"),
    )
    options = {name: implied_option(name, text, 7) for name, text in (("--old", "3"),)}
    assert derive_options(options, rows, gpus=4) == {}
    assert {name: option.texts for name, option in options.items()} == {
        "--old": ("3",),
        "--new": ("3",),
        "--flagged": (),
    }
    assert (options["--new"].option, options["--new"].line) == ("--new", 7)

    options = {
        name: implied_option(name, text) for name, text in (("--old", "1"), ("--batch", "9"))
    }
    assert derive_options(options, rows, gpus=4) == {"steps": "so"}
    assert "--new" not in options
    assert options["--steps"].texts == ("3",)


@each(("release", "is_before"), [("", False), ("0.7.3", True), ("0.8.0", False), ("0.10.1", False)])
def test_a_release_is_before_another_only_where_one_is_named(release: str, is_before: bool) -> None:
    command = ParsedCommand(target="vllm", name="it", text="", release=release)
    settings, reading = SettingsBuilder(), OptionReader(command=command, meanings={})
    rows = table(("zero_stage", "before('0.8')", "read", "1", ""))
    apply_read_rows(reading, rows, settings, {})
    assert ("zero_stage" in settings.values) is is_before
    assert Expression.parse("before('0.8')").options == frozenset()


LAYERS = SimpleNamespace(
    blocks=(
        SimpleNamespace(width=8, bias=True, kind="a"),
        SimpleNamespace(width=0, bias=False, kind="a"),
        None,
    )
)


@each(
    "text, value",
    [
        ("any(model.blocks.width > 8)", False),
        ("any(model.blocks.width == 0 and model.blocks.bias == false)", True),
        ("any(model.blocks.kind != 'a')", False),  # a missing part is not unequal
        ("sum(model.blocks.bias and model.blocks.width)", 8),
        ("only(model.blocks.width)", None),
        ("model.blocks.width > 0 and 1", (1, False, False)),
        ("any(model.blocks.width and absent)", False),
        ("concat(1, ' x ', 2)", "1 x 2"),
        ("concat(1, missing)", None),
        ("replace('a+b', '+', ' ')", "a b"),
        ("round(1.26, 1)", 1.3),
    ],
)
def test_lists_of_a_model(text: str, value: object) -> None:
    def lookup(name: str) -> Any:
        of_model = name.startswith("model.")
        return attribute(LAYERS, name.removeprefix("model.")) if of_model else None

    assert Expression.parse(text).evaluate(lookup) == value


def test_a_row_removes_a_value_with_its_default() -> None:
    rows = table(
        ("zero_stage", "", "read", "3", "as it shards"),
        ("zero_stage", "flag('dense')", "unset", "", ""),
    )
    assert read(rows)[0].values == {"zero_stage": 3}
    settings, _ = read(rows, dense="true")
    assert not settings.values
    assert not settings.defaults


def test_a_row_sets_the_environment_of_a_plan() -> None:
    row = OptionRow(
        parameter="", value="width > 4", role=OptionRole.ENVIRONMENT, option="CONNECTIONS",
        text="width // 8", since="", note="",
    )  # fmt: skip
    rows = OptionTable(rows=(), expressions=(row,))
    assert plan_environment(rows, {"width": 8}.get) == {"CONNECTIONS": "1"}
    assert not plan_environment(rows, {"width": 4}.get)
