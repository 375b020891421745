"""What the configuration files of a public benchmark say of its runs, where the rows do not.

``published_setups.csv`` holds, for the runs of InferenceX, layout, workers and drafted tokens
as its configuration files give them. Where a file without drafts and one with them have all else
in common, `is_drafting` tells which of the two a run is of; else no measurement is read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from planner.validation.run_tables import SCHEDULED, SHIPPED_INFERENCE, Run, read_runs
from published.tables import (
    DETAILS,
    measured_by,
    measuring_day,
    original,
    read_table,
    source_columns,
    source_text,
)

# The mark of runs whose layout is that of a configuration file; no column of the tables.
PUBLISHED = "published_setup"

_IMAGE = re.compile(r"[;/][^;/]*:([^;:\s]+)\s*$")
# Its database keeps runs without drafts alone.
_DATABASE = "db-dump"
_DEEPSEEK = ("deepseek-v3", "deepseek-r1")
_LAYOUT = ("tensor_parallel", "expert_parallel", "attention_data_parallel")
_POOLS = ("prefill_", "decode_")
_WORKERS = "num_workers"
_POOL_CELLS = (*_LAYOUT, _WORKERS, *SCHEDULED)
_TIMES = ("measured_time_per_output_token_s", "measured_time_to_first_token_s")
_DIGITS = 9

Row = Mapping[str, str]


def with_published_setup(run: Run) -> Run:
    """The run with the cells that its configuration file gives, if there is one.

    Of several files that may be meant the first counts, of those with and without drafts what
    `is_drafting` says.
    """
    found = setups_of(run)
    if not found:
        return run
    plain = [row for row in found if row["draft_tokens"] == "0"]
    drafting = [row for row in found if row["draft_tokens"] != "0"]
    either = plain and drafting and not in_database(run)
    chosen = (drafting if either and is_drafting(run, plain[0]) else plain or found)[0]
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


def setups_of(run: Run) -> Sequence[Row]:
    """The files that may be meant: those of the run's split where there are any."""
    found = [row for row in _index().get(_key(run), ()) if _may_be(run, row)]
    return [row for row in found if _same_split(run, row)] or found


def in_database(run: Run) -> bool:
    """Whether a run is of the benchmark's database, which keeps those without drafts alone."""
    return _DATABASE in source_text(run)


def is_drafting(run: Run, plain: Row) -> bool:
    """Whether a run that may be of a file with drafts, or of ``plain`` without them, drafts.

    Runs of the database do not, so that the same numbers are those of a run without drafts, and
    other numbers of that day's setup those of the one with them. Where it has neither, a run is
    taken not to: that it is the faster one is no reason.
    """
    known = _results().get(_run_key(run, plain), {})
    return any(known.values()) and not known.get(_numbers(run))


@cache
def _results() -> Mapping[tuple[str, ...], Mapping[tuple[float, ...], bool]]:
    """What each setup without drafts and those that share its layout measured on a day.

    The numbers of its runs, and whether the database has them.
    """
    found: defaultdict[tuple[str, ...], dict[tuple[float, ...], bool]] = defaultdict(dict)
    for path in SHIPPED_INFERENCE:
        runs = read_runs(path)
        for run in (original(run, source_columns(runs)) for run in runs.rows):
            for row in setups_of(run) if run.text(DETAILS) else ():
                if row["draft_tokens"] == "0":
                    same = found[_run_key(run, row)]
                    numbers = _numbers(run)
                    same[numbers] = same.get(numbers, False) or in_database(run)
    return found


def _run_key(run: Run, setup: Row) -> tuple[str, ...]:
    cells = (f"{pool}{name}" for pool in ("", *_POOLS) for name in (*_LAYOUT, _WORKERS))
    layout = (setup.get(name, "") for name in cells)
    return (*_key(run), run.text("concurrency"), measuring_day(run), *layout)


def _numbers(run: Run) -> tuple[float, ...]:
    """Time per output token and to the first one, as far as the collections agree on them."""
    return tuple(round(run.number(name) or 0.0, _DIGITS) for name in _TIMES)


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
    timely = row["draft_tokens"] == "0" if in_database(run) else _in_time(run, row)
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
    day = measuring_day(run)
    if not day:
        return True
    return day >= row["measured_from"] and measured_by(run, row["measured_until"])


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
