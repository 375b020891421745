"""planner beside other predictors on the same published runs.

    python benchmarks/peers.py --python llm-analysis=~/peers/bin/python --folder calculon=~/calculon
    python scripts/make_peers.py

A peer is run by the Python that it is installed in (``--python NAME=FILE``), or from a folder with
its clone (``--folder NAME=FOLDER``); both may be given. A peer without either is named and skipped,
and what the file says of it stays. Rows are those shipped runs whose whole layout the peer can say.
``--most`` bounds the rows of a peer, which are then spread evenly over all.

Writes ``scripts/published/peers.csv``: what each peer predicts of each run, with its version and
the date. The second command writes the page of both errors from it.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import planner
from planner.base.enums import AdapterKind, ComputePrecision, Offload, Recompute
from planner.specs.catalogue import Catalogue
from planner.specs.model import ModelSpec
from planner.validation.accuracy import STEP_TIME, ComparedRun, joined, predict
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, read_runs
from planner.validation.spec_library import Library
from planner.validation.training.cases import TrainingCase

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "scripts"))
FILE = Path(planner.__file__).parents[1] / "scripts" / "published" / "peers.csv"
COLUMNS = ("peer", "version", "date", "id", "quantity", "value")
MOST = 400
_SIXTEEN_BITS = (ComputePrecision.BF16, ComputePrecision.FP16)
_ENGINES = {"trtllm": "trtllm", "sglang": "sglang", "vllm": "vllm"}

Description = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A peer: its script in ``peer_calls``, its tables, and how it is told a run.

    ``describe`` returns None for a run that the peer cannot say.
    """

    name: str
    script: str
    tables: Sequence[Path]
    describe: Callable[[ComparedRun], Description | None]


def model_sizes(model: ModelSpec) -> Description | None:
    """The sizes of a model whose layers are all alike and of standard attention; else None."""
    (group, *others), attentions = model.layer_groups, model.attentions
    feed = group.feed_forward
    if others or feed is None or group.attention is None or len(attentions) != 1:
        return None
    attention = group.attention
    if attention.kind.value != "standard" or feed.shared_intermediate_size:
        return None
    return {
        "num_hidden_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "vocab_size": model.vocab_size,
        "num_attention_heads": attention.num_attention_heads,
        "num_key_value_heads": attention.num_key_value_heads,
        "head_dim": attention.head_dim,
        "intermediate_size": feed.moe_intermediate_size or feed.intermediate_size,
        "gated": feed.gated,
        "num_experts": feed.num_experts,
        "num_experts_per_tok": feed.num_experts_per_tok,
    }


def training_step(row: ComparedRun) -> Description | None:
    """A run in 16 bits with one stated layout, no adapter, no offloading, no context parallelism;
    else None."""
    case = row.prediction.case
    if not isinstance(case, TrainingCase) or len(case.layouts) != 1:
        return None
    layout, sizes = case.layouts[0], model_sizes(case.model)
    if sizes is None or row.ratio(STEP_TIME) is None:
        return None
    if case.adapter is not AdapterKind.NONE or layout.precision not in _SIXTEEN_BITS:
        return None
    if layout.offload != Offload.NONE or layout.context_parallel > 1:
        return None
    if layout.layer_split or layout.recompute_num_layers:
        return None
    numbers = (layout.data_parallel, layout.global_batch_size)
    if any(number != int(number) for number in numbers) or layout.recompute_modules > 1:
        return None
    return sizes | {
        "id": row.run.text("id"),
        "gpu": case.gpu.name,
        "num_gpus": layout.num_gpus,
        "sequence_length": case.sequence_length,
        "micro_batch_size": layout.micro_batch_size,
        "global_batch_size": int(layout.global_batch_size),
        "tensor_parallel": layout.tensor_parallel,
        "pipeline_parallel": layout.pipeline_parallel,
        "virtual_pipeline": layout.virtual_pipeline,
        "expert_parallel": layout.expert_parallel,
        "expert_tensor_parallel": layout.expert_tensor_parallel,
        "data_parallel": int(layout.data_parallel),
        "zero_stage": layout.zero_stage,
        "sequence_parallel": layout.sequence_parallel,
        "flash_attention": layout.flash_attention,
        "recompute": Recompute(layout.recompute).name.lower(),
        "overlaps_gradients": case.framework.overlap.data_parallel > 0,
    }


def of_dense(row: ComparedRun) -> Description | None:
    """A step of a dense model."""
    found = training_step(row)
    return found if found and not found["num_experts"] else None


def of_calculon(row: ComparedRun) -> Description | None:
    """A step of a model like GPT-3 whose optimizer states alone may be sharded, on its GPUs."""
    found = of_dense(row)
    if found is None or found["gpu"] not in ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm-80gb"):
        return None
    heads = (found["num_attention_heads"], found["num_key_value_heads"])
    return None if found["gated"] or heads[0] != heads[1] or found["zero_stage"] > 1 else found


def of_simumax(row: ComparedRun) -> Description | None:
    """A step on the GPU that its own files of systems describe for 16 bits."""
    found = training_step(row)
    return found if found and found["gpu"] == "b200-sxm-180gb" else None


def of_server(row: ComparedRun) -> Description | None:
    """A server that computes prompts and answers, under a stated concurrency, without drafts."""
    case, run = row.prediction.case, row.run
    engine = _ENGINES.get(run.word("framework"))
    if not isinstance(case, InferenceCase) or case.mode is not Mode.ONLINE or engine is None:
        return None
    traffic, replica = case.traffic, case.replica
    if not traffic.concurrency or traffic.draft_tokens or replica.replicas > 1:
        return None
    ranks = run.count("attention_data_parallel") or 1
    experts = run.count("expert_parallel"), run.count("expert_tensor_parallel")
    has_experts = case.model.num_experts > 0
    if has_experts and not all(experts):
        return None
    return {
        "id": run.text("id"),
        "model": run.text("model"),
        "gpu": case.gpu.name,
        "engine": engine,
        "input_tokens": round(traffic.input_tokens),
        "output_tokens": round(traffic.output_tokens),
        "batch_size": max(1, round(traffic.concurrency / ranks)),
        "tensor_parallel": replica.tensor_parallel,
        "pipeline_parallel": replica.pipeline_parallel,
        "attention_data_parallel": ranks,
        "expert_parallel": experts[0] if has_experts else None,
        "expert_tensor_parallel": experts[1] if has_experts else None,
        "gemm_precision": run.word("gemm_precision") or None,
        "expert_precision": (run.word("expert_precision") or None) if has_experts else None,
    }


_ONLINE = tuple(path for path in SHIPPED_INFERENCE if path.stem == "serving")
PEERS = (
    Peer(name="llm-analysis", script="call_llm_analysis.py", tables=(SHIPPED,), describe=of_dense),
    Peer(name="calculon", script="call_calculon.py", tables=(SHIPPED,), describe=of_calculon),
    Peer(name="SimuMax", script="call_simumax.py", tables=(SHIPPED,), describe=of_simumax),
    Peer(
        name="AIConfigurator",
        script="call_aiconfigurator.py",
        tables=_ONLINE,
        describe=of_server,
    ),
    Peer(name="AISimulate", script="call_aiconfigurator.py", tables=_ONLINE, describe=of_server),
)


def shipped(paths: Iterable[Path]) -> list[ComparedRun]:
    """The rows of these tables with planner's predictions."""
    library = Library(catalogue=Catalogue(None))
    tables = [read_runs(path) for path in paths]
    return [row for runs in tables for row in joined(runs, predict(runs, library))]


def spread(rows: Sequence[Description], most: int) -> list[Description]:
    """At most so many rows, spread evenly."""
    places = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))
    return [rows[place] for place in places]


def ask_peer(
    peer: Peer, rows: Sequence[Description], python: str, folder: Path | None
) -> tuple[str, list[Mapping[str, Any]]]:
    """The version of a peer and its answers.

    Raises SystemExit if its Python does not answer; the text says what it wrote.
    """
    environment = os.environ | ({"PYTHONPATH": str(folder)} if folder else {})
    done = subprocess.run(
        (python, str(HERE / "peer_calls" / peer.script)),
        input="".join(f"{json.dumps(row)}\n" for row in rows),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout:
        raise SystemExit(f"{peer.name} does not answer:\n{done.stderr[-2000:]}")
    first, *answers = map(json.loads, done.stdout.splitlines())
    return _commit(folder) or first["version"] or "unknown", answers


def _commit(folder: Path | None) -> str:
    if folder is None:
        return ""
    done = subprocess.run(
        ("git", "-C", str(folder), "log", "-1", "--format=%h of %cs"),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def best_efficiency(
    answers: Sequence[Mapping[str, Any]], rows: Mapping[str, ComparedRun]
) -> tuple[str, list[Mapping[str, Any]]]:
    """What a peer predicts with the efficiency that suits each publisher's runs best; a note of it.

    Peers whose answers have no ``@`` are returned as they are.
    """
    from make_peers import group_of

    groups: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    found = [one for one in answers if not any("@" in name for name in one)]
    if len(found) == len(answers):
        return "", found
    for one in answers:
        if any("@" in name for name in one):
            groups[group_of(rows[one["id"]])].append(one)
    for members in groups.values():
        names = [name for name in members[0] if "@" in name]
        ratios = [[time_ratio(rows[one["id"]], one[name]) for one in members] for name in names]
        best = names[int(np.argmin(np.abs(np.array(ratios) - 1).mean(axis=1)))]
        found += [{"id": one["id"], best.partition("@")[0]: one[best]} for one in members]
    return ", its best efficiency for each group", found


def time_ratio(row: ComparedRun, step_time: float) -> float:
    """A predicted time of a step over the measured one."""
    ratio = row.ratio(STEP_TIME) or float("nan")
    return ratio * step_time / row.prediction.values["step_time_s"]


def written(path: Path) -> list[Mapping[str, str]]:
    """The rows of the file of peers; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def lines_of(
    peer: Peer, version: str, answers: Iterable[Mapping[str, Any]]
) -> Iterator[Mapping[str, str]]:
    """The rows of a peer in the file."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    for one in answers:
        for name, value in one.items():
            if name not in ("id", "error"):
                cells = (peer.name, version, today, one["id"], name, f"{value:.5g}")
                yield dict(zip(COLUMNS, cells, strict=True))


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    names = {peer.name.lower(): peer.name for peer in PEERS}
    pairs = {}
    for text in texts:
        name, _, path = text.partition("=")
        if name.lower() not in names or not path:
            raise SystemExit(f"{text!r} is not NAME=PATH with a NAME of {', '.join(names)}")
        pairs[names[name.lower()]] = str(Path(path).expanduser())
    return pairs


def main() -> None:
    """Ask the peers that are there and write what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--folder", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--most", type=int, default=MOST, help="rows of a peer at most")
    parser.add_argument("--output", type=Path, default=FILE)
    options = parser.parse_args()
    pythons, folders = _pairs(options.python), _pairs(options.folder)
    lines = written(options.output)
    for peer in PEERS:
        if peer.name not in pythons and peer.name not in folders:
            print(f"{peer.name}: not given, skipped")
            continue
        compared = {row.run.text("id"): row for row in shipped(peer.tables)}
        every = [found for row in compared.values() if (found := peer.describe(row))]
        asked = spread(every, options.most)
        folder = Path(folders[peer.name]) if peer.name in folders else None
        version, answers = ask_peer(peer, asked, pythons.get(peer.name, sys.executable), folder)
        note, answers = best_efficiency(answers, compared)
        refused = [one for one in answers if "error" in one]
        print(f"{peer.name} {version}{note}: {len(asked) - len(refused)} of {len(every)} rows")
        for text in sorted({one["error"] for one in refused})[:5]:
            print(f"  refused: {text}")
        lines = [line for line in lines if line["peer"] != peer.name]
        lines += lines_of(peer, version + note, answers)
    with options.output.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
