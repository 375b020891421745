"""Valid files of every kind, made once, and the commands that read them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.launch import TARGETS

Run = Callable[..., int]

ROOT = Path(__file__).resolve().parents[2]
_LAUNCH = ROOT / "tests" / "launch"
_LOGS = ROOT / "tests" / "logs" / "printed"
_TRAIN = ("--model", "llama-7b", "--gpus", "8", "--gpu", "h100", "--space", "small")
_SIZED = ("--sequence-length", "4096", "--global-batch-size", "64", "--set", "mbs=1")
_SERVE = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8")
_STATIC = ("--workload", "inference", "--model", "llama-7b", "--gpu", "h100", "--gpus", "1")
_ONE = {"train": ("--set", "tp=4"), "serve": ("--set", "tp=2", "--set", "concurrency=8")}
_STEP = ("--workload", "rl", "--model", "qwen3-8b", "--gpu", "h100", "--gpus", "8",
         "--set", "recompute=full")  # fmt: skip
_STEPS = ("verl", "nemo-rl", "openrlhf")
_SERVERS = ("vllm", "sglang", "tensorrt-llm", "llama-server", "dynamo")


# What ran when the logs of the tests were written.
_LOGGED = {
    "train": (
        "--model", "llama-2-13b", "--gpus", "64", "--gpu", "h100", "--framework", "megatron-lm",
        "--global-batch-size", "512", "--sequence-length", "4096", "--set", "tp=4", "--set", "pp=1",
        "--set", "cp=1", "--set", "mbs=2", "--set", "zero=1", "--set", "sp=true",
        "--set", "recompute=none",
    ),
    "serve": (
        "--workload", "serve", "--model", "llama-3.1-8b", "--gpus", "1", "--gpu", "h100",
        "--engine", "vllm",
        "--input-tokens", "1000", "--output-tokens", "200", "--set", "concurrency=64",
    ),
    "static": (
        *_STATIC, "--set", "concurrency=1", "--input-tokens", "512", "--output-tokens", "128",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """A folder of files, the one that is changed, and commands; ``{}`` stands for that file."""

    folder: Path
    file: str
    commands: Sequence[Sequence[str]]


class Seeds:
    """Makes the seeds of a kind where they are first asked for."""

    def __init__(self, folder: Path, run: Run, *, few: bool = False) -> None:
        self.folder, self.run, self.few = folder, run, few
        self.made: dict[str, list[Seed]] = {}

    def of(self, kind: str) -> list[Seed]:
        """The seeds of a kind."""
        if kind not in self.made:
            place = self.folder / kind
            place.mkdir(parents=True, exist_ok=True)
            self.made[kind] = [one for one in KINDS[kind](self, place) if one is not None]
        return self.made[kind]

    def ran(self, *words: object) -> bool:
        """Whether a command that makes a seed did."""
        return self.run([str(word) for word in words]) == 0


def _plans(seeds: Seeds, place: Path) -> list[Seed]:
    found = []
    asked = {"train": (*_TRAIN, *_ONE["train"]), "serve": (*_SERVE, *_ONE["serve"])}
    if not seeds.few:
        asked |= {"static": (*_STATIC, "--set", "concurrency=1")}
        asked |= {"pools": (*_SERVE, *_ONE["serve"], "--mode", "disaggregated")}
    for name, words in asked.items():
        for suffix in ("toml", "json"):
            folder = place / f"{name}-{suffix}"
            folder.mkdir()
            file = f"plan.{suffix}"
            if not seeds.ran("search", *words, "--quiet", "--save-plan", folder / file):
                raise AssertionError(name)
            shutil.copy(folder / file, folder / f"other.{suffix}")
            commands = (
                ("estimate", "--plan", "{}"),
                ("estimate", "--from", "{}", "--set", "precision=fp8"),
                ("explain", "--plan", "{}", "--quiet"),
                ("compare", "{}", f"other.{suffix}"),
                ("report", "{}", "--markdown", "out.md", "--quiet"),
                (
                    "launch",
                    "vllm" if name == "serve" else "megatron-lm",
                    "--plan",
                    "{}",
                    "--output",
                    "out",
                ),
                (
                    "validate",
                    "--log",
                    str(_LOGS / "megatron.log"),
                    "--plan",
                    "{}",
                ),
                ("max-batch", "--plan", "{}", "--quiet"),
            )
            found.append(Seed(folder, file, commands))
    return found


def _results(seeds: Seeds, place: Path) -> list[Seed]:
    asked = {
        "search": ("search", *_TRAIN),
        "served": ("search", *_SERVE, *_ONE["serve"]),
        "estimate": ("estimate", *_TRAIN[:6], *_ONE["train"]),
        "size": ("size", *_TRAIN[:2], "--gpu", "h100", "--tokens", "1T", "--deadline", "300d"),
    }
    if seeds.few:
        asked = {"search": asked["search"]}
    found = []
    for name, words in asked.items():
        folder = place / name
        folder.mkdir()
        if not seeds.ran(*words, "--quiet", "--json", folder / "r.json", "--csv", folder / "r.csv"):
            seeds.ran(*words, "--quiet", "--json", folder / "r.json")
        commands = (
            ("estimate", "--from", "{}", "--row", "1"),
            ("compare", "{}", "{}:2"),
            ("explain", "--from", "{}", "--row", "1", "--quiet"),
            ("launch", "megatron-lm", "--from", "{}", "--row", "2", "--output", "out"),
        )
        page = (("report", "{}", "--markdown", "out.md", "--quiet"),) * 4
        found.append(Seed(folder, "r.json", (*commands, *page, ("estimate", "--plan", "{}"))))
        if (folder / "r.csv").exists():
            found.append(Seed(folder, "r.csv", commands))
            beside = (("estimate", "--from", "r.csv", "--row", "1"),)
            found.append(Seed(folder, "r.manifest.json", beside))
    return found


def _sweeps(seeds: Seeds, place: Path) -> list[Seed]:
    axes = ("--gpu", "h100,b200", "--gpus", "8,16", "--space", "small", "--global-batch-size", "64")
    words = ("--model", "llama-7b", *axes, "--set", "tp=4", "--quiet")
    if not seeds.ran("sweep", *words, "--output", place / "whole" / "s"):
        raise AssertionError("no sweep")
    shutil.copytree(place / "whole", place / "part")
    from planner.sweeps.scenario_batches import parts_of, run_part
    from planner.sweeps.sweep_folder import Sweep

    part = place / "part" / "s"
    plan = Sweep(part).plan
    (one,) = parts_of(plan.num_scenarios)
    (part / "parts").mkdir(exist_ok=True)
    (part / "parts" / one.name).write_bytes(run_part(plan, one))
    (part / "manifest.json").unlink()
    commands = (
        ("sweep", "show", "s"),
        ("sweep", "show", "s", "--full"),
        ("sweep", "show", "s", "--pivot", "gpu,num_gpus", "--value", "time"),
        ("sweep", "show", "s", "--where", "num_gpus >= 8", "--sort", "gpu,-cost_usd"),
        ("sweep", "show", "s", "--columns", "gpu,cost_usd", "--csv", "out.csv"),
        ("sweep", "show", "s", "--against", str(place / "whole" / "s")),
        ("sweep", *words, "--output", "s"),
        ("estimate", "--from", "s", "--row", "1"),
        ("report", "s", "--markdown", "out.md", "--quiet"),
    )
    whole = ("s/plan.json", "s/scenarios.csv", "s/scenarios.csv", "s/front.csv", "s/manifest.json")
    found = [Seed(place / "whole", name, commands) for name in whole]
    return [
        *found,
        *(Seed(place / "part", n, commands) for n in ("s/plan.json", f"s/parts/{one.name}")),
    ]


def _logs(seeds: Seeds, place: Path) -> list[Seed]:
    for name, words in _LOGGED.items():
        if not seeds.ran("search", *words, "--quiet", "--save-plan", place / f"{name}.toml"):
            raise AssertionError(name)
    found = []
    logs = (
        *(_LOGS).iterdir(),
        *(ROOT / "docs" / "samples").glob("[bm]*"),
    )
    for path in sorted(logs):
        folder = place / f"{path.parent.name}-{path.name}"
        folder.mkdir()
        shutil.copy(path, folder / path.name)
        plans = [str(place / f"{name}.toml") for name in _LOGGED]
        commands = [("validate", "--log", "{}", "--plan", plan) for plan in plans]
        commands += [(*one, "--output", "runs.csv") for one in commands]
        found.append(Seed(folder, path.name, commands))
    return found


def _launches(seeds: Seeds, place: Path) -> list[Seed]:
    commands = [
        ("estimate", "--from", "{}", "--gpu", "h100"),
        ("estimate", "--from", "{}", "--gpu", "h100", "--gpus", "8", *_TRAIN[:2], *_SIZED),
        ("estimate", "--from", "{}", "--gpu", "h100", "--gpus", "8", "--workload", "serve"),
        ("explain", "--from", "{}", "--gpu", "b200", *_TRAIN[:2], *_SIZED, "--quiet"),
        ("estimate", "--from", "{}", "--gpu", "b200", "--write"),
    ]
    folders = [p for p in sorted((_LAUNCH / "public").iterdir()) if p.is_dir()]
    found = [
        Seed(folder, path.name, commands)
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.name != "expected.toml" and path.is_file()
    ]
    for target in () if seeds.few else TARGETS:
        words = (*_SERVE, *_ONE["serve"]) if target in _SERVERS else (*_TRAIN, *_ONE["train"])
        words = _STEP if target in _STEPS else words
        if seeds.ran("launch", target, *words, "--output", place / target / "s"):
            found += [
                Seed(place / target, f"s/{path.name}", commands)
                for path in sorted((place / target / "s").iterdir())
                if path.is_file() and path.name not in ("plan.toml", "launch.json")
            ]
    return found


def _beside(seeds: Seeds, place: Path) -> list[Seed]:
    words = (
        "--model",
        "llama-7b",
        "--gpus",
        "8",
        "--gpu",
        "h100",
        "--framework",
        "megatron-lm",
        *_ONE["train"],
    )
    if not seeds.ran("launch", "megatron-lm", *words, "--output", place / "s"):
        raise AssertionError("no launch")
    names = [path.name for path in (place / "s").iterdir() if path.suffix == ".sh"]
    commands = [
        ("estimate", "--from", f"s/{names[0]}"),
        ("estimate", "--from", "s"),
        ("compare", "s", "s"),
        ("launch", "megatron-lm", *words, "--output", "s"),
        (
            "validate",
            "--log",
            str(_LOGS / "megatron.log"),
            "--plan",
            "s",
        ),
    ]
    return [Seed(place, f"s/{name}", commands) for name in ("launch.json", "plan.toml", names[0])]


def _specs(seeds: Seeds, place: Path) -> list[Seed]:
    sources = {
        "gpus/h100.toml": "hardware_specs/gpus/h100-sxm-80gb.toml",
        "clusters/dgx-h100.toml": "hardware_specs/clusters/dgx-h100.toml",
        "models/llama-7b.toml": "planner/model_specs/llama-7b.toml",
        "frameworks/megatron-lm.toml": "planner/framework_profiles/megatron-lm.toml",
        "engines/vllm.toml": "planner/engine_profiles/vllm.toml",
        "prices.csv": "hardware_specs/prices.csv",
        "ownership.csv": "hardware_specs/ownership.csv",
        "regions.csv": "hardware_specs/regions.csv",
        "power.toml": "hardware_specs/power.toml",
    }
    commands = (
        (
            "estimate",
            "--specs",
            "s",
            "--model",
            "llama-7b",
            "--gpus",
            "8",
            "--gpu",
            "h100",
            "--set",
            "tp=4",
        ),
        ("estimate", "--specs", "s", *_SERVE, *_ONE["serve"]),
        ("specs", "validate", "{}"),
        ("specs", "list", "gpus", "--specs", "s"),
    )
    for name, source in sources.items():
        path = place / "s" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, path)
    return [Seed(place, f"s/{name}", commands) for name in sources]


def _spaces(seeds: Seeds, place: Path) -> list[Seed]:
    shutil.copy(ROOT / "search_spaces" / "small.toml", place / "s.toml")
    (place / "day.csv").write_text(
        "hour,request_rate\n" + "".join(f"{hour},5\n" for hour in range(24))
    )
    (place / "sweep.toml").write_text(
        'model = "llama-7b"\ngpu = ["h100", "b200"]\nnum_gpus = [8]\nspace = "small"\n'
        "[settings]\ntensor_parallel = 4\n"
    )
    words = ("search", *_TRAIN[:6], *_ONE["train"])
    return [
        Seed(place, "s.toml", [(*words, "--space", "{}")]),
        Seed(place, "sweep.toml", [("sweep", "{}", "--output", "out", "--quiet")]),
        Seed(
            place, "day.csv", [("size", *_SERVE[:6], "--load", "{}", "--engine", "vllm", "--quiet")]
        ),
    ]


def _configs(seeds: Seeds, place: Path) -> list[Seed]:
    import json
    import sys

    sys.path.insert(0, str(ROOT / "tests" / "specs"))
    from hugging_face_configs import CONFIGS

    found = []
    for number, config in enumerate(CONFIGS.values()):
        folder = place / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        words = ("--gpus", "8", "--gpu", "h100", *_ONE["train"])
        found.append(Seed(folder, "config.json", [("estimate", "--model", "config.json", *words)]))
    return found


def _tables(seeds: Seeds, place: Path) -> list[Seed]:
    seeds.ran("validate", "--template", "training", "--output", place / "training.csv")
    seeds.ran("validate", "--template", "serving", "--output", place / "serving.csv")
    commands = [("validate", "{}", "--quiet"), ("validate", "{}", "--output", "out.csv")]
    commands = [*commands * 4, ("calibrate", "{}", "--output", "out.toml", "--quiet")]
    return [Seed(place, f"{name}.csv", commands) for name in ("training", "serving")]


KINDS: Mapping[str, Callable[[Seeds, Path], list[Seed]]] = {
    "plan": _plans,
    "result": _results,
    "sweep": _sweeps,
    "log": _logs,
    "launch": _launches,
    "beside": _beside,
    "specs": _specs,
    "space": _spaces,
    "config": _configs,
    "table": _tables,
}
