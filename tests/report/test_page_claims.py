"""Pages of drawn questions say what their tables have: cheapest, best, shares; nothing twice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

SERVE = (
    "--workload", "serve", "--model", "llama-3.1-8b", "--input-tokens", "500", "--output-tokens",
    "100", "--engine", "vllm", "--mode", "aggregated",
)  # fmt: skip
LARGE = tuple(word.replace("8b", "70b") for word in SERVE)
TRAIN = ("--model", "llama-3.1-8b", "--tokens", "1T")
QUESTIONS: dict[str, tuple[str, ...]] = {
    "size serve": ("size", *SERVE, "--gpu", "h100,h200", "--request-rate", "20"),
    "size day": ("size", *LARGE, "--gpu", "h100,b200", "--load", "day.csv"),
    "size budget": (
        "size", *SERVE, "--gpu", "h100", "--request-rate", "20", "--budget", "90kUSD/year",
    ),
    "size train": ("size", *TRAIN, "--gpu", "h100,b200", "--deadline", "40d"),
    "search serve": ("search", *SERVE, "--gpu", "h100", "--gpus", "2"),
    "search train": ("search", *TRAIN, "--gpu", "h100,b200", "--gpus", "64"),
    "compare train": ("compare", "h100", "b200", *TRAIN, "--gpus", "64"),
    "sweep train": (
        "sweep", *TRAIN, "--gpu", "h100,b200", "--gpus", "64", "--contract", "on-demand,spot",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A function that returns the page of a question as Markdown."""
    from planner.__main__ import run

    folder, pages = tmp_path_factory.mktemp("claims"), dict[str, str]()

    def page(name: str) -> str:
        if name not in pages:
            stem = name.replace(" ", "_")
            result, text = folder / f"{stem}.json", folder / f"{stem}.md"
            target = ("--output", folder / stem) if "sweep" in name else ("--json", result)
            assert run([*map(str, (*QUESTIONS[name], *target, "--quiet"))]) == 0
            made = folder / stem if "sweep" in name else result
            assert run(["report", str(made), "--markdown", str(text)]) == 0
            pages[name] = text.read_text()
        return pages[name]

    return page


def _tables(page: str, title: str) -> list[list[list[str]]]:
    """The cells of each table whose title begins so, heads first."""
    found = []
    for part in page.split("\n**")[1:]:
        if not part.startswith(title):
            continue
        rows = part.partition("\n\n")[2].partition("\n\n")[0].splitlines()
        cells = [[c.strip().replace("\\", "") for c in row.split("|")[1:-1]] for row in rows]
        found.append([cells[0], *cells[2:]])
    return found


def _number(text: str) -> float:
    match = re.search(r"-?[\d,]*\.?\d+", text)
    return float(match[0].replace(",", "")) if match else float("nan")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", QUESTIONS)
def test_no_sentence_is_said_twice(page_of: Callable[[str], str], name: str) -> None:
    lines = [
        line.strip(" -*") for line in page_of(name).splitlines() if line and line[0] not in "|#`"
    ]
    prose = [text for line in lines if len(text := re.sub(r"^\w[\w ]*: ", "", line)) > 30]
    for one, other in itertools.combinations(prose, 2):
        assert one not in other, (name, one)
        assert other not in one, (name, other)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [name for name in QUESTIONS if name.split()[0] in ("size", "sweep")]
)
def test_the_decision_is_that_of_its_tables(page_of: Callable[[str], str], name: str) -> None:
    """The starred way costs least, or fits the budget alone; shares are those of the totals."""
    page = page_of(name)
    (years,) = _tables(page, "Cash and cost by year")
    totals = {row[0].strip("*"): _number(row[-1]) for row in years if row[3] == "cost"}
    starred = {row[0].strip("*") for row in years if row[0].startswith("**")}
    (chosen,) = starred
    line = next((text for text in page.splitlines() if re.match(r"(Rent|Reserve|Own): ", text)), "")
    budget = "Budget " in page
    if line:
        assert line.lower().startswith(chosen)
        assert _number(line.partition(" cost ")[2]) == pytest.approx(totals[chosen], abs=0.011)
    if not budget:
        assert totals[chosen] <= min(totals.values()) + 0.011
        share = re.search(r"([\d.]+) % less than to (\w+)", line)
        if share:
            other = totals[share[2]]
            assert float(share[1]) == pytest.approx(
                100 * (1 - totals[chosen] / other), abs=3 / other
            )
    (scenarios,) = _tables(page, "Cost of 5 years")
    for row in scenarios[1:]:
        costs = dict(zip(scenarios[0][1:-1], map(_number, row[1:-1]), strict=True))
        assert costs[row[-1].split(":")[0]] <= min(costs.values()) + 0.011


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["size serve", "size day", "size budget", "size train"])
def test_what_is_called_cheapest_costs_least(page_of: Callable[[str], str], name: str) -> None:
    page = page_of(name)
    headline = page.partition("**")[2].partition("**")[0]
    tables = _tables(page, "By cost, then GPUs") or _tables(page, "A day, by cost")
    heads, *rows = tables[0]
    column = next(n for n, head in enumerate(heads) if head.startswith(("USD", "cost")))
    costs = [_number(row[column]) for row in rows]
    best = next(row for row in rows if any(cell.startswith("**") for cell in row))
    if "is cheapest" in headline:
        assert _number(best[column].strip("*")) == min(costs)
    else:
        assert _number(best[column].strip("*")) > min(costs)
    decision = re.search(r"\n(Rent|Reserve|Own): [\d,]+ x \S+ (\S+) ", page)
    if "is cheapest on " in headline and decision:  # no contract is named: none costs less
        assert decision[2] == "on-demand"


def test_best_of_a_comparison_is_starred(page_of: Callable[[str], str]) -> None:
    page = page_of("compare train")
    text = page.partition("## What are the results of each?")[2].strip().partition("\n\n")[0]
    lines = text.splitlines()
    reached = [[cell.strip().replace("\\", "") for cell in line.split("|")[1:-1]] for line in lines]
    starred = {
        row[0]: {
            head[0] for head, cell in zip(reached[0], row, strict=True) if cell.startswith("*")
        }
        for row in reached[2:]
    }
    claims = re.findall(r"\b([A-C])(?:: \S+)? is best in ([^.]*)\.", page)
    assert claims
    for letter, words in claims:
        for result in re.split(r", | and ", words):
            assert letter in starred[result], (letter, result)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["search serve", "search train"])
def test_a_search_recommends_what_its_front_marks(page_of: Callable[[str], str], name: str) -> None:
    page = page_of(name)
    (front,) = _tables(page, "Pareto front")
    heads, *rows = front
    marked = [row for row in rows if "&lt;" in row[0]]
    assert len(marked) == 1
    plan = marked[0][heads.index("plan")]
    headline = page.partition("**")[2].partition("**")[0]
    assert f"({plan}" in headline, (plan, headline)


def test_the_pages_are_read(page_of: Callable[[str], str], tmp_path: Path) -> None:
    """The helpers read what is there: a table has heads and rows."""
    (years,) = _tables(page_of("size serve"), "Cash and cost by year")
    assert years[0][-1] == "5 years"
    assert len(years) > 2
