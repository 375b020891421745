"""Cells against the writers of the standard library, and what those do not do."""

from __future__ import annotations

import csv
import io
import json
import math

import numpy as np
import pytest
from rows import each

from planner.show.output_blocks import BEST, RankingRow
from planner.show.presenters.row_tables import csv_cell, join_columns, json_cell, texts
from planner.show.presenters.workload_details import text_pairs
from planner.ui.pages.result_tables import ranking_chart

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


def test_templates_format_columns_and_leave_out_unknown_numbers() -> None:
    row = {"step_time_s": 90.0, "tokens_per_s": 1234.5, "cost_usd": math.nan, "run_days": 3.0}
    templates = {
        "step": "{step_time_s:time} at {tokens_per_s:count} tokens/s",
        "days": "{run_days:days}",
        "cost": "{cost_usd:usd} in {step_time_s:time}",
        "energy": "{energy_kwh:number}",
        "price": "unknown: give --price",
        "nothing": "",
    }
    assert text_pairs(row, templates) == {
        "step": "90.0 s at 1,234 tokens/s",
        "days": "3.00 days",
        "price": "unknown: give --price",
    }


def test_a_ranking_has_one_unit_and_begins_each_text_with_its_value() -> None:
    rows = [
        RankingRow(label="a", value=2e6, ends=(1e6, 4e6), mark=BEST),
        RankingRow(label="b", value=3e6, ends=(math.nan, 4e6), text="(+50 %)"),
    ]
    chart = ranking_chart("answers", "The cost", "cost_usd", rows)
    assert chart.unit == "cost, M USD"
    assert [row.value for row in chart.rows] == [2.0, 3.0]
    assert [row.text for row in chart.rows] == ["2.00 M USD (1.00 to 4.00)", "3.00 M USD (+50 %)"]
    assert chart.rows[0].ends == (1.0, 4.0)
