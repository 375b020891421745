"""Files after changes read back as wanted, everything else as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each

from planner.documents.shell import read_shell
from planner.documents.shell.edits import ParsedOption, edit_command, shell_word
from planner.documents.yaml_tree import key_path, read_tree
from planner.documents.yaml_writer import edit_document, yaml_scalar
from planner.launch.option_table import ParserOption, ParserOptions
from planner.launch.read.parse_arguments import read_arguments

NAMES = [f"--option-{letter}" for letter in "abcdef"]
FLAGS = ["--flag-a", "--flag-b"]
ACCEPTED = ParserOptions(
    {
        **{name: ParserOption(name=name) for name in NAMES},
        **{name: ParserOption(name=name, nargs="0") for name in FLAGS},
        "--many": ParserOption(name="--many", nargs="+"),
    },
    {},
)


def options(text: str) -> Mapping[str, ParsedOption]:
    """The options of the command ``train`` of a script."""
    (command,) = [one for one in read_shell(text).commands if one.words[0].text == "train"]
    return read_arguments(command.words[1:], ACCEPTED).options


def texts(text: str) -> dict[str, tuple[str | None, ...]]:
    return {name: one.texts for name, one in options(text).items()}


STYLES = {
    "one line": "train --option-a 1 --flag-a --option-b=2 --option-c 3\n",
    "continued lines": "train \\\n    --option-a 1 \\\n    --flag-a \\\n    --option-b=2 \\\n"
    "    --option-c 3\n\necho done\n",
    "array": "ARGS=(\n  --option-a 1  # one\n  --flag-a\n  --option-b=2\n  --option-c 3\n)\n"
    'train "${ARGS[@]}"\n',
    "string": 'ARGS="--option-a 1 --flag-a \\\n  --option-b=2 --option-c 3"\ntrain $ARGS\n',
    "string of lines": 'ARGS="\n  --option-a 1\n  --flag-a\n  --option-b=2\n  --option-c 3\n"\n'
    "train $ARGS\n",
    "variables": "A=1\nB=${1:-2}\nC='3'\ntrain --option-a $A --flag-a --option-b=$B \\\n"
    '  --option-c "${C}"\n',
    "variables in a string": 'A=1; B=2\nARGS="--option-a $A --flag-a --option-b=${B}"\n'
    'ARGS+=" --option-c 3"\nif x; then\n  train $ARGS\nfi\n',
    "a variable of two options": "A=1\ntrain --option-a $A --flag-a --option-b=2 --option-c 3 "
    "--option-d $A\n",
    "quotes": "train '--option-a' \"1\" --flag-a '--option-b=2' --option-c '3'\n",
}
VALUES = ["8", "a b", "it's", '"', "$(touch x)", "`id`", "*", "{1,2}", "~", "", "-1", "é", "a\nb"]


@each("style", STYLES)
@each("value", VALUES)
def test_an_option_is_set(style: str, value: str) -> None:
    text = STYLES[style]
    for name in ("--option-a", "--option-b", "--option-c"):
        done = edit_command(text, {name: (value,)}, options)
        if value == "8":
            assert not done.unwritten
        if done.unwritten:
            assert done.text == text
            assert "string" in style
        else:
            assert texts(done.text) == {**texts(text), name: (value,)}


@pytest.mark.parametrize("style", STYLES)
def test_an_option_is_removed(style: str) -> None:
    text = STYLES[style]
    for name in ("--option-a", "--flag-a", "--option-b", "--option-c"):
        done = edit_command(text, {name: None}, options)
        assert not done.unwritten
        assert texts(done.text) == {n: old for n, old in texts(text).items() if n != name}


@pytest.mark.parametrize("style", STYLES)
def test_an_option_is_added(style: str) -> None:
    text = STYLES[style]
    new: dict[str, tuple[str, ...] | None] = {"--option-e": ("9",), "--flag-b": ()}
    new["--many"] = ("1", "2")
    done = edit_command(text, new, options)
    assert not done.unwritten
    assert texts(done.text) == {**texts(text), **new}


def test_style_is_kept() -> None:
    text = STYLES["continued lines"]
    changes = {"--option-c": None, "--flag-b": (), "--option-a": ("4",)}
    assert edit_command(text, changes, options).text == (
        "train \\\n    --option-a 4 \\\n    --flag-a \\\n    --option-b=2 \\\n    --flag-b\n\n"
        "echo done\n"
    )
    array = edit_command(STYLES["array"], {"--option-a": None, "--option-d": ("5",)}, options)
    assert array.text == (
        "ARGS=(\n  --flag-a\n  --option-b=2\n  --option-c 3\n  --option-d 5\n)\n"
        'train "${ARGS[@]}"\n'
    )


def test_option_and_value_are_found_in_a_row() -> None:
    for begin in ("", "echo\n" * 200):
        text = f"O=--option-a\n{begin}train $O 8 --flag-a\n"
        whole = options(text)["--option-a"].full_span
        assert whole is not None
        assert text[whole.start : whole.end] == "$O 8"


def test_a_shared_variable_is_left_to_the_other_option() -> None:
    text = STYLES["a variable of two options"]
    done = edit_command(text, {"--option-a": ("8",)}, options)
    assert texts(done.text)["--option-a"] == ("8",)
    assert texts(done.text)["--option-d"] == ("1",)


def test_indents_stay_where_the_first_option_of_a_line_goes() -> None:
    text = "train \\\n    --option-a 1 --flag-a \\\n    --option-b 2 --option-c 3\n"
    done = edit_command(text, {"--option-a": None, "--option-b": None}, options)
    assert done.text == "train \\\n    --flag-a \\\n    --option-c 3\n"


def test_an_option_that_is_repeated_goes_everywhere() -> None:
    text = "train --option-a 1 --flag-a \\\n  --option-a 2 --option-a 3\n"
    assert edit_command(text, {"--option-a": None}, options).text == "train --flag-a\n"


def test_an_option_whose_value_is_not_known_is_changed() -> None:
    text = 'X=$Y-$Z\nARGS="--option-a $X --option-b ${B} --flag-a"\ntrain $ARGS\n'
    changes: dict[str, tuple[str, ...] | None] = {"--option-a": ("8",), "--option-b": None}
    done = edit_command(text, changes, options)
    assert done.text == 'X=$Y-$Z\nARGS="--option-a 8 --flag-a"\ntrain $ARGS\n'


def test_what_text_does_not_tell_is_left() -> None:
    text = "eval echo\ntrain $(cat options)\n"
    done = edit_command(text, {"--option-a": ("8",)}, options)
    assert (done.text, done.unwritten) == (text, {"--option-a": ("8",)})


WORDS = st.one_of(st.sampled_from(VALUES), st.text("ab1 '\"$\\`;&|#=\n*", max_size=5))


@settings(max_examples=examples(500, 15))
@given(
    st.dictionaries(st.sampled_from(NAMES), WORDS, min_size=1),
    st.dictionaries(st.sampled_from(NAMES), st.one_of(st.none(), WORDS)),
    st.sampled_from([" ", " \\\n  "]),
    st.booleans(),
)
def test_any_changes_of_any_command(
    old: dict[str, str], new: dict[str, str | None], between: str, joined: bool
) -> None:
    sign = "=" if joined else " "
    words = [f"{name}{sign}{shell_word(value)}" for name, value in old.items()]
    text = "train" + between + between.join(words) + "\necho end\n"
    changes = {name: None if value is None else (value,) for name, value in new.items()}
    done = edit_command(text, changes, options)
    wanted = {n: v for n, v in {**old, **new}.items() if v is not None}
    if not joined and any(v.startswith("-") and v != "-1" for v in wanted.values()):
        return
    written = {n: (v,) for n, v in wanted.items() if n not in done.unwritten}
    assert {n: v for n, v in texts(done.text).items() if n not in done.unwritten} == written
    # With no option left there is none beside which a new one could stand.
    assert (
        not done.unwritten or all(value is None for value in new.values()) or len(old) <= len(new)
    )


KEYS = st.sampled_from(["a", "b", "c", "d.e", "8", "no", "x y", ""])
SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 99), st.floats(0, 1), st.sampled_from(VALUES),
    st.sampled_from(["8", "true", "bf16", "auto"]),
)  # fmt: skip
DATA = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(SCALAR, min_size=1, max_size=3), st.lists(inner, max_size=2),
        st.dictionaries(KEYS, inner, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip
MAPPING = st.dictionaries(KEYS, DATA, min_size=1, max_size=4)
TEXTS = st.lists(st.sampled_from([*VALUES, "16", "true", "0.5"]), min_size=1, max_size=3)


def plain(text: str, name: str) -> dict[str, Any]:
    tree = read_tree(text, name)
    return {
        path: leaf.texts
        for path, leaf in tree.values.items()
        if tree.places[path].parent not in tree.values and leaf.value != []
    }


@settings(max_examples=examples(1000, 30))
@given(MAPPING, st.data(), st.sampled_from(["block", "flow", "json", "json lines"]))
def test_any_change_of_any_document(data: dict[str, Any], draw: Any, style: str) -> None:
    name = "a.json" if "json" in style else "a.yaml"
    if name == "a.json":
        text = json.dumps(data, indent=2 if "lines" in style else None)
    else:
        text = yaml.safe_dump(data, default_flow_style=style == "flow", sort_keys=False)
    old = plain(text, name)
    path = draw.draw(st.sampled_from([*old, "new", "new.x", "a.new", "a.b.new", *["a", "c"]]))
    texts = draw.draw(st.one_of(st.none(), TEXTS.map(tuple)))
    done = edit_document(text, name, {path: texts})
    new = plain(done.text, name)
    if done.unwritten:
        assert done.text == text
        is_leaf = path in old and old[path] and texts is not None and len(texts) == 1
        assert not (is_leaf and len(old[path]) == 1 and not path.split(".")[-1].isdigit())
        assert not (path in ("new", "new.x") and texts)
    else:
        rest = {p: v for p, v in old.items() if p != path}
        assert new == (rest if texts is None else {**rest, path: texts})


YAML = """\
# top
model:
  tp: 1  # one
  list:
    - 1
    - 2
env: {A: "8"}
entries:
  - name: x   # first
    value: "8"
  - name: y
empty:
text: |
  a
  b
last: 1
"""


def test_comments_and_style_of_yaml_stay() -> None:
    changes: dict[str, tuple[str, ...] | None] = {
        "model.tp": ("8",), "model.pp": ("2",), "env.A": ("16",), "env.B": ("x",),
        "entries.0.value": ("9",), "entries.0.name": None, "empty": ("q",), "last": None,
        "text": ("c",), "new.deep.key": ("true",),
    }  # fmt: skip
    done = edit_document(YAML, "a.yaml", changes)
    assert not done.unwritten
    assert (
        done.text
        == """\
# top
model:
  tp: 8  # one
  list:
    - 1
    - 2
  pp: 2
env: {A: "16", B: x}
entries:
  - value: "9"
  - name: y
empty: q
text: c
new:
  deep:
    key: true
"""
    )


@pytest.mark.parametrize("text", ["? ''\n: 1\n", "a: &x\n  b: 1\n", "a: &x {b: 1}\n", "- b: 1\n"])
def test_keys_are_added_beside_odd_ones(text: str) -> None:
    path = {"?": "new", "-": "0.new"}.get(text[0], "a.new")
    done = edit_document(text, "a.yaml", {path: ("8",)})
    assert not done.unwritten
    assert read_tree(done.text, "a.yaml").values[path].value == 8


def test_a_document_of_several_is_changed() -> None:
    done = edit_document("a: 1\n---\na: 2\nb:\n  c: 1\n", "k.yaml", {"b.c": None, "d": ("1",)}, 1)
    assert done.text == "a: 1\n---\na: 2\nd: 1\n"


def test_json_keeps_its_lines() -> None:
    text = '{\n  "a": {\n    "b": 1\n  },\n  "c": "auto"\n}\n'
    done = edit_document(text, "ds.json", {"a.d": ("2",), "c": None, "a.b": ("auto",)})
    assert done.text == '{\n  "a": {\n    "b": "auto",\n    "d": 2\n  }\n}\n'


def test_keys_of_any_kind_are_found() -> None:
    text = f"{yaml_scalar('nvidia.com/gpu')}: 8\n"
    done = edit_document(text, "k.yaml", {key_path("nvidia.com/gpu"): ("4",)})
    assert read_tree(done.text, "k.yaml").data == {"nvidia.com/gpu": 4}
