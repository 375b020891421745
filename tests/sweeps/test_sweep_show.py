"""`planner sweep show`: filters, orders, matrices, comparisons, and directories that are none."""

from __future__ import annotations

import csv
import json
import re
from itertools import product

import pytest
from made import COUNTS, GPUS, plan_of, row_of, rows_of, write

from planner.errors import SearchSpaceError
from planner.sweeps.columns import check_columns
from planner.sweeps.differences import compare
from planner.sweeps.query import parse_order, select_scenarios
from planner.sweeps.sweep_folder import Sweep, cell_value

SPOTS = [*product(GPUS, COUNTS)]
PLAN = plan_of(gpu=GPUS, num_gpus=COUNTS)
# By GPU what 8 GPUs cost and how long they take; b200 does not fit on 8.
COST = {"a100": 1e6, "b200": 3e6, "h100": 2e6}
TIME = {"a100": 40.0, "b200": 10.0, "h100": 20.0}


def made_rows(factor=1.0):
    return rows_of(
        {
            (gpu, n): None if (gpu, n) == ("b200", 8)
            else (COST[gpu] * (1 + n / 100) * factor, TIME[gpu] * 8 / n)
            for gpu, n in SPOTS
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("sweeps") / "made", PLAN, made_rows())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("gpu,cost", "--columns: there is no column 'cost'. Did you mean cost_usd?"),
        ("time", "no column 'time'. Did you mean time_to_train_days?"),
        ("gpuu", "no column 'gpuu'. Did you mean gpu"),
        ("time_to_first_token_s", "'time_to_first_token_s'. It is for workload serve."),
    ],
)
def test_a_wrong_column_is_an_error_with_similar_ones(folder, names, message):
    with pytest.raises(SearchSpaceError, match=re.escape(message)):
        check_columns(names, Sweep(folder).columns, "--columns")


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        (["gpu in ['a100', 'h100'] and num_gpus > 8"],
         lambda r: r["gpu"] != "b200" and r["num_gpus"] > 8),
        (["gpu == 'a100' or num_gpus == 32"], lambda r: r["gpu"] == "a100" or r["num_gpus"] == 32),
        (["not num_gpus in (8, 16)"], lambda r: r["num_gpus"] == 32),
        (["cost_usd < 2.2e6", "time_to_train_days <= 20"],
         lambda r: (r.get("cost_usd") or 9e9) < 2.2e6 and r["time_to_train_days"] <= 20),
        (["not feasible"], lambda r: not r["feasible"]),
        (["cost_usd != cost_usd"], lambda r: r.get("cost_usd") is None),
        (["cost_usd * time_to_train_days < 30e6"], lambda r: r["feasible"]
         and r["cost_usd"] * r["time_to_train_days"] < 30e6),
        (["8 < num_gpus <= 16"], lambda r: r["num_gpus"] == 16),
        ([], lambda r: True),
    ],
)  # fmt: skip
def test_an_expression_selects_scenarios(folder, where, chosen):
    expected = [row["scenario"] for row in made_rows() if chosen(row)]
    assert len(expected) > 0
    assert select_scenarios(Sweep(folder), where) == expected


@pytest.mark.parametrize(
    "text",
    [
        "gpu=h100",
        "gpu=h100,b200",
        "num_gpus>=8,cost_usd<1e6",
        "cost_usd<2M",
        "feasible=no",
        "",
        "(",
    ],
)
def test_the_old_syntax_names_the_last_version_that_read_it(folder, text):
    with pytest.raises(SearchSpaceError, match=r"planner 0\.1\.0 was the last") as error:
        select_scenarios(Sweep(folder), [text])
    assert "gpu == 'h100-sxm-80gb' and num_gpus >= 512" in str(error.value)
    assert "Columns: scenario, work, " in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpuu == 'h100'", "has no column 'gpuu'. Did you mean gpu?"),
        ("gpu == h100", "has no column 'h100'. Put texts in quotes."),
        ("gpu.str.len() > 2", "may only have columns"),
        ("__import__('os').getcwd() == 'a'", "may only have columns"),
        ("num_gpus @ 2", "may only have columns"),
        ("num_gpus ** 99 > 2", "may only have columns"),
        ("[x for x in gpu]", "may only have columns"),
        ("gpu[0] == 'a'", "may only have columns"),
        ("... or feasible", "may only have columns"),
        ("num_gpus == 2j", "may only have columns"),
        ("num_gpus", "it is not a condition"),
        ("1 < 2", "it is not a condition"),
        ("cost_usd < 'a'", "cannot be evaluated: "),
        ("cost_usd + gpu > 1", "cannot be evaluated: "),
        ("num_gpus is 8", "cannot be evaluated: "),
    ],
)
def test_an_invalid_expression_is_an_error_with_the_columns(folder, text, message):
    with pytest.raises(SearchSpaceError, match=re.escape(message)) as error:
        select_scenarios(Sweep(folder), [text])
    assert "Columns: scenario, work, " in str(error.value)


def test_without_a_scenario_the_error_lists_the_texts_of_the_columns(folder):
    with pytest.raises(SearchSpaceError, match="gpu has a100, b200, h100"):
        select_scenarios(Sweep(folder), ["gpu == 'zzz'"])


def test_a_column_without_a_known_value_meets_no_comparison(tmp_path):
    rows = [row_of(n, gpu, count) for n, (gpu, count) in enumerate(SPOTS)]
    sweep = Sweep(write(tmp_path / "unknown", PLAN, [{**row, "cost_usd": None} for row in rows]))
    assert len(select_scenarios(sweep, ["cost_usd / 2 < 1 or num_gpus == 8"])) == len(GPUS)


def test_scenarios_are_sorted_with_unknown_values_last(folder):
    rows = made_rows()
    found = select_scenarios(
        Sweep(folder), order=parse_order("-num_gpus,cost_usd", Sweep(folder).columns)
    )
    able = sorted(rows, key=lambda r: (-r["num_gpus"], r.get("cost_usd") or float("inf")))
    assert found == [row["scenario"] for row in able]


def test_texts_sort_in_both_directions(folder):
    for order, reverse in (("gpu", False), ("-gpu", True)):
        found = select_scenarios(Sweep(folder), order=parse_order(order, ["gpu"]))
        expected = sorted(made_rows(), key=lambda row: row["gpu"], reverse=reverse)
        assert found == [row["scenario"] for row in expected]


@pytest.mark.parametrize(
    ("cell", "value"),
    [("8", 8), ("-0.5", -0.5), ("1e5", 1e5), ("True", True), ("", None), ("a,b", "a,b"),
     ("'=1+1", "=1+1"), ("1_0", "1_0"), ("nan", "nan"), ("-", "-")],
)  # fmt: skip
def test_cells_are_what_they_stand_for(cell, value):
    found = cell_value(cell)
    assert found == value
    assert type(found) is type(value)


def test_a_directory_gives_back_its_rows(folder):
    sweep = Sweep(folder)
    rows = made_rows()
    for row, found in zip(rows, sweep.rows(), strict=True):
        assert {name: found[name] for name in row} == row
    frame = sweep.scenarios()
    assert list(frame["gpu"]) == [row["gpu"] for row in rows]
    assert sweep.summary().feasible == len(rows) - 1
    assert len(sweep.front()) == len(rows) - 1


def test_the_summary_is_on_screen(planner, folder):
    ran = planner("sweep", "show", folder)
    assert ran.exit_code == 0
    assert "\x1b" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80
    lines = ran.out.splitlines()
    assert len(lines) <= 24
    (cheapest,) = (line for line in lines if line.startswith("recommended, cheapest"))
    assert cheapest.split()[2:] == ["8", "x", "a100", "1.08", "0.97-1.19", "1.16", "40.0", "-"]
    (b200,) = (line for line in lines if line.startswith("b200"))
    assert b200.split() == ["b200", "m", "3.48", "3.96"]
    (a100,) = (line for line in lines if line.startswith("a100"))
    assert a100.split() == ["a100", "*1.08", "*1.16", "*1.32"]
    assert "m out of memory" in " ".join(ran.out.split())
    full = planner("sweep", "show", folder, "--full").out
    assert "8 x a100: 1.08 M USD (0.97 to 1.19), 40.0 days (36.0 to 44.0)" in full
    assert "Fastest by number of GPUs: h100 with 8, b200 with 16 to 32" in full
    assert "b200 is faster than" not in full  # it has no plan where others were faster


@pytest.mark.parametrize("width", [40, 60, 200])
def test_it_folds(planner, monkeypatch, folder, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for more in ((), ("--full",), ("--sort", "cost_usd"), ("--pivot", "gpu,num_gpus")):
        out = planner("sweep", "show", folder, *more).out
        assert all(len(line) <= width or "/" in line for line in out.splitlines())


def test_rows_on_screen(planner, folder):
    ran = planner(
        "sweep", "show", folder, "--where", "feasible and num_gpus == 16", "--sort", "-cost_usd",
        "--columns", "gpu,cost_usd",
    )  # fmt: skip
    assert [line.split()[0] for line in ran.out.splitlines()[-3:]] == ["b200", "h100", "a100"]
    assert ran.out.startswith("3 scenarios")
    assert planner("sweep", "show", folder, "--top", "2").out.startswith("2 of 9 scenarios")


def test_a_pivot_has_the_best_of_every_cell(planner, folder, tmp_path):
    out = planner("sweep", "show", folder, "--pivot", "num_gpus,gpu", "--value", "time").out
    (sixteen,) = (line for line in out.splitlines() if line.startswith("16"))
    assert sixteen.split() == ["16", "20.0", "5.00", "10.0"]
    (most,) = (line for line in out.splitlines() if line.startswith("32"))
    assert most.split() == ["32", "*10.0", "*2.50", "*5.00"]
    file = tmp_path / "pivot.csv"
    planner("sweep", "show", folder, "--pivot", "gpu,num_gpus", "--csv", file)
    rows = [*csv.DictReader(file.read_text().splitlines())]
    assert rows[0]["num_gpus=16"] == str(1e6 * 1.16)
    assert rows[1]["num_gpus=8"] == ""
    ran = planner("sweep", "show", folder, "--pivot", "gpu,num_gpus", "--value", "framework")
    assert (ran.exit_code, "has it as a number" in ran.err) == (3, True)


def test_rows_are_written(planner, folder, tmp_path):
    paths = tmp_path / "rows.csv", tmp_path / "rows.json"
    words = ("--where", "num_gpus == 8", "--sort", "-cost_usd", "--columns", "gpu,cost_usd")
    assert planner("sweep", "show", folder, *words, "--csv", paths[0]).out == ""
    planner("sweep", "show", folder, *words, "--json", paths[1])
    expected = [("h100", 2e6 * 1.08), ("a100", 1e6 * 1.08), ("b200", None)]
    assert [(r["gpu"], r["cost_usd"]) for r in json.loads(paths[1].read_text())] == expected
    table = [*csv.DictReader(paths[0].read_text().splitlines())]
    assert [(r["gpu"], float(r["cost_usd"] or "nan")) for r in table][:2] == expected[:2]
    top = planner("sweep", "show", folder, "--csv", "-", "--columns", "gpu", "--top", "2").out
    assert top.splitlines() == ["gpu", "a100", "a100"]
    whole = planner("sweep", "show", folder, "--csv", "-").out
    assert whole == (folder / "scenarios.csv").read_text()


def test_two_sweeps_are_compared(tmp_path, planner):
    old, new = made_rows(), made_rows(1.5)
    new[3] = {**row_of(3, "b200", 8, 7e6, 10.0)}
    new[8] = row_of(8, "h100", 32)
    new[0] = old[0]
    more = plan_of(gpu=GPUS, num_gpus=COUNTS, total_tokens=["1T"])
    before = write(tmp_path / "before", PLAN, old)
    after = write(tmp_path / "after", more, new)
    found = compare(Sweep(before), Sweep(after))
    assert (found.same, len(found.changes), found.won, found.lost) == (1, 8, 1, 1)
    assert {change.key for change in found.changes[:2]} == {("b200", 8), ("h100", 32)}
    assert found.answer_changes == {"total_tokens": (None, "1T")}
    ran = planner("sweep", "show", after, "--against", before)
    assert "9 scenarios in both: 1 the same, 8 changed, 1 have a plan now" in ran.out
    assert "+50 %" in ran.out
    where = ("--where", "num_gpus == 8")
    assert "3 scenarios in both" in planner("sweep", "show", after, "--against", before, *where).out
    assert "Changed answer: total tokens not specified, now 1T" in ran.out
    file = tmp_path / "changes.json"
    planner("sweep", "show", after, "--against", before, "--json", file)
    rows = json.loads(file.read_text())
    assert len(rows) == 8
    assert rows[-1]["cost_now"] == pytest.approx(1.5 * rows[-1]["cost_before"])


def test_what_only_one_of_two_sweeps_has_is_told(tmp_path, planner):
    rows = [row for row in made_rows() if row["gpu"] != "h100"]
    fewer = write(tmp_path / "fewer", plan_of(gpu=GPUS[:2], num_gpus=COUNTS), rows)
    whole = write(tmp_path / "whole", PLAN, made_rows())
    found = compare(Sweep(whole), Sweep(fewer))
    assert (found.same, found.changes) == (6, ())
    assert found.only_before == tuple(("h100", n) for n in COUNTS)
    out = planner("sweep", "show", whole, "--against", fewer).out
    assert f"Only in {whole}: 3" in " ".join(out.split())


def test_an_unfinished_sweep_shows_what_is_done(tmp_path, planner):
    counts = [8 * n for n in range(1, 21)]
    plan = plan_of(gpu=["a100"], num_gpus=counts)
    rows = [row_of(n, "a100", count, 1.0 + n, 1.0) for n, count in enumerate(counts)]
    folder = write(tmp_path / "part", plan, rows, done=1)
    sweep = Sweep(folder)
    assert (sweep.is_complete, sweep.done) == (False, 16)
    ran = planner("sweep", "show", folder)
    assert "16 of 20 scenarios are done" in ran.out
    assert planner("sweep", "show", folder, "--top", "1").out.startswith("1 of 16 scenarios")
    (folder / "parts" / "000000.jsonl.gz").write_bytes(b"broken")
    ran = planner("sweep", "show", folder)
    assert (ran.exit_code, "cannot be read" in ran.err) == (2, True)


def test_what_is_no_sweep_is_refused(tmp_path, planner, folder):
    ran = planner("sweep", "show", tmp_path / "none")
    assert (ran.exit_code, "the directory does not exist" in ran.err) == (2, True)
    ran = planner("sweep", "show", tmp_path)
    assert (ran.exit_code, "is no directory of a sweep" in ran.err) == (2, True)
    (tmp_path / "plan.json").write_text("{}")
    assert planner("sweep", "show", tmp_path).exit_code == 2
    cut = write(tmp_path / "cut", PLAN, made_rows())
    lines = (cut / "scenarios.csv").read_text().splitlines(keepends=True)
    (cut / "scenarios.csv").write_text("".join(lines[:-2]))
    ran = planner("sweep", "show", cut)
    assert (ran.exit_code, "has 7 of 9 scenarios" in ran.err) == (2, True)
    (cut / "scenarios.csv").write_text("".join([*lines[:-1], "1,2\n"]))
    assert planner("sweep", "show", cut).exit_code == 2
    assert planner("sweep", "show", folder, "--sort", "costt").exit_code == 3


def test_both_commands_have_help(planner):
    assert "planner sweep show DIR" in planner("sweep", "-h").out
    assert "--where" in planner("sweep", "show", "-h").out


def test_a_sweep_ends_with_its_summary(planner, tmp_path):
    words = ("sweep", "--model", "llama-7b", "--gpu", "a100,rtx4090", "--gpus", "1,8",
             "--framework", "fsdp", "--set", "gbs=8", "--set", "mbs=1",
             "--output", tmp_path / "out")  # fmt: skip
    ran = planner(*words)
    assert ran.exit_code == 0
    assert "cheapest" in ran.out
    assert planner("sweep", "show", tmp_path / "out").out == ran.out
    assert planner(*words, "--quiet").out == ""
    rows = [*Sweep(tmp_path / "out").rows()]
    able = [row for row in rows if row["feasible"]]
    assert able
    for row in able:
        assert 0.5 <= row["fit_probability"] <= 1
        assert row["tie_factor"] > 1
        assert "gpu efficiency" in row["assumed"]
