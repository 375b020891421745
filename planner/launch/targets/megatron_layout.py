"""How Megatron-Core deals a model's layers to pipeline stages, in its options and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any

from planner.errors import LaunchError, SpecError
from planner.estimators.stages import chunk_split
from planner.launch.job import Job
from planner.launch.understood import Reading
from planner.specs.pipeline_layout import chunks_of


def split_words(job: Job) -> dict[str, Any]:
    """The split that was priced: nothing where it is even, else the two ends or a layout."""
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    sizes = chunk_split(job.model, pp, vp, job["pipeline_layout"] or "")
    later = job.model.mtp_num_layers
    if pp == 1 or (len(set(sizes)) == 1 and not later):
        return {"virtual_pipeline": vp}
    most = max(sizes)
    # Of two chunks none is inside; the larger of the ends is then what an even share is.
    if not later and set(sizes[1:-1]) <= {most} and min(sizes[0], sizes[-1]) >= most - 1:
        ends = {"embedding_in_split": sizes[0] < most, "loss_in_split": sizes[-1] < most}
        return {"virtual_pipeline": vp, **ends}
    # The layout tells the chunks too, and Megatron-Core refuses to be told twice.
    return {"pipeline_layout": layout_of(sizes, later)}


def layout_of(sizes: list[int], later: int = 0) -> str:
    """The layout of chunks with so many layers, the ``later`` last of multi-token prediction.

    >>> layout_of([3, 4, 4, 2])
    'Et*3|(t*4|)*2t*2L'
    """
    chunks = ["t" * size for size in sizes]
    chunks[-1] = "t" * (sizes[-1] - later) + "m" * later
    first, *inner, last = [re.sub(r"(.)\1+", _counted, chunk) for chunk in chunks]
    parts = [f"E{first}|"]
    for chunk, same in groupby(inner):
        number = len(list(same))
        parts.append(f"({chunk}|)*{number}" if number > 1 else f"{chunk}|")
    return "".join(parts) + last + "L"


def stages_of(layout: str) -> list[str]:
    """The chunks that a layout deals layers to.

    >>> stages_of("Et*3|(tt|)*2,m|L")
    ['Ettt', 'tt', 'tt', 'm', 'L']

    Raises
    ------
    LaunchError
        It is none, or longer than any model.
    """
    try:
        return chunks_of(layout)
    except SpecError as error:
        raise LaunchError(str(error)) from error


def told_layout(reading: Reading, values: Mapping[str, Any], layers: int | None) -> str | None:
    """The layout that options tell, or that of the layers of the first and of the last stage.

    None where a pipeline is split as it would be without them.
    """
    layout = reading.text("--pipeline-model-parallel-layout")
    if layout:
        return layout
    ends = [reading.number(f"--decoder-{end}-pipeline-num-layers") for end in ("first", "last")]
    stages = int(values.get("pipeline_parallel") or 1)
    chunks = int(values.get("virtual_pipeline") or 1)
    told = [end for end in ends if end is not None]
    if not told or not layers or stages <= len(told):
        return None
    inner, left = divmod(layers - sum(told), stages - len(told))
    if left or any(number % chunks for number in (inner, *told)):
        return None
    held = [inner] * stages
    held[0], held[-1] = ends[0] or held[0], ends[1] or held[-1]
    return layout_of([number // chunks for _ in range(chunks) for number in held])


def _counted(found: re.Match[str]) -> str:
    return f"{found[1]}*{len(found[0])}"
