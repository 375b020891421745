"""Forms, progress and answers in a browser."""

from __future__ import annotations

import time

import httpx
from playwright.sync_api import Error
from served import LONG, PATIENCE_S, SMALL, until


def _wait_for(page, expression, value=True):
    """Ask until it is so; a page that goes on to another one cannot be asked."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            if page.evaluate(expression) == value:
                return
        except Error as error:
            if "navigation" not in str(error):
                raise
        page.wait_for_timeout(20)
    raise AssertionError(f"{expression} is not {value} on {page.url}")


_ANSWERED = "document.readyState === 'complete' && document.querySelector('.answer') !== null"


def test_a_form_becomes_a_command_an_answer_and_a_link(opened, address):
    page = opened(f"{address}/")
    page.fill("[name=model]", "llama-7b")
    page.fill("[name=num_gpus]", "8")
    page.locator("summary", has_text="The configuration").click()
    page.fill("[name=settings]", "tp=1,2 zero=1")
    page.fill("[name=space]", "small")
    command = "planner search --model llama-7b --gpus 8 --space small --set tp=1,2 --set zero=1"
    assert page.locator("#command").text_content() == command
    page.keyboard.press("Enter")
    _wait_for(page, _ANSWERED)
    assert "?model=llama-7b&num_gpus=8&space=small&settings=tp" in page.url
    assert page.locator("#command").text_content() == command
    assert page.locator("[name=settings]").input_value() == "tp=1,2 zero=1"
    _wait_for(page, "document.querySelectorAll('.chart :is(svg, .ranking, .stack)').length > 2")
    again = opened(page.url, 400, "dark")
    _wait_for(again, _ANSWERED)
    told = ".sentence >> nth=0"
    assert again.locator(told).text_content() == page.locator(told).text_content()
    assert again.evaluate("document.documentElement.scrollWidth <= innerWidth")
    link = again.locator("a", has_text="The same as JSON").get_attribute("href")
    assert httpx.get(address + link, timeout=60).json()["rows"]


def test_progress_is_told_and_cancelled_and_nothing_goes_on(opened, served, address):
    page = opened(f"{address}/{LONG}")
    _wait_for(page, "document.querySelector('progress').value > 0")
    assert " of " in page.locator(".state").text_content()
    (job,) = served.pool._running
    page.locator("button.cancel").click()
    _wait_for(page, "document.querySelector('#job h1').textContent", "Cancelled")
    assert job.future.exception(timeout=PATIENCE_S).status == 409


def test_nobody_works_for_a_browser_that_left(opened, served, address):
    pages = [opened(f"{address}/{LONG.replace('60d', n)}") for n in ("61d", "62d", "63d")]
    _wait_for(pages[0], "document.querySelector('progress').value > 0")
    until(lambda: len(served.pool._waiting) == 2)
    jobs = [*served.pool._running, *served.pool._waiting]
    for page in pages:
        page.context.close()
    assert [job.future.exception(timeout=PATIENCE_S).status for job in jobs] == [409] * 3
    assert httpx.get(f"{address}/api/search?{SMALL}", timeout=PATIENCE_S).status_code == 200


def test_a_fault_keeps_what_was_filled_in(opened, address):
    page = opened(f"{address}/size?model=llama-65b&num_gpus=8&gpu=a100")
    _wait_for(page, "document.querySelector('.fault') !== null")
    assert "--cost" in page.locator("[role=alert]").text_content()
    assert page.locator("[name=model]").input_value() == "llama-65b"


def test_another_workload_keeps_the_model(opened, address):
    page = opened(f"{address}/search?workload=serve")
    page.fill("[name=model]", "llama-3.1-8b")
    page.locator("a", has_text="Static batches").click()
    page.wait_for_url("**/search?model=llama-3.1-8b&workload=inference")
