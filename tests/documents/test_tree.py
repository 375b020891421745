"""YAML and JSON with the place of every value, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import each

from planner.documents import yaml_tree as nodes
from planner.documents.yaml_tree import key_path, path_keys, read_tree, read_trees
from planner.documents.yaml_writer import yaml_scalar
from planner.errors import LaunchError

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT)
DATA = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
MAPPING = st.dictionaries(TEXT, DATA, min_size=1, max_size=4)


def lines(data: Any, indent: str, *, wide: bool) -> str:
    """Block style, written independently of the reader."""
    step = indent + ("    " if wide else "  ")
    if isinstance(data, dict) and data:
        return "".join(
            f"\n{indent}{yaml_scalar(key)}: {lines(value, step, wide=wide).lstrip(' ')}"
            for key, value in data.items()
        )
    if isinstance(data, list) and data:
        return "".join(f"\n{indent}- {lines(value, step, wide=wide)}" for value in data)
    return json.dumps(data) if isinstance(data, dict | list) else f"{yaml_scalar(data)}  # c"


def at(data: Any, path: str) -> Any:
    for key in path_keys(path):
        data = data[int(key)] if isinstance(data, list) else data[key]
    return data


@settings(max_examples=examples(500, 8))
@given(MAPPING, st.booleans(), st.booleans())
def test_yaml_reads_as_it_is_and_spans_hold_the_values(
    data: dict[str, Any], wide: bool, flow: bool
) -> None:
    text = yaml.safe_dump(data, allow_unicode=True, default_flow_style=flow)
    if not flow:
        text = lines(data, "", wide=wide).lstrip("\n") + "\n"
    tree = read_tree(text, "a.yaml")
    assert tree.data == yaml.safe_load(text) == data
    for path, leaf in tree.values.items():
        assert leaf.value == at(data, path)
        for span, one in zip(leaf.spans, leaf.texts, strict=True):
            assert span is not None
            read = yaml.load(text[span.start : span.end], Loader=yaml.BaseLoader)
            assert (read or "") == one


@settings(max_examples=examples(500, 8))
@given(MAPPING, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_json_reads_as_it_is_and_spans_hold_the_values(
    data: dict[str, Any], indent: Any, ascii_alone: bool
) -> None:
    text = json.dumps(data, indent=indent, ensure_ascii=ascii_alone)
    tree = read_tree(text, "a.json")
    assert tree.is_json
    assert tree.data == data
    for path, leaf in tree.values.items():
        assert leaf.value == at(data, path)
        if not isinstance(leaf.value, dict | list):
            (span,) = leaf.spans
            assert span is not None
            assert json.loads(text[span.start : span.end]) == leaf.value
            assert text[leaf.full_span.start : leaf.full_span.end].endswith(
                text[span.start : span.end]
            )


@settings(max_examples=examples(200, 20))
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_paths_hold_any_keys(keys: list[str]) -> None:
    assert path_keys(".".join(map(key_path, keys))) == tuple(keys)


def test_lists_of_plain_values_are_leaves_and_their_entries_too() -> None:
    tree = read_tree("a:\n  b: [1, x]\n  c:\n  - p: 1\n  d: []\n  e: {}\n", "a.yaml")
    assert {path: leaf.texts for path, leaf in tree.values.items()} == {
        "a.b": ("1", "x"), "a.b.0": ("1",), "a.b.1": ("x",), "a.c.0.p": ("1",),
        "a.d": (), "a.e": (),
    }  # fmt: skip
    assert tree.values["a.c.0.p"].line == 4


def test_aliases_and_merged_keys_are_followed() -> None:
    tree = read_tree("b: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}\nd: *b\ne: {<<: [*b, {z: 4}]}\n", "a")
    assert tree.data["c"] == {"y": 3, "x": 1}
    assert tree.data["d"] == {"x": 1, "y": 2}
    assert tree.data["e"] == {"x": 1, "y": 2, "z": 4}


def test_values_of_unknown_tags_are_not_known() -> None:
    leaf = read_tree("a: !ENV ${X}\nb: !vault\n  c: 1\n", "a.yaml").values["a"]
    assert leaf.texts == (None,)
    assert "!ENV" in leaf.unknown


def test_json_holds_what_a_script_fills_in() -> None:
    leaf = read_tree('{"zero_optimization": {"stage": $STAGE}}', "ds.json").values[
        "zero_optimization.stage"
    ]
    assert leaf.texts == (None,)
    assert "$STAGE" in leaf.unknown


def test_documents_are_told_apart() -> None:
    trees = read_trees("---\na: 1\n---\nb: 2\n---\n", "k.yaml")
    assert [tree.data for tree in trees] == [{"a": 1}, {"b": 2}]
    assert trees[1].values["b"].line == 4
    with pytest.raises(LaunchError, match="2 documents"):
        read_tree("a: 1\n---\nb: 2\n", "k.yaml")
    assert read_tree("# nothing\n", "k.yaml").values == {}


@pytest.mark.parametrize("begin", ["", "\ufeff", "# é😀\r\n\u2028\u0085\n"])
def test_places_are_those_of_characters(begin: str) -> None:
    text = begin + 'a: "é😀"\r\nb: 8 # x\r\n'
    leaf = read_tree(text, "a.yaml").values["b"]
    assert leaf.spans[0] is not None
    assert text[leaf.spans[0].start : leaf.spans[0].end] == "8"


MERGED = [(i, f"m{i - 1}" if i else "a") for i in range(12)]
HOSTILE = {
    "a bomb of aliases": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{k}: &{k} [{', '.join(['*' + chr(ord(k) - 1)] * 10)}]\n" for k in "bcdefghi"),
        "200,000 values",
    ),
    "a bomb of merges": (
        "a: &a {x: 1}\n"
        + "".join(f"m{i}: &m{i} {{<<: [{', '.join([f'*{m}'] * 9)}]}}\n" for i, m in MERGED),
        "200,000 values",
    ),
    "itself": ("a: &a [1, *a]\n", r":1: \*a is inside &a"),
    "nowhere": ("a: *b\n", r":1: \*b is used"),
    "deep": ("[" * 5000 + "]" * 5000, "nested more than 100"),
    "deep mapping": ("{a: " * 5000, "nested more than 100"),
    "objects": ("a: !!python/object/apply:os.system ['true']\n", "does not create it"),
    "tabs": ("a:\n\t- b\n", r":2: this is not YAML"),
    "unclosed": ('a: "b\n\nc: 1\n', "not YAML"),
    "binary": ("a: \x01\n", r":1: a character"),
    "nul": ("a: 1\nb: \0", r":2: there is a NUL"),
    "long": ("a: 1\n" * 838_861, "4,194,305 characters"),
    "list as key": ("? [a]\n: b\n", "not plain text"),
}


@each("name", HOSTILE)
def test_hostile_yaml_is_refused(name: str) -> None:
    text, message = HOSTILE[name]
    with pytest.raises(LaunchError, match=message):
        read_tree(text, "f.yaml")


def test_the_last_of_equal_keys_counts_as_in_pyyaml() -> None:
    text = "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n"
    tree = read_tree(text, "f.yaml")
    assert tree.data == yaml.safe_load(text)
    assert tree.root.repeated == [("c", 3, 5)]


def test_the_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MOST_NODES", 1000)
    read_tree("a:\n" + "- 1\n" * 490, "f.yaml")
    for text in ("a:\n" + "- 1\n" * 1001, json.dumps([1] * 1001)):
        with pytest.raises(LaunchError, match="1,000 values"):
            read_tree(text, "f.json" if text[0] == "[" else "f.yaml")


BAD_JSON = {
    '{"a": 1,\n "a": 2}': r"f.json:2: 'a' is a duplicate of line 1",
    '{"a": 1,\n}': "f.json:1: this is not JSON: a comma before }",
    '{"a": [1,\n2,\n]}': "f.json:2: this is not JSON: a comma before ]",
    '{"a": 1\n "b": 2}': 'f.json:2: this is not JSON: a comma or } is missing before \'"b"',
    "{\n'a': 1}": "f.json:2: this is not JSON: a key in double quotes is missing",
    '{"a": tru}': "'tru' is not a value",
    '{"a": 01}': "'01' is not a value",
    '{"a"\n: }': "f.json:2: this is not JSON: a value is missing",
    '{"a": "b\nc"}': "never ends on its line",
    '{"a": 1} x': "more after the end",
    '{"a": "\\q"}': "f.json:1: this is not JSON: invalid",
    '{"a": 1': "is missing at the end",
    "[" * 5000: "nested more than 100",
    "": "a value is missing",
}


@each("text", BAD_JSON)
def test_faults_of_json_are_told_with_their_line(text: str) -> None:
    message = BAD_JSON[text]
    with pytest.raises(LaunchError, match=re.escape(message)):
        read_tree(text, "f.json")


@pytest.mark.parametrize("text", ["a: 2020-13-45", f"a: {'9' * 5000}", "a: 0b", "a: 190:20:30"])
def test_odd_numbers_do_no_harm(text: str) -> None:
    assert read_tree(text, "a.yaml").values["a"].texts == (text[3:],)
