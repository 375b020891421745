"""Counts and commands that pages and messages name are those of the program."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rows import each

from planner.cli.app import COMMANDS
from planner.confidence.medians import Work, median_slowdown
from planner.specs.catalogue import Catalogue
from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, SHIPPED_RL

ROOT = Path(__file__).parents[1]
ACCURACY = "docs/reference/accuracy_tables.md"
GROUPS = {"specs": {"list", "show", "validate", "add"}, "sweep": {"show"}}
# In backticks, or what a line of a block begins with.
WORDS = r"planner ([a-z][a-z-]*)(?: ([a-z][a-z-]*)(?=[ `\n]))?"
COMMAND, LINE = re.compile("`" + WORDS), re.compile(r"^(?:\$ )?" + WORDS, re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def rows_of(path: Path | str) -> tuple[dict[str, str], ...]:
    """The rows of a CSV file of the repository."""
    with (ROOT / path).open(newline="") as file:
        return tuple(csv.DictReader(file))


def different(path: str, column: str) -> int:
    """How many values a column of a CSV file has."""
    return len({row[column] for row in rows_of(path)})


def specs(kind: str) -> int:
    """How many specs of a kind are shipped."""
    return len(Catalogue(None).names(kind))


def cell(title: str, row: str, column: int) -> int:
    """A number of the tables of accuracy, of the first row of a name below a title."""
    below = (ROOT / ACCURACY).read_text().partition(f"\n## {title}\n")[2]
    found = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", below, re.MULTILINE)
    assert found, (title, row)
    return number(found[1].split("|")[column].strip())


def number(words: str) -> int:
    """A count as text."""
    return int(words.removesuffix(" %").replace(",", ""))


def shipped_runs() -> int:
    """Published runs of all kinds."""
    return sum(len(rows_of(path)) for path in (SHIPPED, *SHIPPED_INFERENCE, SHIPPED_RL))


API, RENTS = "hardware_specs/api_prices.csv", "hardware_specs/prices.csv"
SCENARIOS, RECIPES = "docs/static/procurement/scenarios.csv", "planner/validation/recipes.csv"
Counted = Callable[[], int]
OUT = "ran out, said to fit"
LOGS = "room for the cache"
UNCERTAINTY = "docs/background/uncertainty.md"
COUNTS: list[tuple[str, str, tuple[Counted, ...]]] = [
    # page, sentence with a group for each number, what computes it
    ("README.md", r"errors of ([\d,]+) published\s+runs", (shipped_runs,)),
    ("README.md", r"these and ([\d,]+) other rows", (shipped_runs,)),
    ("docs/index.md", r"([\d,]+) published\s+runs", (shipped_runs,)),
    ("docs/index.md", r"\[([\d,]+) scenarios\]", (lambda: len(rows_of(SCENARIOS)),)),
    (
        "docs/background/accuracy.md",
        r"(\d+) published steps of NeMo-RL",
        (lambda: cell("Reinforcement learning", "all", 1),),
    ),
    (
        "docs/background/accuracy.md",
        r"(\d+) of 100 lie inside the intervals",
        (lambda: cell("Reinforcement learning", "all", 5),),
    ),
    (
        "docs/how-to/rl.md",
        r"`planner validate` predicts (\d+) published steps",
        (lambda: cell("Reinforcement learning", "all", 1),),
    ),
    (
        "docs/how-to/rl.md",
        r"All of (\d+) steps\s+that ran are\s+predicted to fit",
        (lambda: cell("Reinforcement learning", "ran, said to run out", 0),),
    ),
    (
        "docs/how-to/api_prices.md",
        r"has (\d+) prices of (\d+) models by (\d+) providers",
        (
            lambda: len(rows_of(API)),
            lambda: different(API, "model"),
            lambda: different(API, "provider"),
        ),
    ),
    ("docs/how-to/money.md", r"catalogue of (over \d+) rents", (lambda: len(rows_of(RENTS)),)),
    ("docs/how-to/specs.md", r"\((over \d+) GPUs\s", (lambda: specs("gpus"),)),
    ("docs/how-to/specs.md", r"\((over \d+) models\)", (lambda: specs("models"),)),
    (
        "docs/reference/procurement.md",
        r"All ([\d,]+) scenarios",
        (lambda: len(rows_of(SCENARIOS)),),
    ),
    (
        "docs/background/uncertainty.md",
        r"chosen on (\d+) layouts",
        (lambda: len(rows_of(RECIPES)),),
    ),
    (
        "docs/reference/recipes.md",
        r"`\. (\d+) layouts that NVIDIA",
        (lambda: len(rows_of(RECIPES)),),
    ),
]


def agrees(words: str, counted: int) -> bool:
    """Whether a stated count is right: to the thousand, or by less than a fifth over it."""
    if words.startswith("over "):
        least = number(words.removeprefix("over "))
        return least < counted < 1.2 * least
    stated = number(words)
    return stated == counted or (stated % 1000 == 0 and stated == counted // 1000 * 1000)


@each("page, sentence, counts", COUNTS)
def test_a_stated_count_is_what_the_program_counts(page, sentence, counts):
    found = re.search(sentence, (ROOT / page).read_text())
    assert found, "the sentence is gone: change its row"
    for words, count in zip(found.groups(), counts, strict=True):
        assert agrees(words, count()), (words, count())


def test_what_is_printed_of_all_runs_is_that_of_the_tables():
    console = (ROOT / "docs" / "background" / "accuracy.md").read_text()
    printed = re.search(r"^all +([\d,]+) [\d,]+ +[\d.]+%", console, re.MULTILINE)
    assert printed
    assert number(printed[1]) == cell("Training", "all", 0)
    out = re.search(r"ran out, said to fit +(\d+) of (\d+)", console)
    assert out
    assert [number(one) for one in out.groups()] == [cell("Training", OUT, at) for at in (1, 0)]


PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/index.md")),
    *sorted(ROOT.glob("docs/[!g]*/*.md")),
]
SOURCES = [path for kind in ("py", "csv", "toml") for path in (ROOT / "planner").rglob(f"*.{kind}")]


@pytest.mark.parametrize("paths", [PAGES, SOURCES], ids=["pages", "sources"])
def test_every_command_that_is_named_exists(paths):
    unknown = []
    for path in paths:
        text = path.read_text(errors="replace")
        lines = (found for block in BLOCK.findall(text) for found in LINE.findall(block))
        for command, member in (*COMMAND.findall(text), *lines):
            is_known = command in COMMANDS and not (
                command == "specs" and member and member not in GROUPS[command]
            )
            if not is_known:
                unknown.append(f"{path.relative_to(ROOT)}: planner {command} {member}")
    assert unknown == []


CELL = re.compile(r"([\d.]+) (ms|s) / ([\d.]+) (ms|s)")


def replayed_ratios(column: int, least: int, most: int) -> list[float]:
    """Predicted over replayed times of a column of the traffic page, by load in percent."""
    table = (ROOT / "docs/background/traffic.md").read_text().partition("<!-- made by")[2]
    ratios = []
    for line in table.partition("<!-- end -->")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) > column and cells[2].endswith("%"):
            found = CELL.fullmatch(cells[column])
            assert found, cells[column]
            first, first_unit, second, second_unit = found.groups()
            scale = {"ms": 1e-3, "s": 1.0}
            load = int(cells[2].rstrip("%"))
            if least <= load <= most:
                ratio = float(first) * scale[first_unit] / (float(second) * scale[second_unit])
                ratios.append(ratio)
    return ratios


TRAFFIC = [
    # sentence with the bound in percent, column of the table, loads
    (r"mean first tokens are within (\d+) % of the replay", 4, (5, 70)),
    (r"Their p99 is within (\d+) %", 5, (5, 70)),
    (r"the time per token\s+within (\d+) %", 6, (5, 70)),
]


@each("sentence, column, loads", TRAFFIC)
def test_bounds_of_the_traffic_page_are_those_of_its_table(sentence, column, loads):
    found = re.search(sentence, (ROOT / "docs/background/traffic.md").read_text())
    assert found, "the sentence is gone: change its row"
    bound = int(found[1]) / 100
    ratios = replayed_ratios(column, *loads)
    assert ratios
    assert max(abs(ratio - 1) for ratio in ratios) <= bound + 0.005


def medians_of_page(label: str) -> list[float]:
    """The medians in percent of the left-out rows of the accuracy page with a label."""
    page = (ROOT / "docs/background/accuracy.md").read_text()
    block = page.partition("## Left out of the fits")[2].partition("## ")[0]
    lines = [line for line in block.splitlines() if re.search(rf" {label} ", line)]
    return [float(line.split()[-1].rstrip("%")) for line in lines]


def test_the_first_sentence_of_accuracy_is_that_of_its_tables():
    page = (ROOT / "docs/background/accuracy.md").read_text()
    found = re.search(
        r"(\d+) to (\d+) % for training steps. Serving has (\d+) % per output token and (\d+) %",
        page,
    )
    assert found
    times, tokens, firsts = map(medians_of_page, ("time", "each token", "serving +first token"))
    medians = (min(times), max(times), tokens[0], firsts[0])
    assert all(
        abs(int(stated) - median) <= 0.5
        for stated, median in zip(found.groups(), medians, strict=True)
    )


def percent(title: str, row: str, column: int) -> float:
    """A share of the tables of accuracy in percent."""
    below = (ROOT / ACCURACY).read_text().partition(f"\n## {title}\n")[2]
    found = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", below, re.MULTILINE)
    assert found, (title, row)
    return float(found[1].split("|")[column].strip().removesuffix(" %"))


SHARES = [
    # page, sentence with a group for the share in percent, title, row, column of the tables
    ("docs/background/accuracy.md", r"slime is (\d+) %", "Reinforcement learning", "all", 2),
    ("docs/how-to/rl.md", r"a mean error of (\d+) %", "Reinforcement learning", "all", 2),
    ("docs/background/prediction.md", r"mean error of ([\d.]+) %", "Targets", LOGS, 2),
]


@each("page, sentence, title, row, column", SHARES)
def test_a_stated_share_is_that_of_the_tables(page, sentence, title, row, column):
    found = re.search(sentence, (ROOT / page).read_text())
    assert found, "the sentence is gone: change its row"
    digits = len(found[1].partition(".")[2])
    assert float(found[1]) == round(percent(title, row, column), digits)


def test_the_stated_slowdown_of_servers_is_the_fitted_one():
    found = re.search(r"takes ([\d.]+) times as long", (ROOT / UNCERTAINTY).read_text())
    assert found
    assert float(found[1]) == median_slowdown(Work.SERVING).slower
