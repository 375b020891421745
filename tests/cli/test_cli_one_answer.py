"""Whatever way a row is read back, its estimate has the same values and the same intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from commands import Command

import planner as package
from planner.specs.catalogue import Catalogue
from planner.specs.software_profile import runs_on

CATALOGUE = Catalogue(None)
PACKAGE = Path(package.__file__).parent
PROFILES = {
    kind: sorted((PACKAGE / f"{kind}_profiles").glob("*.toml")) for kind in ("framework", "engine")
}
CASES = [
    *(("train", path.stem) for path in PROFILES["framework"]),
    *(("rl", path.stem) for path in PROFILES["framework"] if "[rollouts" in path.read_text()),
    *product(("serve", "inference"), (path.stem for path in PROFILES["engine"])),
]
GPUS = ("h100", "a100", "rtx-4090", "mi300x", "gaudi2", "trn2", "tpu-v5p", "m2-ultra")
FURTHER = {
    "train": (
        "--samples 10000 --epochs 2",
        "--tokens 1B",
        "--training-objective dpo",
        "--lora-rank 8",
        "--dropout",
        "--mean-sample-length 600",
        "--padding longest",
        "--campaign-factor 1",
        "--host-memory 512GiB",
        "--flops-efficiency 0.4",
        "--precision bf16,fp8",
        "--adapter none,lora",
        "--region FR",
    ),
    "serve": (
        "--request-rate 2",
        "--num-requests 100",
        "--prefix-cache-hit-rate 0.5",
        "--shared-prefix-tokens 200",
        "--turns 3",
        "--equal-lengths",
        "--lengths sharegpt",
        "--draft-tokens 0,2",
        "--max-num-seqs 64",
        "--enforce-eager",
        "--max-model-len 8192",
        "--lora-rank 16",
        "--users 200",
        "--arrival-variation 2",
        "--mode disaggregated",
        "--engine-version 0.6.4",
    ),
    "inference": (
        "--draft-tokens 2",
        "--max-num-seqs 64",
        "--enforce-eager",
        "--flops-efficiency 0.5",
        "--prefix-cache-hit-rate 0.5",
        "--output-tokens 0",
        "--lora-rank 16",
    ),
    "rl": (
        "--adapter lora",
        "--critic",
        "--reference-model",
        "--update-epochs 2",
        "--reward-time 5s",
        "--flat-groups 0.2",
        "--output-cap 2000",
        "--output-variation 0.5",
        "--engine sglang",
        "--max-num-seqs 64",
        "--host-memory 2TiB",
    ),
}
OF_ALL = (
    "--ideal",
    "--currency EUR",
    "--contract on-demand",
    "--contract owned",
    "--utilization 0.5",
    "--gpus 2,8",
    "--inter-node-efficiency 0.5",
    "--confidence 0.9",
)
NOT_OF_A_ROW = {
    "rejected_by",  # a search lists what nothing rejects
    "limits_probability",  # of the limits of the question
    "largest_batch",  # an estimate looks for it
    *("recommended", "rank", "tied"),  # among the plans of a search
    "scaling_efficiency",  # against other numbers of GPUs of the search
    "draft_tokens",  # a column where a search compares several
}


def gpu_of(kind: str, profile: str) -> str:
    """A GPU that the software runs on."""
    spec = CATALOGUE.load_profile(kind, profile).spec
    return next(gpu for gpu in GPUS if runs_on(spec, CATALOGUE.load_gpu(gpu).spec))


def question(workload: str, profile: str, draw: Random) -> list[str]:
    """A question that users ask of a workload, on few GPUs."""
    kind = "framework" if workload in ("train", "rl") else "engine"
    asked = {
        "workload": workload,
        kind: profile,
        "gpu": gpu_of(kind, profile),
        "model": draw.choice(["llama-3.1-8b", "qwen3-4b", "llama-7b"]),
        "gpus": draw.choice(["1", "4", "8"]) if workload != "rl" else "8",
        "price": draw.choice(["2.5", None]),
        **OF_WORKLOAD[workload](draw),
    }
    words = {f"--{name}": [value] for name, value in asked.items() if value}
    for further in draw.sample([*FURTHER[workload], *OF_ALL], 2):
        option, *values = further.split()
        words[option] = values
    return [word for option, values in words.items() for word in (option, *values)]


def _trained(draw: Random) -> Mapping[str, str | None]:
    return {
        "adapter": draw.choice([None, None, "lora", "qlora"]),
        "sequence-length": draw.choice([None, "1024"]),
        "steps": draw.choice([None, "500"]),
        "global-batch-size": draw.choice(["16", "64"]),
    }


def _generated(draw: Random) -> Mapping[str, str | None]:
    return {
        "algorithm": draw.choice([None, "dapo", "rloo"]),
        "prompts": draw.choice(["32", "64"]),
        "samples-per-prompt": "8",
        "output-tokens": draw.choice([None, "500"]),
        "micro-batch-tokens": draw.choice([None, "16384"]),
        "steps": draw.choice([None, "200"]),
    }


def _served(draw: Random) -> Mapping[str, str | None]:
    return {
        "input-tokens": draw.choice([None, "500"]),
        "output-tokens": draw.choice([None, "100"]),
        "set": draw.choice(["concurrency=1,8,32", None]),
    }


OF_WORKLOAD = {
    "train": _trained,
    "rl": _generated,
    "serve": lambda draw: {**_served(draw), "mode": "aggregated"},
    "inference": lambda draw: {**_served(draw), "set": None},
}


def searched(planner: Command, folder: Path, workload: str, profile: str, draw: Random) -> Any:
    """The JSON file of the first drawn search that finds a plan; a plan and a CSV file beside."""
    for _ in range(20):
        asked = question(workload, profile, draw)
        files = [("--json", "r.json"), ("--csv", "r.csv"), ("--save-plan", "p.toml")]
        written = [word for option, name in files for word in (option, folder / name)]
        ran = planner("search", *asked, *written, "--quiet")
        assert "such option" not in ran.err
        if ran.exit_code == 0:
            return json.loads((folder / "r.json").read_text())
    pytest.fail(f"no search of {profile} finds a plan: {ran.err}")


def estimated(planner: Command, folder: Path, *asked: str | Path | int) -> Mapping[str, Any]:
    """The row of an estimate."""
    path = folder / "again.json"
    ran = planner("estimate", *map(str, asked), "--json", path, "--quiet")
    assert ran.exit_code == 0, (asked, ran.err)
    (row,) = json.loads(path.read_text())["rows"]
    return dict(row)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that another does not have, or has otherwise."""
    names = dict.fromkeys(name for name in (*one, *other) if name not in NOT_OF_A_ROW)
    both = {name: (one.get(name, "absent"), other.get(name, "absent")) for name in names}
    return {name: pair for name, pair in both.items() if not is_same(*pair)}


def is_same(one: object, other: object) -> bool:
    """Whether two cells are equal; numbers of many rows at once differ in their last bits."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other or {one, other} == {None, ""}  # as CSV files have both


@pytest.mark.few(1)
@pytest.mark.parametrize(("workload", "profile"), CASES)
def test_a_row_is_the_same_wherever_it_is_read(planner, tmp_path, workload, profile, seed):
    if workload == "serve" and not CATALOGUE.load_engine(profile).spec.scheduler.serves:
        workload = "inference"
    draw = Random(f"{seed} {workload} {profile}")
    found = searched(planner, tmp_path, workload, profile, draw)
    rows, number = found["rows"], draw.randint(1, len(found["rows"]))
    best = found["recommended_row"]
    for asked, row in (
        (("--plan", tmp_path / "p.toml"), best),
        (("--from", tmp_path / "r.json"), best),
        (("--from", tmp_path / "r.json", "--row", number), rows[number - 1]),
        (("--from", tmp_path / "r.csv", "--row", number), rows[number - 1]),
    ):
        assert differences(row, estimated(planner, tmp_path, *asked)) == {}, asked


SMALL = {
    "train": ("--model", "llama-7b", "--gpus", "8", "--adapter", "lora"),
    "inference": ("--model", "llama-3.1-8b", "--gpus", "1", "--input-tokens", "300"),
    "serve": ("--model", "llama-3.1-8b", "--request-rate", "5", "--max-num-seqs", "64"),
    "rl": (
        *("--model", "qwen3-8b", "--gpus", "8", "--prompts", "32", "--samples-per-prompt", "4"),
        *("--framework", "verl"),
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("workload", SMALL)
def test_a_scenario_of_a_sweep_is_its_estimate(planner, tmp_path, workload):
    folder, written = tmp_path / "swept", tmp_path / "s.json"
    asked = ("--workload", workload, *SMALL[workload], "--gpu", "h100,a100", "--price", "2")
    assert planner("sweep", *asked, "--output", folder).exit_code == 0
    assert planner("sweep", "show", folder, "--json", written).exit_code == 0
    for row in json.loads(written.read_text()):
        again = estimated(planner, tmp_path, "--from", folder, "--row", row["scenario"])
        names = [name for name in row if name in again and name not in NOT_OF_A_ROW]
        assert differences({n: row[n] for n in names}, {n: again[n] for n in names}) == {}
        assert len(names) > len(again) / 2


@pytest.mark.few(1)
@pytest.mark.parametrize("workload", ["train", "serve", "rl"])
def test_a_row_of_sizes_is_its_estimate(planner, tmp_path, workload):
    paths = tmp_path / "s.json", tmp_path / "s.csv"
    asked = [word for word in SMALL[workload] if word not in ("--gpus", "8")]
    more = () if workload == "serve" else ("--step-time", "40s", "--gpus", "8,16")
    asked = ("--workload", workload, *asked, *more, "--gpu", "h100,a100", "--engine-version")
    asked = (*asked, "0.10.0", "--engine", "vllm") if workload == "serve" else asked[:-1]
    ran = planner("size", *asked, "--json", paths[0], "--csv", paths[1], "--quiet")
    assert ran.exit_code == 0, ran.err
    rows = json.loads(paths[0].read_text())["rows"]
    assert planner("estimate", "--from", paths[0]).err.startswith(f"{paths[0]}: has 2 rows")
    for path, (number, row) in product(paths, enumerate(rows, 1)):
        if not row["feasible"]:
            ran = planner("estimate", "--from", path, "--row", number)
            assert (ran.exit_code, "this row has no plan: step time" in ran.err) == (6, True)
            continue
        again = estimated(planner, tmp_path, "--from", path, "--row", number)
        names = [name for name in row if name in again and name not in NOT_OF_A_ROW]
        assert differences({n: row[n] for n in names}, {n: again[n] for n in names}) == {}


@pytest.mark.few(1)
@pytest.mark.parametrize("workload", SMALL)
def test_specs_of_the_user_are_found_again(planner, tmp_path, workload):
    gpu, model = tmp_path / "mine.toml", tmp_path / "copy.toml"
    text = Path(CATALOGUE.find("gpus", "h100")).read_text()
    gpu.write_text(text.replace('name = "h100-sxm-80gb"', 'name = "mygpu"'))
    name = SMALL[workload][1]
    text = Path(CATALOGUE.find("models", name)).read_text()
    model.write_text(text.replace('name = "', 'name = "My ', 1))
    asked = ("--workload", workload, "--model", model, *SMALL[workload][2:], "--gpu", gpu)
    files = ("--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv", "--quiet")
    ran = planner("search", *asked, *files, "--price", "2")
    assert ran.exit_code == 0, ran.err
    row = json.loads((tmp_path / "r.json").read_text())["rows"][0]
    assert row["gpu"] == "mygpu"
    for full in ((), ("--full",)):  # which says why the H100's runs do not count
        shown = planner("estimate", "--from", tmp_path / "r.json", "--row", 1, *full)
        told = "Runs are counted by the GPU's name, and none names mygpu:"
        assert told in " ".join(shown.out.split())
    for path in ("r.json", "r.csv"):
        again = estimated(planner, tmp_path, "--from", tmp_path / path, "--row", 1)
        assert differences(row, again) == {}
