"""What the first screen of every page has, and that the winner is first wherever choices stand."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from planner.decide.explain.step_breakdown import format_seconds
from planner.errors import SpecError
from planner.question.terms import glossary
from planner.show.html import explained, page_html
from planner.show.output_blocks import BEST, Bars, Lines, RankingChart, RankingRow, Table
from planner.show.presenters.row_tables import MOST_ROWS
from planner.show.theme import shades
from planner.ui.pages import page_of_file
from planner.ui.pages.page_of_file import read_page
from planner.ui.pages.result_tables import evidence

ANSWERS = ("train.json", "serve.json", "size.json", "sweep", "compare.json")
EVERY = (*ANSWERS, "estimate.json", "explain.json", "plan.toml")


class _First(HTMLParser):
    """Texts by class of the section of the answer."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html[html.index("<header>") : html.index('<section class="asked"')])

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        name = (dict(attributes).get("class") or tag).split()[0]
        self._open.append(name)
        self.found.setdefault(name, []).append("")

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, words: str) -> None:
        for name in {*self._open}:
            self.found[name][-1] += words


@pytest.mark.few(2)
@pytest.mark.parametrize("name", EVERY)
def test_the_first_screen_is_a_sentence_three_numbers_a_badge_and_a_chart(page_made, name):
    html = page_html(page_made(name))
    found = _First(html).found
    assert [words[-1] for words in found["h1"]] == ["?"]
    (sentence,) = found["headline"]
    assert sentence.endswith(".")
    assert len(sentence) < 200
    assert len(found["figure"]) == 3
    assert all(re.search(r"\d", words) for words in found["figure"])
    (badge,) = found["badge"]
    assert re.search("measured|similar hardware|computed|assumed", badge)
    assert len(found["chart"]) == 1
    assert len(html) < 500_000


@pytest.mark.parametrize("name", ANSWERS)
def test_the_winner_is_first_and_marked_wherever_choices_stand(page_made, name):
    page = page_made(name)
    assert isinstance(page.chart, RankingChart)
    assert [rank.mark for rank in page.chart.rows].index(BEST) == 0
    assert all(rank.hints for rank in page.chart.rows)
    # Years stand in the order rent, reserve, own, whichever is best.
    tables = [b for b in page.blocks if isinstance(b, Table) and b.name != "years"]
    marked = [table.marked for table in tables if BEST in table.marked]
    assert marked or name == "compare.json"
    for marks in marked:
        best = [*marks].count(BEST)
        if name in ("train.json", "serve.json"):  # sorted by what is predicted
            assert best == 1
        else:  # of a sweep the cheapest, the fastest, both
            assert [*marks[:best]] == [BEST] * best
    first = page_html(page).partition("What would change")[0]
    assert first.count('class="rank best"') == 1


def test_the_chart_of_a_search_says_the_step_time_of_its_plan(results, page_made):
    row = json.loads(results["train.json"].read_text())["recommended_row"]
    chart = page_made("train.json").chart
    first = chart.rows[0]
    assert first.value == pytest.approx(row["step_time_s"])
    assert first.ends == pytest.approx((row["step_time_low_s"], row["step_time_high_s"]))
    assert first.hints["plan"].startswith(row["framework"])
    assert first.hints["global batch size"] == f"{row['global_batch_size']:,}"
    assert first.hints["price"].startswith(f"{row['price_per_gpu_hour_usd']:.2f} USD (median of ")
    assert chart.ticks[0] == 0
    assert chart.ticks[-1] <= chart.most


def test_what_has_no_plan_stands_with_its_reason(planner, tmp_path):
    path = tmp_path / "size.json"
    asked = ("--model", "llama-65b", "--gpu", "a100,h100", "--gpus", "8,64", "--tokens", "1T")
    ran = planner("size", *asked, "--calendar-time", "230d", "--space", "small", "--json", path)
    assert ran.exit_code == 0, ran.err
    table = next(b for b in read_page(path).blocks if isinstance(b, Table) and b.name == "no_plan")
    assert table.is_folded
    assert [row[0].text for row in table.rows] == ["a100"]
    assert table.rows[0][1].text
    html = page_html(read_page(path))
    assert "<summary>1 GPUs without a plan, and why</summary>" in html

    path = tmp_path / "search.json"
    asked = (*asked[:2], "--gpu", "h100,rtx-4090", "--gpus", "32", "--space", "small")
    ran = planner("search", *asked, "--json", path)
    assert ran.exit_code == 0, ran.err
    lines = [line for b in read_page(path).blocks if isinstance(b, Lines) for line in b.lines]
    assert sum(line.startswith("no plan: rtx4090-24gb (") for line in lines) == 1


def test_a_sweep_of_several_works_says_who_wins_and_one_without_a_plan_why(planner, tmp_path):
    asked = ("sweep", "--model", "llama-7b,llama-13b", "--gpu", "h100,v100", "--gpus", "8")
    options = ("--space", "small", "--workers", "1", "--quiet", "--output")
    assert planner(*asked, *options, tmp_path / "two").exit_code == 0
    page = read_page(tmp_path / "two")
    assert page.headline == "The recommended GPU is h100-sxm-80gb, in each of 2 works."
    assert [one.text for one in page.figures[:2]] == ["2 of 2", "2 of 4"]
    assert [rank.label.split(",")[0] for rank in page.chart.rows] == ["LLaMA 7B", "LLaMA 13B"]

    planner(*asked[:4], "v100,l4", *asked[5:], *options, tmp_path / "none")
    page = read_page(tmp_path / "none")
    assert page.headline == "No scenario has a plan."
    why = next(b for b in page.blocks if isinstance(b, Table) and b.name == "no_plan_train")
    assert not why.is_folded
    assert len(why.rows) == 4
    assert all(row[-1].text for row in why.rows)
    assert "<h2>What are the sources?</h2>" not in page_html(page)


def test_a_size_that_nothing_does_is_a_page_that_says_so(changed):
    def forbid(table):
        table["answer"] = []
        for row in table["rows"]:
            row |= {"feasible": False, "reason": "too slow"}

    page = read_page(changed("size.json", forbid))
    assert page.headline == "No GPU does."
    assert page.chart is None
    html = page_html(page)
    assert "too slow" in html
    assert 'class="figure"' not in html


@pytest.mark.slow
def test_a_front_of_thousands_of_plans_is_a_page_below_two_megabytes(changed):
    def many(table):
        table["rows"] = [*table["rows"]] * (3000 // len(table["rows"]) + 1)

    page = read_page(changed("serve.json", many))
    front = next(b for b in page.blocks if isinstance(b, Table) and b.name == "front")
    assert len(front.rows) == len(front.hints) == MOST_ROWS
    assert len(page_html(page)) < 2_000_000


def test_a_comparison_tells_each_result_of_each_plan(results, page_made):
    written = json.loads(results["compare.json"].read_text())
    page = page_made("compare.json")
    table = next(b for b in page.blocks if isinstance(b, Table) and b.name == "results")
    assert len(table.rows) == len(written["results"])
    for one, row in zip(written["results"], table.rows, strict=True):
        assert [cell.mark == BEST for cell in row[1:]] == [at == one["best"] for at in range(2)]
    assert page.headline.startswith(f"{'AB'[_winner(written)]}: ")
    assert any(isinstance(block, Bars) for block in page.blocks)


def _winner(written):
    won = [one["best"] for one in written["results"]]
    return max({*won}, key=won.count)


def test_specs_that_are_compared_have_their_numbers(results, page_made):
    page = page_made("specs.json")
    numbers = json.loads(results["specs.json"].read_text())["specs"]["GPU"]
    table = next(b for b in page.blocks if isinstance(b, Table))
    assert len(table.rows) == len(numbers)
    assert page.headline == f"They differ in {len(numbers)} numbers."


@pytest.mark.parametrize(
    ("name", "part"),
    [("compare.json", "plans"), ("explain.json", "steps"), ("specs.json", "specs")],
)
def test_a_damaged_comparison_or_explanation_is_refused_with_its_name(changed, name, part):
    path = changed(name, lambda table: table.update({part: [3]}))
    with pytest.raises(SpecError, match=f"{name}: its part {part} is damaged"):
        read_page(path)


def test_an_explanation_says_what_bounds_the_step(results, page_made):
    page = page_made("explain.json")
    step = json.loads(results["explain.json"].read_text())["steps"][0]
    (section,) = (one for one in page.sections if one.title.startswith("Time of a step: "))
    bound = max(step["bounds_s"], key=step["bounds_s"].get)
    assert section.blocks[0].lines[0].startswith(f"Bound by {bound} ")
    table = next(b for b in section.blocks if isinstance(b, Table))
    assert len(table.rows) == len(step["operators"])
    assert [row[1].text for row in table.rows] == [
        format_seconds(one["time_s"]) for one in step["operators"]
    ]


def test_the_page_of_an_explanation_predicts_nothing(results, page_made, monkeypatch):
    def refuse(*_: object) -> None:
        raise AssertionError

    estimated = page_made("plan.toml")
    monkeypatch.setattr(page_of_file, "make_single_plan", refuse)
    page = read_page(results["explain.json"])
    assert (page.figures, page.chart) == (estimated.figures, estimated.chart)
    assert page.evidence == estimated.evidence


def test_levers_are_a_chart_of_what_the_answer_would_cost(changed):
    def add(table):
        cost = table["recommended_row"]["cost_usd"]
        table["levers"] = [
            {"lever": "precision", "own": "bf16", "other": "fp8", "column": "cost_usd",
             "value": 0.6 * cost, "change": -0.4},
            {"lever": "contract", "own": "on-demand", "other": "spot", "column": "cost_usd",
             "value": None, "change": None},
        ]  # fmt: skip

    page = read_page(changed("train.json", add))
    (section,) = (one for one in page.sections if one.title == "What would change the answer?")
    answer, fp8 = section.blocks[0].rows
    assert answer.mark == BEST
    assert (fp8.label, fp8.value) == ("precision: fp8", pytest.approx(0.6 * answer.value))
    assert fp8.text.endswith("(-40 %)")
    with pytest.raises(SpecError, match="its part levers is damaged"):
        read_page(changed("train.json", lambda table: table.update(levers=[{"lever": "x"}])))


def test_terms_say_what_they_mean(page_made):
    page = page_made("serve.json")
    assert page.glossary["TTFT"] == glossary()["time_to_first_token"].description
    assert page.glossary["tp"] == "GPUs that split every matrix"
    words = explained("TTFT of tp8 <b>, GPU", page.glossary)
    assert words.count("<abbr") == 2
    assert "&lt;b&gt;" in words
    assert 'data-tip="GPUs that split every matrix"' in words


def test_a_basis_that_is_unknown_has_no_badge():
    assert evidence("measured, a first run").title.endswith("; a first run")
    assert evidence("roofline", 0).title.endswith("; not proven")
    assert evidence("measured", 1200).title.endswith("; 1,200 on this GPU")
    assert evidence("") is evidence(None) is None


def test_an_axis_ends_where_its_intervals_do_but_far_ones_go_beyond_it():
    ranks = RankingChart(
        name="r", caption="", unit="",
        rows=[RankingRow(label="a", value=1.0, text="1", ends=(0.5, 2.0)),
              RankingRow(label="b", value=2.0, text="2", ends=(1.0, 100.0))],
    )  # fmt: skip
    assert ranks.most == 6.0
    assert ranks.ticks == [0, 1, 2, 3, 4, 5, 6]
    assert shades([3.0, float("nan"), 1.0], -1)[::2] == [1.0, 0.0]
