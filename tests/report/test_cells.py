"""Cells against the writers of the standard library, and what those do not do."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from rows import each

from planner.show.presenters.row_tables import csv_cell, join_columns, json_cell, texts

COLUMNS = {
    "floats": np.array([0.1, 1e300, -0.0, 0.0, 5e-324, 1 / 3, 1e16, math.nan, math.inf, 0.1]),
    "few floats": np.repeat([0.5, -0.0, 0.0, 1 / 3], 100),
    "many floats": np.random.default_rng(0).random(1000),
    "one float": np.full(300, 1e-9),
    "none": np.empty(0),
    "ints": np.arange(300) % 7,
    "flags": np.array([True, False, True]),
    "list of floats": [0.25, math.nan, -0.0, 0.0],
    "list of ints": [1, 2, 1],
    "list of flags": [True, False],
    "words": ["full", 'a "b"', "a,b", "two\nlines", "über", ""],
    "unknown words": [None, "a", None],
    "unknown": [None, None],
    "unknown floats": [None, 0.0, -0.0, math.inf],
    "mixed": [1, True, 1.0, "1", None],
}


def as_lists(values):
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in listed]


@each("values", COLUMNS.values())
def test_csv_cells_are_those_of_the_standard_library(values):
    stream = io.StringIO()
    # A second column: the library quotes an empty cell that stands alone.
    csv.writer(stream, lineterminator="\n").writerows((v, "x") for v in as_lists(values))
    assert "".join(f"{text},x\n" for text in texts(values, csv_cell)) == stream.getvalue()


@each("values", COLUMNS.values())
def test_json_cells_are_those_of_the_standard_library(values):
    expected = [f'"a": {json.dumps(value)}' for value in as_lists(values)]
    assert texts(values, json_cell, prefix='"a": ') == expected


@pytest.mark.security
@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=A1,"'])
def test_a_text_is_no_formula(formula):
    (row,) = csv.reader([csv_cell(formula)])
    assert row == ["'" + formula.strip()]
    assert texts([formula], csv_cell) == [csv_cell(formula)]


def test_numbers_stay_numbers():
    assert [csv_cell(value) for value in (-1, -0.5, -1e-7, True)] == [
        "-1",
        "-0.5",
        "-1e-07",
        "True",
    ]


@pytest.mark.parametrize("number", [1, 3])
def test_rows_put_what_is_the_same_together_once(number):
    columns = {
        "same word": ["a,b"] * number,
        "unknown": [None] * number,
        "floats": np.arange(number) / 3,
        "one float": np.full(number, -0.0),
        "zeros": [0.0, -0.0, 0.0][:number],
        "ones": [1, True, 1][:number],
        "flags": [True] * number,
        "words": ["x", "y", "z"][:number],
        "last": np.broadcast_to(np.array("LLaMA 7B"), number),
    }
    for cell, before in ((csv_cell, ""), (json_cell, '"a": ')):
        cells = [[before + cell(value) for value in as_lists(v)] for v in columns.values()]
        expected = ["|".join(row) for row in zip(*cells, strict=True)]
        assert (
            join_columns([(values, before) for values in columns.values()], cell, "|") == expected
        )


@each("exponent", range(-320, 309, 7))
def test_floats_are_written_as_python_writes_them(exponent):
    values = np.random.default_rng(exponent + 400).random(300) * 10.0**exponent
    assert texts(values, csv_cell) == [*map(repr, values.tolist())]
