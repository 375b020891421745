"""Forms, progress and answers in a browser."""

from __future__ import annotations

import time

import httpx
import pytest
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
    page = opened(f"{address}/search")
    page.fill("#ask [name=model]", "llama-7b")
    page.fill("#ask [name=num_gpus]", "8")
    page.locator("summary", has_text="The configuration").click()
    page.fill("#ask [name=settings]", "tp=1,2 zero=1")
    page.fill("#ask [name=space]", "small")
    command = "planner search --model llama-7b --gpus 8 --space small --set tp=1,2 --set zero=1"
    assert page.locator("#command").text_content() == command
    page.keyboard.press("Enter")
    _wait_for(page, _ANSWERED)
    assert "?model=llama-7b&num_gpus=8&space=small&settings=tp" in page.url
    assert page.locator("#command").text_content() == command
    assert page.locator("#ask [name=settings]").input_value() == "tp=1,2 zero=1"
    _wait_for(page, "document.querySelectorAll('.chart :is(svg, .ranking, .stack)').length > 2")
    again = opened(page.url, 400, "dark")
    _wait_for(again, _ANSWERED)
    told = ".sentence >> nth=0"
    assert again.locator(told).text_content() == page.locator(told).text_content()
    assert again.evaluate("document.documentElement.scrollWidth <= innerWidth")
    link = again.locator("a", has_text="The same as JSON").get_attribute("href")
    assert httpx.get(address + link, timeout=PATIENCE_S).json()["rows"]


def test_progress_is_told_and_cancelled_and_nothing_goes_on(opened, served, address):
    page = opened(f"{address}/{LONG}")
    _wait_for(page, "document.querySelector('progress').value > 0")
    assert " of " in page.locator(".state").text_content()
    (job,) = served.pool._running
    page.locator("button.cancel").click()
    _wait_for(page, "document.querySelector('#job h1').textContent", "Cancelled")
    assert job.future.exception(timeout=PATIENCE_S).status == 409


def test_nobody_works_for_a_browser_that_left(opened, served, address):
    pages = [opened(f"{address}/{LONG.replace('60d', n)}") for n in ("61d", "62d")]
    _wait_for(pages[0], "document.querySelector('progress').value > 0")
    until(lambda: len(served.pool._waiting) == 1)
    jobs = [*served.pool._running, *served.pool._waiting]
    for page in pages:
        page.context.close()
    assert [job.future.exception(timeout=PATIENCE_S).status for job in jobs] == [409] * 2
    assert httpx.get(f"{address}/api/search?{SMALL}", timeout=PATIENCE_S).status_code == 200


def test_a_fault_keeps_what_was_filled_in(opened, address):
    page = opened(f"{address}/size?model=llama-65b&num_gpus=8&gpu=a100")
    _wait_for(page, "document.querySelector('.fault') !== null")
    assert "--cost" in page.locator("[role=alert]").text_content()
    assert page.locator("#ask [name=model]").input_value() == "llama-65b"


def test_another_workload_keeps_the_model(opened, address):
    page = opened(f"{address}/search?workload=serve")
    page.fill("#ask [name=model]", "llama-3.1-8b")
    page.locator("a", has_text="Static batches").click()
    page.wait_for_url("**/search?model=llama-3.1-8b&workload=inference")


def test_answers_follow_what_is_typed_and_an_earlier_question_is_cancelled(opened, served, address):
    page = opened(f"{address}/search?space=small")
    page.fill("#ask [name=model]", "llama-7b")
    page.locator("#ask [name=num_gpus]").press_sequentially("8")
    _wait_for(page, _ANSWERED)
    assert page.url.endswith("/search?model=llama-7b&num_gpus=8&space=small")
    _wait_for(page, "document.querySelectorAll('.chart :is(svg, .ranking, .stack)').length > 2")
    assert (
        page.locator(".field.took [name=sequence_length]").get_attribute("placeholder") == "2,048"
    )
    assert "llama" in page.locator("#told").text_content().lower()  # what is read aloud
    page.fill("#ask [name=model]", "lama-7b")
    _wait_for(page, "document.querySelector('.old .fault') !== null")
    page.locator(".fixes a", has_text="→ llama-7b").click()
    _wait_for(page, _ANSWERED)
    assert page.locator("#ask [name=model]").input_value() == "llama-7b"
    page.goto(f"{address}/size?model=llama-65b&gpu=all&total_tokens=1T&calendar_time=60d")
    page.locator("#live").check()
    for numbers in ("256,512,1024", "256,512,2048"):
        until(lambda: served.pool._running)
        (earlier,) = served.pool._running
        page.fill("#ask [name=num_gpus]", numbers)
        assert earlier.future.exception(timeout=PATIENCE_S).status == 409
        _wait_for(page, "document.querySelector('.now button') !== null")
    assert page.locator("#job").count() == 0
    page.locator(".now button").click()
    until(lambda: not served.pool._running and not served.pool._waiting)


@pytest.mark.slow
def test_a_slider_moves_the_plan_and_an_answer_is_saved(opened, address):
    page = opened(f"{address}/explain?model=llama-7b&num_gpus=8&settings=zero%3D1")
    _wait_for(page, _ANSWERED)
    told = "document.querySelector('.sentence').textContent.includes('tp2 dp4 mbs1 zero1')"
    assert not page.evaluate(told)
    page.locator("[data-name=tp]").focus()
    page.keyboard.press("ArrowRight")
    _wait_for(page, told)
    assert page.evaluate("document.activeElement.dataset.name") == "tp"
    assert "--set tp=2" in page.locator("#command").text_content()
    page.fill("#save [name=name]", "the small one")
    page.keyboard.press("Enter")
    page.goto(f"{address}/")
    page.locator("#saved a", has_text="the small one").click()
    _wait_for(page, f"document.querySelector('.sentence') !== null && {told}")
    page.goto(f"{address}/")
    page.locator("#saved button").click()
    assert page.locator("#saved").is_hidden()


@pytest.mark.slow
def test_a_script_is_uploaded_and_own_prices_are_kept_with_the_question(opened, address, tmp_path):
    script = tmp_path / "serve.sh"
    script.write_text("vllm serve meta-llama/Llama-3.1-8B --max-model-len 8192\n")
    page = opened(f"{address}/", 400)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_input_files("#upload", [script])
    page.wait_for_url("**workload=serve**")
    _wait_for(page, _ANSWERED)
    assert page.locator(".upload output").text_content() == "serve.sh"
    assert "What the file sets" in page.locator("#answered").text_content()
    page.locator("summary", has_text="Money").click()
    for name, text in (("GPU", "h100"), ("contract", "on-demand"), ("USD/h", "7.77")):
        page.locator(".offer").first.get_by_label(name).fill(text)
    _wait_for(page, "document.querySelector('#answered').textContent.includes('7.77')")
    assert "prices=h100+on-demand%3D7.77" in page.url
    assert page.locator("[data-prices]").get_attribute("href").startswith("data:text/csv")


def test_every_field_has_a_name_and_its_meaning(opened, address):
    page = opened(f"{address}/explain?workload=serve")
    unnamed = """[...document.querySelectorAll('#ask input:not([type=hidden]), #ask select')]
      .filter((one) => !one.labels.length && !one.getAttribute('aria-label')).length"""
    assert page.evaluate(unnamed) == 0
    lost = """[...document.querySelectorAll('[aria-describedby]')]
      .filter((one) => !document.getElementById(one.getAttribute('aria-describedby'))).length"""
    assert page.evaluate(lost) == 0


_PAGES = (
    "",
    "explain?model=llama-7b&num_gpus=8&settings=zero%3D1",
    "sweep?model=llama-7b&gpu=a100,h100&num_gpus=8,16&space=small",
    "search?model=lama-7b&num_gpus=8",
)
# The ratio of the luminances of a text and of the ground behind it.
_CONTRAST = """(name) => {
  const shown = (color) => {
    const one = document.createElement("canvas").getContext("2d");
    one.fillStyle = color;
    one.fillRect(0, 0, 1, 1);
    return [...one.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  };
  const light = (color) => {
    const [red, green, blue] = shown(color);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const text = light(getComputedStyle(document.querySelector(name)).color);
  const ground = light(getComputedStyle(document.body).backgroundColor);
  return Math.max(text, ground) / Math.min(text, ground);
}"""


def test_pages_stay_within_their_width_and_are_read_on_light_and_dark(opened, address):
    names = (".assumptions b", ".hint", ".card span", ".fault pre")
    page = opened(address)
    for path in _PAGES:
        page.goto(f"{address}/{path}")
        _wait_for(page, "document.querySelector('#job, [aria-busy]')", None)
        page.wait_for_load_state("load")  # an answer may take the place of the page
        # What fits does not depend on the colours, and those not on the width.
        for width in (400, 1100, 1900):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            for name in names:
                if page.locator(name).count():
                    assert page.evaluate(_CONTRAST, name) >= 4.5, (path, scheme, name)


@pytest.mark.slow
def test_a_day_several_services_and_a_budget_are_decided_in_the_browser(opened, address, tmp_path):
    """What the command line is given with files and money is given in the form."""
    day, services = tmp_path / "chat.csv", tmp_path / "both.toml"
    day.write_text("time,request_rate\n00:00,2\n08:00,9\n")
    services.write_text(
        'model = "llama-3.1-8b"\n[services.chat]\nload = "chat.csv"\n[services.code]\n'
        "request_rate = 3\n"
    )
    service = "workload=serve&gpu=h100&engine=vllm&mode=aggregated&price=3"
    page = opened(f"{address}/size?{service}&model=llama-3.1-8b")
    page.set_input_files("#f-load", [day])
    _wait_for(page, _ANSWERED)
    assert "--load chat.csv" in page.locator("#command").text_content()
    assert "What does a day need?" in page.locator("#answered").text_content()
    assert "A day of" in page.locator(".headline").text_content()
    page.goto(f"{address}/size?{service}&stock=h100%3D40")
    page.set_input_files("#f-services", [day, services])  # in any order
    _wait_for(page, _ANSWERED)
    assert "--services both.toml" in page.locator("#command").text_content()
    assert "2 services run on" in page.locator(".headline").text_content()
    assert {"chat", "code", "40"} <= {*page.locator("#answered td").all_text_contents()}
    link = page.locator("a", has_text="The same as JSON").get_attribute("href")
    assert httpx.get(address + link, timeout=PATIENCE_S).json()["pools"]
    page.goto(f"{address}/size?{service}&model=llama-3.1-8b")
    page.fill("#f-budget", "20kUSD/month")
    page.keyboard.press("Enter")
    _wait_for(page, _ANSWERED)
    assert "--budget 20kUSD/month" in page.locator("#command").text_content()
    assert "output tokens/s" in page.locator(".headline").text_content()
    page.fill("#f-budget", "20kUSD/fortnight")
    page.keyboard.press("Enter")
    _wait_for(page, "document.querySelector('.fault') !== null")
    assert "is no period" in page.locator("[role=alert]").text_content()
