"""Pages in a browser: nothing is logged or asked for, tables sort and filter, charts follow."""

from __future__ import annotations

import json
import math
import re

import pytest

from planner.show.html import page_html
from planner.ui.pages.page_of_file import read_page

NAMES = (
    "train.json", "serve.json", "estimate.json", "size.json", "compare.json", "explain.json",
    "sweep",
)  # fmt: skip
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
    drawn = page.locator(".chart :is(svg, .ranking, .stack)")
    assert drawn.count() == page.locator(".chart").count() > 0
    grounds = {"dark": "rgb(20, 24, 29)", "light": "rgb(255, 255, 255)"}
    for width, scheme in ((400, "dark"), (1900, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
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
    every = [float(one) for one in _column(page, "front", "peak_memory_gib")]
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    bound = sorted(every)[len(every) // 2]
    page.keyboard.type(f"peak memory < {bound:.6f}")
    left = [float(one) for one in _column(page, "front", "peak_memory_gib")]
    assert left == [one for one in every if one < float(f"{bound:.6f}")]
    assert page.locator("#h-front").text_content() == f"{len(left)} of {len(every)} rows"
    count = "document.querySelectorAll('.point').length"
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
    choice = page.locator(".axes select").first
    choice.select_option(label="peak memory GiB")
    assert page.locator(".drawn .axis").first.text_content() == "peak memory GiB \u2192"
    places = "[...document.querySelectorAll('.point path')].map((p) => p.getAttribute('transform'))"
    before = page.evaluate(places)
    page.locator(".axes input[type=checkbox]").click()
    assert page.evaluate(places) != before


def test_an_axis_is_logarithmic_where_its_values_span_more_than_a_decade(opened, pages):
    page = opened(pages["train.json"])
    box, selects = page.locator(".axes input[type=checkbox]"), page.locator(".axes select")
    heads = """() => [...document.querySelectorAll('[data-table="front"] th')]
      .map((head) => head.dataset.name)"""
    names = page.evaluate(heads)
    seen = set()
    for index in selects.first.locator("option").evaluate_all("all => all.map((o) => o.value)"):
        for axis in (0, 1):
            selects.nth(axis).select_option(value=index)
        texts = _column(page, "front", names[int(index)])
        values = [float(text) for text in texts if re.fullmatch(r"-?[\d.e+-]*\d", text)]
        is_wide = min(values) > 0 and max(values) > 10 * min(values)
        assert box.is_checked() == is_wide, names[int(index)]
        seen.add(is_wide)
    assert seen == {False, True}


def test_intervals_are_drawn_where_the_row_has_them(opened, pages, results):
    page = opened(pages["train.json"])
    left, right, at, width = page.evaluate(
        """(() => {
          const star = document.querySelector(".point.chosen"), line = star.querySelector("line");
          const place = star.querySelector("path").getAttribute("transform").match(/[\\d.]+/)[0];
          return [...["x1", "x2"].map((end) => line.getAttribute(end)), place]
            .map(Number).concat(line.ownerSVGElement.viewBox.baseVal.width);
        })()"""
    )
    row = json.loads(results["train.json"].read_text())["recommended_row"]
    peak = row["peak_memory_gib"]
    low, high = row["peak_memory_low_gib"], row["peak_memory_high_gib"]
    assert 0 < left < at < right < width
    assert math.isclose((at - left) / (right - left), (peak - low) / (high - low), abs_tol=1e-4)


@pytest.mark.security
def test_names_never_become_markup_in_tables_or_charts(opened, changed, tmp_path):
    def rename(table):
        for row in [*table["rows"], table["recommended_row"]]:
            row["framework"] = EVIL
        table["rows"][0]["framework"] = f"{EVIL}2"

    path = tmp_path / "evil.html"
    path.write_text(page_html(read_page(changed("train.json", rename))))
    page = opened(path.as_uri())
    assert page.title() != "run"
    assert page.locator("main img").count() == 0
    legend = page.locator(".legend button").first
    assert "<b>bold</b>" in legend.text_content()
    assert legend.locator("b").count() == 0
    page.locator(".point path").first.hover(force=True)
    assert page.locator("#tip img").count() == 0


def test_a_page_can_be_read_without_scripts(chromium, pages):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["sweep"])
    assert page.locator('[data-table="matrix0"] tbody tr').count() == 2
    assert page.locator("noscript").first.is_visible()
    assert page.locator(".rank.best .value").is_visible()
    context.close()


def test_tips_tell_all_of_a_choice_and_what_terms_mean(opened, pages):
    page = opened(pages["sweep"])
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator(".rank").nth(1).hover()
    told = tip.inner_text()
    for words in ("plan Megatron", "global batch size", "peak memory", "offers, 20", "evidence"):
        assert words in told
    assert re.search(r"^cost .+ \(.+ to .+\)$", told, re.MULTILINE)
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    page.locator("#answer abbr").first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert tip.inner_text().startswith("copies of the model")


def test_colours_are_hidden_and_points_mark_their_rows(opened, pages):
    page = opened(pages["sweep"])
    points = page.locator(".point")
    every = points.count()
    page.locator(".legend button").first.click()
    assert 0 < points.count() < every
    page.locator(".legend button").first.click()
    assert points.count() == every
    page.locator(".point path").first.click(force=True)
    assert page.locator("tr.chosen").count() == 1


def test_a_print_begins_each_section_on_a_page_of_its_own(opened, pages):
    page = opened(pages["train.json"])
    page.emulate_media(media="print")
    assert page.locator(".filter").first.is_hidden()
    breaks = page.evaluate(
        "[...document.querySelectorAll('main > section')]"
        ".map((one) => getComputedStyle(one).breakBefore)"
    )
    assert breaks[:2] == ["auto", "auto"]
    assert {*breaks[2:]} == {"page"}


def test_charts_are_downloads_and_tables_are_copied(opened, pages, tmp_path):
    """The file of a chart has what is drawn; the copied text has a line for each shown row."""
    page = opened(pages["serve.json"])
    for number, chart in enumerate(page.locator("figure.chart").all()):
        with page.expect_download() as download:
            chart.get_by_text("Download this chart").click()
        path = tmp_path / f"{number}.svg"
        download.value.save_as(path)
        text = path.read_text()
        assert text.startswith("<svg")
        assert "foreignObject" in text
        assert chart.locator("figcaption").inner_text() in text
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => "
        "{ window.copied = text; }}})"
    )
    table = page.locator('[data-table="front"]')
    table.get_by_text("Copy as table").click()
    lines = page.evaluate("window.copied").splitlines()
    assert len(lines) == 1 + table.locator("tbody tr").count()
    assert {line.count("\t") for line in lines} == {table.locator("th").count() - 1}


def test_a_day_has_an_axis_of_time_and_steps(opened, planner, tmp_path):
    result, page_file = tmp_path / "day.json", tmp_path / "day.html"
    planner(
        "size", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--engine",
        "vllm", "--mode", "aggregated", "--input-tokens", "500", "--output-tokens", "100",
        "--load", "day.csv", "--json", result, "--quiet",
    )  # fmt: skip
    planner("report", result, "--output", page_file)
    chart = opened(page_file.as_uri()).locator('[data-chart="day"]')
    texts = chart.locator("svg text").all_text_contents()
    assert {"00:00", "12:00", "24:00"} <= {*texts}
    assert chart.locator("svg path.steps").count() == 1
    assert chart.locator("svg g.point").count() == 24


@pytest.mark.slow
def test_a_published_run_tells_its_source_and_date(opened, planner, tmp_path):
    result, page_file = tmp_path / "front.json", tmp_path / "front.html"
    planner(
        "search", "--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "b200", "--gpus",
        "8", "--engine", "vllm", "--input-tokens", "1024", "--output-tokens", "1024", "--json",
        result, "--quiet",
    )  # fmt: skip
    planner("report", result, "--output", page_file)
    page = opened(page_file.as_uri())
    point = page.locator("g.point.measured").last
    point.scroll_into_view_if_needed()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    point.hover()  # after the scroll, which hides a tip
    tip = page.locator("#tip").inner_text()
    assert re.search(r"source InferenceX .*\ndate 20\d\d-\d\d-\d\d", tip), tip
