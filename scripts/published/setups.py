"""What the configuration files of a public benchmark say of its runs, where the rows do not.

``published_setups.csv`` holds, for the runs of InferenceX, layout, workers and drafted tokens
as its configuration files give them. No measurement is read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from planner.validation.columns import SCHEDULED
from planner.validation.runs import Run
from published.tables import DETAILS, read_table, source_text

# The mark of runs whose layout is that of a configuration file; no column of the tables.
PUBLISHED = "published_setup"

_DATE = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
_IMAGE = re.compile(r"[;/][^;/]*:([^;:\s]+)\s*$")
# Its database keeps runs without drafts alone.
_DATABASE = "db-dump"
_DEEPSEEK = ("deepseek-v3", "deepseek-r1")
_LAYOUT = ("tensor_parallel", "expert_parallel", "attention_data_parallel")
_POOLS = ("prefill_", "decode_")
_POOL_CELLS = (*_LAYOUT, "num_workers", *SCHEDULED)

Row = Mapping[str, str]


def with_published_setup(run: Run) -> Run:
    """The run with the cells that its configuration file gives, if there is one.

    Of several files that may be meant the first counts; drafts count if all of them have some.
    """
    found = [row for row in _index().get(_key(run), ()) if _may_be(run, row)]
    found = [row for row in found if _same_split(run, row)] or found
    if not found:
        return run
    plain = [row for row in found if row["draft_tokens"] == "0"]
    chosen = (plain or found)[0]
    prefixes = ("",) if chosen["mode"] == "agg" else _POOLS
    names = [f"{prefix}{name}" for prefix in prefixes for name in _POOL_CELLS]
    cells = {name: chosen[name] for name in names if chosen.get(name)}
    split = {f"{prefix}expert_tensor_parallel": "" for prefix in prefixes}
    return replace(
        run,
        cells={
            **run.cells,
            **split,
            **cells,
            PUBLISHED: "1",
            "draft_tokens": chosen["draft_tokens"],
        },
    )


def benchmark_model(run: Run) -> str:
    """A run's model as the benchmark calls it, which runs DeepSeek-V3 as R1."""
    model = run.word("model")
    return "deepseek-r1" if any(word in model for word in _DEEPSEEK) else model.rpartition("/")[2]


def _key(run: Run) -> tuple[str, ...]:
    lengths = (run.count("input_tokens"), run.count("output_tokens"))
    return (
        run.word("framework"), run.text("framework_version"), benchmark_model(run), run.word("gpu"),
        run.word("weight_precision"), run.word("mode"), *map(str, lengths),
    )  # fmt: skip


@cache
def _index() -> Mapping[tuple[str, ...], Sequence[Row]]:
    index: defaultdict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in read_table("published_setups.csv"):
        index[
            row["engine"], row["version"], row["model"], row["gpu"], row["weight_precision"],
            row["mode"], row["input_tokens"], row["output_tokens"],
        ].append(row)  # fmt: skip
    return index


def _may_be(run: Run, row: Row) -> bool:
    if (run.count("concurrency") or 0) not in _concurrencies(row["concurrency"]):
        return False
    in_database = _DATABASE in source_text(run)
    timely = row["draft_tokens"] == "0" if in_database else _in_time(run, row)
    return timely and _same_image(run, row) and _same_gpus(run, row)


@cache
def _concurrencies(text: str) -> frozenset[int]:
    """``4|8`` lists them, ``4-64`` doubles from one to the other."""
    first, dash, last = text.partition("-")
    if not dash:
        return frozenset(int(word) for word in text.split("|"))
    low, high = int(first), int(last)
    return frozenset(low << power for power in range(32) if low << power <= high)


def _in_time(run: Run, row: Row) -> bool:
    date = _DATE.search(run.text(DETAILS))
    if date is None:
        return True
    after = not row["measured_from"] or date[1] >= row["measured_from"]
    return after and (not row["measured_until"] or date[1] <= row["measured_until"])


def _same_image(run: Run, row: Row) -> bool:
    image = _IMAGE.search(run.text(DETAILS))
    return image is None or image[1] == row["image"]


def _same_gpus(run: Run, row: Row) -> bool:
    """Whether replicas, or the workers of each pool, have as many GPUs."""
    if row["mode"] == "agg":
        return _gpus(row, "") in _replica_gpus(run)
    return all(
        _gpus(run.cells, pool) == _gpus(row, pool)
        and run.text(f"{pool}num_workers") in ("", f"{row[f'{pool}num_workers']}.0")
        for pool in _POOLS
    )


def _same_split(run: Run, row: Row) -> bool:
    """Whether the replicas split layers and experts alike."""
    names = ("tensor_parallel", "expert_parallel")
    return all(float(row[name] or 1) == (run.count(name) or 1) for name in names)


def _replica_gpus(run: Run) -> tuple[float, ...]:
    """GPUs of a replica; some rows count its tensor or expert parallel ranks twice."""
    whole = _gpus(run.cells, "")
    experts, tensor = run.count("expert_parallel") or 1, run.count("tensor_parallel") or 1
    if tensor == run.count("attention_data_parallel") and experts == tensor**2:
        return (whole, float(tensor))
    twice = experts > 1 and run.count("expert_tensor_parallel") == experts
    return (whole, whole / experts) if twice else (whole,)


def _gpus(cells: Mapping[str, str], prefix: str) -> float:
    sizes = (cells.get(f"{prefix}{name}", "") for name in (_LAYOUT[0], _LAYOUT[2]))
    product = 1.0
    for size in sizes:
        product *= float(size or 1) or 1.0
    return product
