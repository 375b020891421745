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
from planner.specs.profile import runs_on

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
# A search has no verdict per row; limits belong to the question; an estimate tells one more.
NOT_OF_A_ROW = {"rejected_by", "limits_probability", "largest_batch"}


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
    return [word for name, value in asked.items() if value for word in (f"--{name}", value)]


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
    return one == other


@pytest.mark.few(6)
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
