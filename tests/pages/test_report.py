"""``planner report``: what stands on pages, and what is said of files that are none."""

from __future__ import annotations

import json
import re

import pytest

from planner.show.html import markdown, page_html
from planner.show.output_blocks import (
    BEST,
    GAP,
    Bars,
    Page,
    Section,
    SideBySide,
    Table,
    TextChart,
    Title,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import format_result
from planner.show.terminal import terminal_text
from planner.ui.pages.page_of_file import read_page
from planner.ui.pages.result_tables import breakdowns

NAMES = (
    "train.json", "serve.json", "estimate.json", "size.json", "plan.toml", "explain.json", "sweep",
)  # fmt: skip
EVIL = "<img src=x onerror=alert(1)>|`*_[a](b)"


def _table(page, name):
    return next(b for b in page.blocks if isinstance(b, Table) and b.name == name)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_every_kind_of_result_becomes_a_page_that_asks_nothing_of_anybody(
    planner, results, tmp_path, name
):
    html, text = tmp_path / "page.html", tmp_path / "page.md"
    ran = planner("report", results[name], "-o", html, "--markdown", text)
    assert (ran.exit_code, ran.out) == (0, "")
    assert ran.err == f"Written: {html}\nWritten: {text}\n"
    page = html.read_text()
    assert len(page) < 1_000_000
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "default-src &#39;none&#39;" in page
    for words in ("What are the sources?", "How was this made?"):
        assert words in page
        assert f"## {words}" in text.read_text()


def test_the_answer_is_that_of_the_command_to_the_digit(planner, page_made):
    ran = planner("search", *_train(), "--quiet", "--csv", "-")
    assert ran.exit_code == 0
    shown = planner("search", *_train()).out
    page = page_made("train.json")
    for name, words in page.reached.items():
        assert f" {name} {words}" in " ".join(shown.split()), name
    for line in page.sure:
        assert line in " ".join(shown.split())
    assert "; evidence: " in page.sure[0]


def _train():
    return ("--model", "llama-7b", "--gpus", "8", "--space", "small")


def test_the_recommended_plan_is_marked_once_on_the_front(results, page_made):
    for name in ("train.json", "serve.json"):
        page = page_made(name)
        table = _table(page, "front")
        assert list(table.marked).count(BEST) == 1
        row = json.loads(results[name].read_text())["recommended_row"]
        at = [head.name for head in table.heads].index("peak_memory_gib")
        best = table.rows[table.marked.index(BEST)]
        assert best[at].number == pytest.approx(row["peak_memory_gib"])
        assert best[at].ends == pytest.approx(
            (row["peak_memory_low_gib"], row["peak_memory_high_gib"])
        )


def test_what_hardware_and_questions_would_change_is_predicted_anew(page_made):
    """As `planner explain` tells it: more of everything is never slower."""
    for name in ("train.json", "serve.json", "plan.toml"):
        table = _table(page_made(name), "what_if")
        moved = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
        assert moved["price"][1:] == ["+10 %", "-10 %"], name
        goal, worse, better = moved["GPU: peak and memory bandwidth"]
        slower, faster = ("-", "+") if "tok" in goal else ("+", "-")
        assert (worse[0], better[0]) == (slower, faster), (name, goal, worse, better)


def test_nothing_is_predicted_anew_of_specs_that_have_changed(results, tmp_path):
    table = json.loads(results["train.json"].read_text())
    table["recommended"]["specs"] = dict.fromkeys(table["recommended"]["specs"], "0")
    path = tmp_path / "old.json"
    path.write_text(json.dumps(table))
    page = read_page(path)
    assert not any(isinstance(b, Table) and b.name == "what_if" for b in page.blocks)
    assert "Specs changed since" in markdown(page)


def test_heads_are_short_and_say_at_length_what_they_are(page_made):
    heads = {head.name: head for head in _table(page_made("train.json"), "front").heads}
    assert heads["micro_batch_size"].text == "mbs"
    assert heads["step_time_s"].text == "step time s"
    assert heads["step_time_s"].title == "time of one optimizer step"
    serve = {head.name: head for head in _table(page_made("serve.json"), "front").heads}
    assert serve["time_to_first_token_s"].text.startswith("TTFT")


def test_parts_add_up_to_the_step_and_to_the_peak(results, page_made):
    for name in ("train.json", "estimate.json"):
        table = json.loads(results[name].read_text())
        row = table.get("recommended_row") or table["rows"][0]
        bars = {one.name: one for one in page_made(name).blocks if isinstance(one, Bars)}
        for bar, column in (("time_bars", "step_time_s"), ("memory_bars", "peak_memory_gib")):
            total = sum(values[0] for values in bars[bar].parts.values())
            assert total == pytest.approx(row[column]), (name, bar)


def test_no_two_bars_become_one():
    row = {"step_time_s": 2.0, "time_forward_s": 2.0, "time_to_train_days": 5.0}
    bars, numbers = breakdowns(["same", "same", "other"], [row, row, row])
    assert [*bars.labels] == ["same", "same (2)", "other"]
    assert bars.parts == {"forward": [2.0, 2.0, 2.0]}
    assert [head.text for head in numbers.heads[1:]] == ["same", "same (2)", "other"]


def test_a_sweep_has_the_matrix_of_gpus_and_counts(planner, results, page_made):
    page = page_made("sweep")
    matrix = _table(page, "matrix0")
    assert [head.text for head in matrix.heads] == [" ", "8", "16"]
    assert matrix.heads[0].title == "GPU"
    assert [row[0].text for row in matrix.rows] == ["h100-sxm-80gb", "a100-sxm-80gb"]
    assert matrix.marked == [BEST]
    assert [row[1].shade for row in matrix.rows] == [
        pytest.approx(1.0, abs=0.01),
        pytest.approx(0.0, abs=0.01),
    ]
    marks = [row[1].mark for row in matrix.rows]
    assert marks.count(BEST) == 1
    shown = planner("sweep", "show", results["sweep"]).out
    for row in matrix.rows:
        assert " ".join(cell.text for cell in row) in " ".join(shown.split())
    scenarios = _table(page, "scenarios_train")
    assert len(scenarios.rows) == 4
    assert page.answer[0].startswith("Recommended: 8 x h100-sxm-80gb, ")
    best = next(s for s in page.sections if s.title.startswith("What is best for")).blocks[0]
    assert [row[0].text for row in best.rows][:2] == ["recommended", "cheapest"]


def test_a_size_tells_its_margins_and_what_is_not_possible(page_made):
    page = page_made("size.json")
    assert page.question[1].startswith("Assumed: sequence length")
    assert page.question[2].startswith("Limits: calendar time at most")
    assert not any(line.startswith("Cheapest: ") for line in page.answer)
    choices = next(s for s in page.sections if s.title == "What are the choices?")
    assert choices.blocks[-1].lines[0].startswith("Cheapest: ")
    names = [head.name for head in _table(page, "choices").heads]
    assert {"cost_usd", "num_gpus", "calendar_time", "plan"} <= {*names}


@pytest.mark.slow
def test_a_size_over_a_day_has_what_each_hour_takes(planner, tmp_path, monkeypatch):
    """A clock is no number, though `time` is also a term with a unit."""
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "day.csv").write_text("time,request_rate\n00:00,2\n09:30,9\n18:00,4\n")
    asked = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100,l40s")
    asked = (*asked, "--engine", "vllm", "--mode", "aggregated", "--load", tmp_path / "day.csv")
    ran = planner("size", *asked, "--json", tmp_path / "day.json")
    assert ran.exit_code == 0
    page = read_page(tmp_path / "day.json")
    rows = json.loads((tmp_path / "day.json").read_text())["rows"]
    hours = _table(page, "hours")
    names = [head.name for head in hours.heads]
    assert [row[names.index("time")].text for row in hours.rows] == ["00:00", "09:30", "18:00"] * 2
    assert [row[names.index("GPUs")].number for row in hours.rows] == [
        row["num_gpus"] for row in rows
    ]

    days = _table(page, "days")
    at = [head.name for head in days.heads].index("peak")
    assert [row[at].number for row in days.rows] == [
        max(row["num_gpus"] for row in rows if row["gpu"] == one[0].text) for one in days.rows
    ]
    for row in days.rows:
        assert " ".join(cell.text for cell in row) in " ".join(ran.out.split())


def test_alternatives_say_what_they_lose_as_the_command_does(planner, results, page_made):
    command = json.loads(results["serve.json"].read_text())["manifest"]["command"]
    words = command.removesuffix(" --quiet").split()[1:]
    at = words.index("--json")
    shown = " ".join(planner(*words[:at], *words[at + 2 :]).out.split())
    table = _table(page_made("serve.json"), "alternatives")
    assert [head.name for head in table.heads[:2]] == ["engine", "mark"]
    assert sum(row[1].text == "<" for row in table.rows) == 1
    for row in table.rows:
        assert " ".join(" ".join(cell.text for cell in row).split()) in shown


def test_a_plan_is_estimated_anew_to_the_same_numbers(results, page_made):
    row = json.loads(results["train.json"].read_text())["recommended_row"]
    page = page_made("plan.toml")
    cost = format_result("cost_usd", row["cost_usd"])
    assert page.reached["cost"].startswith(cost)
    titles = [section.title for section in page.sections]
    assert "Time of a step by operator, ms" in titles


@pytest.mark.security
def test_names_never_become_markup(changed):
    def rename(table):
        rows = [*table["rows"], table["recommended_row"], table["fastest_row"]]
        for compared in table["comparisons"].values():
            rows += compared["rows"]
        for row in rows:
            row["model"] = row["gpu"] = row["framework"] = EVIL
        table["manifest"] |= {"model": EVIL, "command": EVIL, "question": [EVIL]}
        table["manifest"]["defaults"][EVIL] = EVIL
        table["manifest"]["specs"][f"gpu {EVIL}"] = "0" * 12

    page = read_page(changed("train.json", rename))
    html = page_html(page)
    assert "<img" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    text = re.sub(r"^(`{3,})\n.*?\n\1$", "", markdown(page), flags=re.MULTILINE | re.DOTALL)
    assert "<img" not in text
    assert not re.search(r"(?<!\\)[`\[|]a\]?\(", text)
    for line in text.splitlines():
        if line.startswith("| "):
            assert "|`" not in line.replace(r"\|\`", "")


def _with(**words):
    """Of a plan that is not predicted again, with something else in its manifest."""

    def change(table):
        table["manifest"] |= words
        table["recommended"] = {}

    return change


def test_code_in_markdown_is_fenced_longer_than_what_it_has(changed):
    page = read_page(changed("train.json", _with(command="a ```` b")))
    assert "\n`````" in markdown(page) or "\n```````" in markdown(page)


def test_unknown_numbers_are_told_as_unknown(changed):
    def forget(table):
        for row in [*table["rows"], table["recommended_row"]]:
            row["cost_usd"] = row["fit_probability"] = None
        table["recommended"] = {}

    page = read_page(changed("train.json", forget))
    assert page.reached["cost"] == "unknown: give --price"
    assert "cost" not in page.answer[0]
    assert "fits" not in page.answer[0]


def _without_column(table):
    for row in [*table["rows"], table["recommended_row"]]:
        del row["micro_batch_size"]


def _of_another_version(table):
    _without_column(table)
    table["manifest"]["version"] = "0.0.7"


FAULTS = {
    "a result that lacks a column": (
        _without_column,
        "train.json: a row lacks the column micro_batch_size, so it cannot be shown.",
    ),
    "one of another version": (
        _of_another_version,
        "train.json (made by planner 0.0.7): a row lacks the column micro_batch_size",
    ),
    "no manifest": (lambda t: t.pop("manifest"), "has no manifest"),
    "a damaged manifest": (lambda t: t.update(manifest=[1]), "has no manifest"),
    "no rows": (lambda t: t.update(rows=[]), "has no rows"),
    "rows that are none": (lambda t: t.update(rows=[1]), "a row is not an object"),
    "nested cells": (lambda t: t["rows"][0].update(gpu=["a"]), "is not a word or number"),
    "words for numbers": (
        lambda t: t["rows"][0].update(step_time_s="fast"),
        "step_time_s of a row is not a number: 'fast'",
    ),
    "another workload": (
        lambda t: t["manifest"].update(workload="dream"),
        "this version knows no workload 'dream'. Run its command again: planner search",
    ),
    "another tool's file": (
        lambda t: t.clear(),
        "is not a result of planner: give the file of --json",
    ),
    "nothing recommended": (lambda t: t.update(recommended_row=None), "recommends no plan"),
    "facts that are none": (
        lambda t: t.update(open_facts=[{"fact": "x"}]),
        "open_facts is damaged",
    ),
    "parts of another kind": (lambda t: t.update(comparisons=3), "comparisons is damaged"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_file_is_told_and_nothing_is_overwritten(
    planner, changed, tmp_path, fault
):
    change, words = FAULTS[fault]
    page = tmp_path / "page.html"
    page.write_text("before")
    ran = planner("report", changed("train.json", change), "-o", page)
    assert ran.exit_code in (2, 4)
    assert words in ran.err
    assert page.read_text() == "before"


def test_a_result_of_another_version_that_has_all_is_shown_and_says_so(changed):
    page = read_page(changed("train.json", _with(version="0.0.7")))
    assert any("Made by planner 0.0.7" in line for line in page.question)


def test_files_that_cannot_be_read(planner, tmp_path):
    (tmp_path / "half.json").write_text('{"rows": [{"a": 1')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "plan.toml").write_text('workload = "train"\n[answers]\nnonsense = 1\n')
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    for name, words in {
        "half.json": "is not valid JSON",
        "list.json": "is not a result of planner",
        "deep.json": "is not valid JSON",
        "plan.toml": "answers.nonsense is unknown",
        "rows.csv": "is not valid JSON",
        "empty": "is no directory of a sweep",
        "missing.json": "cannot be read",
    }.items():
        ran = planner("report", tmp_path / name, "-o", tmp_path / "x.html")
        assert ran.exit_code == 2, name
        assert words in ran.err
        assert not (tmp_path / "x.html").exists()


def test_targets_are_checked_before_anything_is_written(planner, results, tmp_path, monkeypatch):
    result, page = results["train.json"], tmp_path / "a.html"
    for words, reason in (
        ((), "Give --output FILE.html"),
        (("-o", page, "--markdown", page), "both name"),
        (("-o", result), "is the result itself"),
        (("-o", tmp_path / "no" / "a.html"), "there is no folder"),
    ):
        ran = planner("report", result, *words)
        assert ran.exit_code in (3, 8)
        assert reason in ran.err
    assert not page.exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    ran = planner("report", result, "-o", page)
    assert ran.exit_code == 7
    assert ran.err == "Pages need jinja2: pip install 'llm-gpu-planner[report]'.\n"
    assert planner("report", result, "--markdown", "-").out.startswith(
        "# What is the best way to train LLaMA 7B on 8 x a100-sxm-80gb?\n"
    )


def _page_of(*blocks):
    return Page(
        title="a page", question=(), answer=(), sections=[Section(title="s", blocks=blocks)]
    )


def test_a_page_writes_every_block_that_a_terminal_does():
    table = text_table(("part", "GiB"), [("weights", "1.5")])
    drawn = TextChart(lines=lambda width, is_plain: ["o" * (width // 40)])
    page = _page_of(
        Title(text="above"),
        GAP,
        make_lines("one"),
        make_lines("two"),
        SideBySide(tables={"left": table}),
        drawn,
    )
    html, text = page_html(page), markdown(page)
    for one in ("<h3>above</h3>", "<h3>left</h3>", "<pre>oo</pre>", "<li>one</li>\n<li>two</li>"):
        assert one in html
    assert html.count('<ul class="lines">') == 1  # sentences that follow each other
    assert "<li></li>" not in html
    assert "**above**\n\n- one\n- two\n\n**left**\n\n| part | GiB |" in text
    assert text.endswith("```\noo\n```\n")


def test_tables_without_a_name_do_not_clash_and_named_ones_do():
    table = text_table(("part", "GiB"), [("weights", "1.5")])
    assert page_html(_page_of(table, table)).count("<table>") == 2
    named = text_table(("part", "GiB"), [("weights", "1.5")], name="parts")
    with pytest.raises(ValueError, match="share a name"):
        _page_of(named, named)


def test_the_plan_in_full_is_what_the_terminal_says_of_it(planner, results, page_made):
    sections = {one.title: one.blocks for one in page_made("plan.toml").sections}
    shown = planner("estimate", "--plan", results["plan.toml"], "--full").out
    for title in ("The configuration", "Speed", "Uncertainty", "Time of a step by operator, ms"):
        words = terminal_text(sections[title], 80).strip()
        assert f"{title}\n{words}" in shown


def test_limits_that_a_sweep_varies_stand_beside_what_they_limit(planner, tmp_path):
    folder = tmp_path / "sweep"
    (tmp_path / "plan.toml").write_text(
        'workload = "serve"\nmodel = "llama-3.1-8b"\ngpu = ["h200", "v100"]\nengine = "vllm"\n'
        'num_gpus = 1\ntime_per_output_token = ["1ms", "40ms"]\n'
    )
    ran = planner("sweep", tmp_path / "plan.toml", "--output", folder, "--workers", "1", "--quiet")
    assert ran.exit_code == 0
    scenarios = _table(read_page(folder), "scenarios_serve")
    page = read_page(folder)
    bars = [block for block in page.blocks if isinstance(block, Bars)]
    assert len({one.name for one in bars}) == len(bars)  # a group of its own for each limit
    heads = [head.text for head in scenarios.heads]
    assert "TPOT limit" in heads
    without = _table(page, "no_plan_serve")
    assert without.is_folded
    every = [*scenarios.rows, *without.rows]
    assert {"1ms", "40ms"} <= {cell.text for row in every for cell in row}
    assert any("against" in row[-1].text for row in without.rows)


def test_an_unfinished_sweep_says_so(results, tmp_path):
    import shutil

    shutil.copytree(results["sweep"], tmp_path / "sweep")
    (tmp_path / "sweep" / "manifest.json").unlink()
    page = read_page(tmp_path / "sweep")
    assert page.question[-1].startswith("Not finished: 0 of 4 scenarios are done;")
    assert page.answer == ["No scenario has a plan."]


@pytest.mark.slow
def test_a_page_of_serving_says_whether_it_carries_the_load_and_what_the_engine_says(
    planner, tmp_path
):
    serve = ("estimate", "--workload", "serve", "--model", "llama-3.1-8b", "--engine", "vllm",
             "--gpu", "h100", "--gpus", "1", "--json", tmp_path / "r.json")  # fmt: skip

    def page(*options: str) -> str:
        planner(*serve, *options)
        return " ".join(planner("report", tmp_path / "r.json", "--markdown", "-").out.split())

    too_fast = page("--set", "concurrency=64", "--request-rate", "100")
    assert "Overloaded: capacity 3.78 requests/s, load 100." in too_fast
    # 0.92 of 79.1 GiB less weights and the rest, in tokens of 128 KiB; 131,072 of them a request.
    assert "KV cache 55.17 GiB, 451,906 tokens, maximum concurrency 3.45x for 131,072" in too_fast
    assert "The cache holds 364 of 600 requests in each replica" in page(
        "--set", "concurrency=600", "--input-tokens", "1000", "--output-tokens", "500",
        "--output-variation", "0",
    )  # fmt: skip
