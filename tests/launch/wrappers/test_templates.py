"""Texts with holes, of which wrappers make files."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from planner.launch.target import fill_lines

TEXTS = files("planner").joinpath("launch/texts")


def test_lines_are_kept_where_a_value_is_something() -> None:
    text = ["%if nodes", "nodes {{nodes}}", "%if port", "port {{port}}", "%else", "none", "%end"]
    text += ["%else", "alone", "%end"]
    assert fill_lines(text, {"nodes": 2, "port": 8000}) == "nodes 2\nport 8000\n"
    assert fill_lines(text, {"nodes": 2, "port": 0}) == "nodes 2\nnone\n"
    assert fill_lines(text, {"nodes": 0, "port": 8000}) == "alone\n"


def test_blank_lines_around_nothing_are_one() -> None:
    text = ["first", "", "{{nothing}}", "", "last", ""]
    assert fill_lines(text, {"nothing": []}) == "first\n\nlast\n"


def test_braces_of_a_shell_are_no_holes() -> None:
    text = ['export {{name}}="${{{name}}:-{{usual}}}"', ': "${PORT:={{port}}}"', "(({{port}} + 1))"]
    filled = fill_lines(text, {"name": "GPUS", "usual": "1,2", "port": 80})
    assert filled == 'export GPUS="${GPUS:-1,2}"\n: "${PORT:=80}"\n((80 + 1))\n'


def test_what_is_never_ended_is_told() -> None:
    with pytest.raises(ValueError, match="%if x has no %end"):
        fill_lines(["%if x", "a"], {"x": 1})


def test_marks_of_the_texts_are_ended() -> None:
    for text in TEXTS.iterdir():
        marks = re.findall(r"^%(\w+)", text.read_text(encoding="utf-8"), re.MULTILINE)
        assert marks.count("end") == marks.count("if") + marks.count("each"), text.name
