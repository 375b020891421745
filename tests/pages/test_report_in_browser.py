"""Pages in a browser: nothing is logged or asked for, tables sort and filter, charts follow."""

from __future__ import annotations

import json
import math

import pytest

from planner.pages.read import page_of
from planner.show.html import page_html

NAMES = ("train.json", "serve.json", "estimate.json", "size.json", "sweep")
EVIL = "<b>bold</b><img src=x onerror='document.title=\"run\"'>"


@pytest.fixture(scope="module")
def pages(results, page_made, tmp_path_factory):
    """The pages of results as addresses."""
    folder = tmp_path_factory.mktemp("pages")
    for name in NAMES:
        (folder / f"{name}.html").write_text(page_html(page_made(name)))
    return {name: (folder / f"{name}.html").as_uri() for name in NAMES}


def _column(page, table, name, shown=True):
    """The texts of a column of the rows that are seen."""
    return page.evaluate(
        """([table, name]) => {
          const box = document.querySelector(`[data-table="${table}"]`);
          const at = [...box.querySelectorAll("th")].findIndex((h) => h.dataset.name === name);
          return [...box.querySelectorAll("tbody tr")].filter((r) => !r.hidden)
            .map((r) => r.cells[at].dataset.v ?? r.cells[at].textContent.trim());
        }""",
        [table, name],
    )


def _wait_for(page, expression, value):
    """Ask until it is so; the page's own policy forbids it to evaluate texts."""
    for _ in range(50):
        if page.evaluate(expression) == value:
            return
        page.wait_for_timeout(100)
    assert page.evaluate(expression) == value


@pytest.mark.few(2)
@pytest.mark.parametrize("name", NAMES)
def test_pages_fit_and_draw_on_narrow_and_wide_light_and_dark(opened, pages, name):
    page = opened(pages[name], 1100, "light")
    page.wait_for_selector(".drawn .main-svg")
    assert page.locator(".drawn .plot-container").count() == page.locator(".chart").count() > 0
    grounds = {"dark": "rgb(20, 24, 29)", "light": "rgb(255, 255, 255)"}
    for width, scheme in ((400, "dark"), (1900, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        _wait_for(page, "document.querySelector('.main-svg').style.background", grounds[scheme])
        _wait_for(page, "document.documentElement.scrollWidth <= innerWidth", True)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == grounds[scheme]


def test_a_table_is_sorted_by_mouse_and_by_keyboard(opened, pages):
    page = opened(pages["train.json"])
    head = page.locator('[data-table="front"] th[data-name="peak_memory_gib"]')
    head.locator("button").click()
    first = [float(one) for one in _column(page, "front", "peak_memory_gib")]
    assert first == sorted(first)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")
    again = [float(one) for one in _column(page, "front", "peak_memory_gib")]
    assert again == sorted(first, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    words = page.locator('[data-table="front"] th[data-name="plan"] button')
    words.focus()
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "none"


def test_a_table_is_filtered_by_words_and_conditions_and_its_chart_follows(opened, pages):
    page = opened(pages["train.json"])
    page.wait_for_selector(".drawn .main-svg")
    every = [float(one) for one in _column(page, "front", "peak_memory_gib")]
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    bound = sorted(every)[len(every) // 2]
    page.keyboard.type(f"peak memory < {bound:.6f}")
    left = [float(one) for one in _column(page, "front", "peak_memory_gib")]
    assert left == [one for one in every if one < float(f"{bound:.6f}")]
    assert page.locator("#h-front").text_content() == f"{len(left)} of {len(every)} rows"
    count = "document.querySelector('.drawn').data.reduce((n, t) => n + t.x.length, 0)"
    assert page.evaluate(count) == len(left)
    page.keyboard.press("Escape")
    assert len(_column(page, "front", "plan")) == len(every) == page.evaluate(count)
    page.keyboard.type("nothing-like-this")
    assert _column(page, "front", "plan") == []
    page.keyboard.press("Escape")
    page.keyboard.type("bogus < 3")
    assert page.locator("#h-front").text_content() == "which column?"
    assert len(_column(page, "front", "plan")) == len(every)


def test_the_axes_of_a_chart_can_be_chosen(opened, pages):
    page = opened(pages["serve.json"])
    page.wait_for_selector(".drawn .main-svg")
    choice = page.locator(".axes select").first
    choice.select_option(label="peak memory GiB")
    title = "document.querySelector('.drawn').layout.xaxis.title.text"
    assert page.evaluate(title) == "peak memory GiB"
    page.locator(".axes input[type=checkbox]").check()
    assert page.evaluate("document.querySelector('.drawn').layout.xaxis.type") == "log"


def test_intervals_are_drawn_where_the_row_has_them(opened, pages, results):
    page = opened(pages["train.json"])
    page.wait_for_selector(".drawn .main-svg")
    best = page.evaluate(
        "(() => { const t = document.querySelector('.drawn').data.at(-1);"
        " return [t.x[0], t.error_x.array[0], t.error_x.arrayminus[0]]; })()"
    )
    row = json.loads(results["train.json"].read_text())["recommended_row"]
    peak = row["peak_memory_gib"]
    high, low = row["peak_memory_high_gib"] - peak, peak - row["peak_memory_low_gib"]
    assert all(map(math.isclose, best, (peak, high, low)))


def test_names_never_become_markup_in_tables_or_charts(opened, changed, tmp_path):
    def rename(table):
        for row in [*table["rows"], table["recommended_row"]]:
            row["framework"] = EVIL
        table["rows"][0]["framework"] = f"{EVIL}2"

    path = tmp_path / "evil.html"
    path.write_text(page_html(page_of(changed("train.json", rename))))
    page = opened(path.as_uri())
    page.wait_for_selector(".drawn .main-svg")
    assert page.title() != "run"
    assert page.locator("main img").count() == 0
    legend = page.locator(".legendtext").first
    assert "<b>bold</b>" in legend.text_content()
    assert legend.locator("tspan").count() == 0


def test_a_page_can_be_read_without_scripts(chromium, pages):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["sweep"])
    assert page.locator('[data-table="matrix0"] tbody tr').count() == 2
    assert page.locator("noscript").first.is_visible()
    context.close()
