"""What search and estimate return in Python: short texts, tables of notebooks, whole frames."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import Any

import pytest
from rows import each

import planner
from planner.errors import SearchSpaceError
from planner.show.output_blocks import make_lines
from planner.show.results import notebook

QUESTIONS: dict[str, dict[str, Any]] = {
    "train": {"model": "llama-7b", "num_gpus": (8, 16), "space": "small"},
    "serve": {
        "workload": "serve",
        "model": "llama-3.1-8b",
        "gpu": "h100",
        "engine": ("vllm", "sglang"),
        "num_gpus": 4,
        "settings": {"concurrency": [1, 8, 32]},
    },
    "inference": {
        "workload": "inference",
        "model": "llama-3.1-8b",
        "gpu": "gaudi2",
        "engine": "vllm",
        "num_gpus": 1,
        "settings": {"concurrency": [1, 8]},
    },
}
SETTINGS = {"micro_batch_size": 1, "zero_stage": 1}


@pytest.fixture(scope="module", params=QUESTIONS)
def found(request: pytest.FixtureRequest) -> Any:
    return planner.search(**QUESTIONS[request.param])


class Table(HTMLParser):
    """The rows of the tables of a page, and whether its tags are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def objects(found: Any) -> list[Any]:
    misses = planner.search(model="llama-65b", num_gpus=1, space="small").nearest_misses
    one = planner.estimate(model="llama-7b", num_gpus=8, settings=SETTINGS)
    compared = list(found.comparisons.values())
    return [found, found.plan, found.problem, found.recommended, one, *compared, *misses]


def test_texts_of_objects_are_one_short_line(found: Any) -> None:
    for one in objects(found):
        assert len(repr(one)) < 250, type(one)
        assert "\n" not in repr(one)
        assert "object at" not in repr(one)


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_summary_is_the_short_answer(found: Any, width: int) -> None:
    text = found.summary(width=width)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= width
    assert "RECOMMENDED  " in text
    assert "on the front (--full)" in " ".join(text.split())
    assert "..." not in text.split("RECOMMENDED")[1].split("rec.")[0]
    if width >= 80:
        assert len(text.splitlines()) <= 24


@each("width", [0, 19, 2.5, "80", True])
def test_a_width_that_is_none_is_refused(found: Any, width: Any) -> None:
    with pytest.raises(SearchSpaceError, match="width"):
        found.summary(width=width)


def test_a_notebook_shows_the_front_with_the_recommended_plan(found: Any) -> None:
    page = found._repr_html_()
    rows = Table(page).rows
    assert len(rows) >= 3
    assert sum("<" in row for row in rows) == 1
    assert "color:" not in page.replace("background", "")  # that of the page, light or dark


def test_a_frame_has_intervals_and_what_was_asked(found: Any) -> None:
    frame = found.to_frame()
    assert {"model", "gpu", "peak_memory_low_gib", "price_per_gpu_hour_usd"} <= set(frame)
    assert frame["rank"].count() == len(found.table["num_gpus"])
    prices = frame["price_per_gpu_hour_usd"]
    assert all(map(math.isnan, prices)) == (frame["gpu"][0] == "gaudi2")


def test_an_estimate_shows_itself() -> None:
    found = planner.estimate(model="llama-7b", num_gpus=8, settings=SETTINGS)
    assert "dp8 mbs1 zero1" in found.summary()
    assert "step time" in found.summary()
    assert any("step time" in row for row in Table(found._repr_html_()).rows)
    assert {"step_time_low_s", "sequence_length"} <= set(found.to_frame())


@pytest.mark.slow
def test_what_does_not_fit_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # What helps is told below it, and takes longer to find out.
    monkeypatch.setattr("planner.decide.suggestions.infeasible.suggest_feasible", lambda *asked: [])
    one = planner.estimate(model="llama-65b", num_gpus=1, settings={"zero_stage": 0})
    assert "Does not fit" in one.summary()
    assert "Does not fit" in one._repr_html_()
    nothing = planner.search(model="llama-65b", num_gpus=1, space="small")
    assert "No configuration of" in nothing.summary()
    assert "<pre>No configuration of" in nothing._repr_html_()


def test_names_are_no_markup_of_a_page() -> None:
    assert notebook([make_lines("<b>")]) == "<div><p>&lt;b&gt;</p></div>"
