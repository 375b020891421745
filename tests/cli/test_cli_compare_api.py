"""``--compare-api``: what is printed and written beside the answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

SEARCH = (
    "search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2",
    "--engine", "vllm", "--set", "concurrency=16,64", "--set", "quantization=w16a16", "--mode",
    "aggregated",
)  # fmt: skip
ONE = (
    "estimate", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "2",
    "--engine", "vllm", "--set", "concurrency=16",
)  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_search_ends_with_the_comparison(planner, monkeypatch, columns):
    plain = planner(*SEARCH)
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = planner(*SEARCH, "--compare-api")
    assert (ran.exit_code, ran.err) == (0, "")
    answer, told, compared = ran.out.partition("\nSelf-host or API: ")
    assert told
    assert " ".join(compared.split()).startswith("1,024 input and 1,024 output tokens a request")
    assert columns != 80 or answer == plain.out
    assert "per hour, busy or not" in compared
    assert "(median)" in compared
    assert "groq" in compared
    assert ran.out.isascii()
    assert max(map(len, ran.out.splitlines())) <= columns
    assert all(line == line.rstrip() for line in ran.out.splitlines())


def test_in_short_few_offers_in_full_all_with_the_old(planner):
    short = planner(*SEARCH, "--compare-api").out.partition("\nSelf-host or API")[2]
    full = planner(*SEARCH, "--compare-api", "--full").out.partition("\nSelf-host or API")[2]
    assert (
        "undated"
        not in short.partition("priced")[2].partition("more offers")[0].rpartition("\n")[0]
    )
    assert re.search(r"\d+ more offers, \d+ of them old or undated", short)
    assert "undated" in full
    assert re.search(r"old: 2025-\d\d-\d\d", full)
    assert "more offers" not in full


def test_the_load_that_was_asked_for_has_its_own_line(planner):
    asked = (*SEARCH[:7], "--engine", "vllm", "--mode", "aggregated", "--request-rate", "3")
    out = planner(*asked, "--compare-api").out
    assert "At the 3.00 requests/s requested" in out
    assert re.search(r"less than \d+ of \d+\s+offers", out)


@pytest.mark.slow
def test_json_has_the_comparison_of_both_commands(planner, tmp_path):
    for command in (SEARCH, ONE):
        path = tmp_path / f"{command[0]}.json"
        planner(*command, "--json", path, "--quiet", "--compare-api", "--price", "2")
        found = json.loads(path.read_text())["api"]
        assert found["cost_per_hour_usd"] == pytest.approx(4.0)
        assert found["offers"]
        assert found["offers"][0]["break_even_requests_per_s"] > 0
        planner(*command, "--json", path, "--quiet")
        assert "api" not in json.loads(path.read_text())


def test_cached_tokens_without_a_price_are_charged_as_input_and_that_is_said(planner):
    assert "* no price for cached tokens" not in planner(*ONE, "--compare-api").out
    out = planner(*ONE, "--compare-api", "--prefix-cache-hit-rate", "0.5").out
    assert "1,024 input (512 cached)" in out
    assert "* no price for cached tokens is published: they are charged as other input" in out


def test_a_model_or_a_gpu_without_price_is_told_and_the_answer_still_there(planner):
    ran = planner(*ONE, "--model", "llama-2-7b", "--compare-api", "--full")
    assert ran.exit_code == 0
    assert "Memory of the fullest GPU" in ran.out
    assert "No API price of llama-2-7b is known. Did you mean llama-" in ran.out
    ran = planner(*ONE, "--gpu", "h800", "--compare-api")
    assert ran.exit_code == 0
    assert "the price of the GPUs is unknown: give --price" in ran.out
    assert "groq" in ran.out


def test_the_help_of_serving_alone_has_it(planner):
    for workload, is_there in (("serve", True), ("train", False), ("inference", False)):
        assert (
            "--compare-api" in planner("search", "--workload", workload, "--help").out
        ) is is_there


def test_what_it_does_not_go_with(planner):
    ran = planner("search", "--model", "llama-7b", "--gpus", "8", "--compare-api")
    assert (ran.exit_code, ran.err) == (3, "--compare-api is for --workload serve.\n")
    ran = planner(*SEARCH, "--compare-api", "--quiet")
    assert ran.exit_code == 3
    assert "--compare-api needs the report or --json" in ran.err


@pytest.mark.slow
def test_a_faulty_list_is_told_before_the_search_with_every_fault(
    planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("planner.optimize.exhaustive.exhaustive_search", None)
    list_ = tmp_path / "api_prices.csv"
    list_.write_text("provider,model,input_usd_per_mtok,output_usd_per_mtok\na,b,x,1\n,c,1,1\n")
    for command in (SEARCH, ONE):
        ran = planner(*command, "--specs", tmp_path, "--compare-api")
        assert (ran.exit_code, ran.out) == (2, "")
        assert ran.err.splitlines() == [
            f"{list_}:2: input_usd_per_mtok 'x' is not a number.",
            f"{list_}:3: provider is empty.",
        ]
    ran = planner("specs", "validate", "--specs", tmp_path)
    assert ran.exit_code == 2
    assert f"{list_}:3: provider is empty." in ran.err
    assert planner(*ONE, "--specs", tmp_path).exit_code == 0


@pytest.mark.slow
def test_an_estimate_tells_what_tokens_of_each_kind_cost(planner):
    out = planner(*ONE, "--prefix-cache-hit-rate", "0.5", "--price", "3", "--full").out
    (line,) = (line for line in out.splitlines() if line.startswith("cost of tokens"))
    assert re.fullmatch(
        r"cost of tokens +[\d.]+ in, [\d.]+ cached, [\d.]+ out, USD per million", line
    )
    assert "cached" not in planner(*ONE, "--price", "3", "--full").out
    batch = planner("estimate", "--workload", "inference", *ONE[3:], "--full")
    assert re.search(r"\ncost of tokens +[\d.]+ in, [\d.]+ out, USD per million\n", batch.out)
    run = planner("estimate", "--model", "llama-7b", "--gpus", "8", "--set", "tp=8", "--full")
    assert re.search(r"\nPFLOP/s-day +\d+ USD\n", run.out)
    assert "cost of tokens" not in planner(*ONE, "--gpu", "h800", "--full").out
