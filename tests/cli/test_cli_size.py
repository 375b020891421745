from __future__ import annotations

import io
import json
import re

import pandas as pd
import pytest

from planner.specs.catalogue import Catalogue

TRAIN = (
    "size", "--model", "llama-7b", "--framework", "megatron-lm", "--space", "small",
    "--tokens", "100B", "--confidence", "0.9", "--full",
)  # fmt: skip
SERVE = (
    "size", "--workload", "serve", "--model", "llama-3.1-8b", "--engine", "vllm", "--input-tokens",
    "2000", "--output-tokens", "300", "--ttft", "1s", "--tpot", "40ms", "--full", "--mode",
    "aggregated",
)  # fmt: skip


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_training_is_sized_by_its_deadline(planner):
    ran = planner(*TRAIN, "--gpu", "h100,a100,t4", "--deadline", "13d")
    assert ran.exit_code == 0
    assert ran.err == ""
    told = words_of(ran.out)
    for words in (
        "GPUs to train LLaMA 7B, 100 billion tokens",
        "calendar time at most 13.0 days",
        "Sized to be 90 % likely to keep each limit",
        "Cheapest: ",
        "of 13.0 days at 90 %",
        "to spare; predicted",
        "Not possible: t4: nothing is possible: the GPU lacks this precision",
    ):
        assert words in told
    assert told.index("h100-sxm-80gb") < told.index("a100-sxm-80gb")


@pytest.mark.slow
@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_piped_output_is_plain_and_fits(planner, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for command in (
        (*TRAIN, "--gpu", "h100,a100,t4", "--deadline", "13d"),
        (*SERVE, "--mode", "aggregated", "--gpu", "h100,h200", "--request-rate", "50"),
    ):
        out = planner(*command).out
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= columns
        assert " ..." not in out


def test_a_service_is_sized_by_its_rate(planner):
    sure = planner(*SERVE, "--gpu", "h100", "--request-rate", "20", "--confidence", "0.9")
    unsaid = planner(*SERVE, "--gpu", "h100", "--request-rate", "20")
    plain = planner(*SERVE, "--gpu", "h100", "--request-rate", "20", "--confidence", "0.5")
    assert unsaid.out == sure.out
    assert "request rate" in words_of(sure.out)
    assert "20.0/s at 90 %" in words_of(sure.out)
    assert "Sized at the predictions: 50 % likely to keep each limit" in plain.out
    assert "at 90 %" not in plain.out


@pytest.mark.slow
def test_rows_go_to_files(planner, tmp_path):
    csv, document = tmp_path / "sizes.csv", tmp_path / "sizes.json"
    ran = planner(
        *TRAIN[:-1], "--gpu", "h100,t4", "--deadline", "13d", "--contract", "on-demand,spot",
        "--csv", csv, "--json", document, "--quiet",
    )  # fmt: skip
    assert (ran.exit_code, ran.out, ran.err) == (0, "", "")
    frame = pd.read_csv(csv)
    assert set(frame.loc[frame["feasible"], "contract"]) == {"on-demand", "spot"}
    assert set(frame.loc[~frame["feasible"], "gpu"]) == {"t4"}
    found = frame[frame["feasible"]]
    assert (found["sure_calendar_time_days"] <= found["limit_calendar_time_days"]).all()
    left = found["limit_calendar_time_days"] - found["sure_calendar_time_days"]
    assert found["spare_calendar_time_days"].tolist() == pytest.approx(left.tolist())
    written = json.loads(document.read_text())
    assert len(written["rows"]) == len(frame)
    assert written["manifest"]["confidence"] == 0.9
    assert written["manifest"]["constraints"] == {"calendar_time": 13 * 86400}
    assert json.loads((tmp_path / "sizes.manifest.json").read_text())["version"]


def test_what_a_size_rests_on_is_told(planner, tmp_path):
    csv = tmp_path / "sizes.csv"
    ran = planner(*TRAIN, "--gpu", "h100", "--deadline", "13d", "--csv", csv)
    rows = pd.read_csv(csv).query("feasible").set_index("gpu")
    h100 = rows.loc[["h100-sxm-80gb"]].iloc[0]
    offer = Catalogue().price("h100-sxm-80gb")
    assert (h100["price_offers"], h100["price_date"]) == (offer.offers, offer.when)
    assert h100["price_per_gpu_hour_usd"] == pytest.approx(offer.value * 3600)
    assert set(rows["basis"]) <= {"measured", "transferred", "roofline"}
    assert re.search(r"gpu efficiency \(\d+ numbers\)", h100["assumed"])
    told = words_of(ran.out)
    assert "Assumed, without a source: " in told
    assert h100["assumed"] in told
    assert f"h100-sxm-80gb on-demand {offer.value * 3600:.2f} USD (median of" in told
    assert f"{offer.offers} offers, {offer.when})" in told


@pytest.mark.slow
def test_another_contract_than_the_usual_is_told(planner):
    ran = planner(*TRAIN, "--gpu", "mi350x", "--deadline", "13d", "--framework", "megatron-lm")
    assert "No on-demand price known, priced as: mi350x reserved-1y" in words_of(ran.out)
    asked = planner(*TRAIN, "--gpu", "mi350x", "--deadline", "13d", "--contract", "reserved-1y")
    assert "No on-demand price" not in asked.out
    usual = planner(*TRAIN, "--gpu", "h100", "--deadline", "13d", "--price", "2.5")
    assert "No on-demand price" not in usual.out
    assert "h100-sxm-80gb on-demand 2.50 USD (as specified)" in words_of(usual.out)


def test_rows_on_stdout_leave_the_report_to_stderr(planner):
    ran = planner(*TRAIN, "--gpu", "h100", "--deadline", "13d", "--csv", "-")
    frame = pd.read_csv(io.StringIO(ran.out))
    assert "Cheapest" in ran.err
    assert frame["feasible"].all()


def test_a_day_is_a_row_for_each_hour(planner, tmp_path):
    load = tmp_path / "day.csv"
    rates = "".join(f"{hour},{46 * (hour // 8)}\n" for hour in range(24))
    load.write_text(f"hour,request_rate\n{rates}")
    csv = tmp_path / "hours.csv"
    ran = planner(*SERVE, "--mode", "aggregated", "--gpu", "h100", "--load", load, "--csv", csv)
    told = words_of(ran.out)
    assert "the load of day.csv with 92 at its peak" in told
    assert "Hour by hour on h100-sxm-80gb" in told
    frame = pd.read_csv(csv)
    assert frame["time"].tolist() == [f"{hour:02d}:00" for hour in range(24)]
    assert frame["num_gpus"].is_monotonic_increasing
    assert frame["basis"].notna().all()
    assert frame["assumed"].notna().all()
    assert (frame["num_gpus"] <= frame["base_gpus"] + frame["on_demand_gpus"]).all()


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ((), 3, "Give what the GPUs must reach: one or more of --calendar-time"),
        (("--deadline", "1h", "--gpu", "a100"), 4, "Not possible: a100: calendar time"),
        (("--deadline", "13d", "--contract", "weekly"), 3, "--contract is one of on-demand"),
        (("--deadline", "13d", "--confidence", "2"), 3, "--confidence is a share"),
        (("--deadline", "13d", "--confidence", "0.99"), 3, "--confidence is from 0.5"),
        (("--deadline", "13d", "--gpu", "h1000"), 2, "h1000"),
        (("--deadline", "13d", "--csv", "/nowhere/there.csv"), 8, "there is no folder"),
        (("--deadline", "13d", "--workers", "0"), 3, "--workers"),
        (("--deadline", "13d", "--load", "no.csv"), 2, "no.csv"),
        (("--deadline", "13"), 3, "needs a unit"),
    ],
)
def test_errors(planner, more, code, words):
    ran = planner(*TRAIN, *more)
    assert words in words_of(ran.err)
    assert ran.exit_code == code
    assert ran.out == ""


def test_faults_of_a_question_are_told_at_once(planner):
    ran = planner("size", "--workload", "serve", "--model", "llama-7b", "--gpus", "8")
    assert ran.exit_code == 3
    assert "--request-rate" in ran.err
    assert "leave out --gpus" in ran.err


@pytest.mark.slow
def test_what_is_asked_and_assumed_of_a_service_is_told(planner):
    asked = ("--workload", "serve", "--model", "llama-3.1-8b", "--engine", "vllm", "--gpu", "h100",
             "--request-rate", "20", "--set", "quantization=fp8", "--mode=aggregated")  # fmt: skip
    lines = words_of(
        planner("size", "--full", *asked, "--draft-tokens", "0,2", "--draft-method=eagle3").out
    )
    varied = "lengths vary by 100 % and 100 %, 20 per second, "
    assert f"Requests: 1,024 tokens in, 1,024 out, {varied}2 draft tokens" in lines
    told = "Assumed: input tokens 1,024; output tokens 1,024; input variation 1; output variation 1"
    assert f"{told}; TTFT at most 2.00 s; TPOT at most 50 ms Sized" in lines
    alike = ("--input-tokens", "2000", "--input-variation", "0", "--output-variation", "0")
    lines = planner("size", "--full", *asked, *alike, "--shared-prefix-tokens", "900").out
    assert "Requests: 2,000 tokens in, 1,024 out, 20 per second, 900 tokens shared" in lines
    assert "Assumed: output tokens 1,024; TTFT at most " in words_of(lines)


def test_a_megawatt_is_a_question(planner, tmp_path):
    words = ("--mode", "aggregated", "--power", "1MW", "--csv", str(tmp_path / "a.csv"))
    ran = planner(*SERVE, "--gpu", "h100,b200", *words)
    assert ran.exit_code == 0
    told = words_of(ran.out)
    assert "as much as 1,000 kW carry" in told
    assert "Within 1,000 kW, the most tokens first" in told
    assert "published API prices" in told
    rows = pd.read_csv(tmp_path / "a.csv")
    assert (rows["power_kw"] <= 1000).all()
    assert rows["output_tokens_per_s"].is_monotonic_decreasing
    assert {"gpus_per_megawatt", "users_per_megawatt", "profit_per_hour_usd"} <= {*rows.columns}


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("--power", "3kW"), 4, "a node of 8 draws"),
        (("--budget", "1USD/h", "--price", "2"), 4, "below one GPU at 2.00 USD an hour"),
        (("--budget", "2MUSD"), 3, "say --budget per hour, day, month or year"),
        (("--budget", "2MUSD/fortnight"), 3, "'fortnight' is no period"),
        (("--budget", "lots/day"), 3, "--budget lots/day"),
        (("--startup-time", "5min", "--request-rate", "3"), 3, "--startup-time needs --load"),
        (("--stock", "h100=3", "--request-rate", "3"), 3, "--stock needs --services"),
    ],
)
def test_what_no_bound_allows_is_told(planner, asked, code, words):
    ran = planner(*SERVE, "--gpu", "h100", *asked)
    assert ran.exit_code == code
    assert words in words_of(ran.err)


@pytest.mark.slow
def test_services_share_a_stock(planner, tmp_path):
    path, out = tmp_path / "services.toml", tmp_path / "services.json"
    path.write_text(
        'input_tokens = 2000\noutput_tokens = 300\nengine = "vllm"\n'
        '[services.a]\nmodel = "llama-3.1-8b"\nrequest_rate = 30\n'
        '[services.b]\nmodel = "llama-3.1-8b"\nrequest_rate = 3\nttft = "500ms"\n'
    )
    asked = ("size", "--services", str(path), "--stock", "h100=16", "--price", "2")
    ran = planner(*asked, "--json", str(out))
    assert ran.exit_code == 0, ran.err
    assert "2 services on" in words_of(ran.out)
    written = json.loads(out.read_text())
    assert [row["service"] for row in written["rows"]] == ["a", "b"]
    (pool,) = written["pools"]
    assert pool["most_gpus"] == sum(row["num_gpus"] for row in written["rows"])
    assert pool["cost_usd"] == pytest.approx(48 * pool["most_gpus"])
    few = planner("size", "--services", str(path), "--stock", "h100=1", "--price", "2")
    assert few.exit_code == 4
    assert "The stock is too small" in words_of(few.err)
    assert planner(*asked, "--load", "day.csv").exit_code == 3
