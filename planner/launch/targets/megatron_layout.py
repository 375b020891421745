"""How Megatron-Core deals a model's layers to pipeline stages, in its options and back."""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from planner.errors import LaunchError
from planner.estimators.stages import chunk_split
from planner.launch.job import Job

_REPEATED_GROUP = re.compile(r"\(([^()]+)\)\*(\d{1,4})")
_REPEATED = re.compile(r"(.)\*(\d{1,4})")
_LONGEST = 100_000


def split_words(job: Job) -> dict[str, Any]:
    """The split that was priced: nothing where it is even, else the two ends or a layout."""
    pp, vp = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    sizes, later = chunk_split(job.model, pp, vp), job.model.mtp_num_layers
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
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (_REPEATED_GROUP, _REPEATED):
        counts = (int(number) * len(each) for each, number in pattern.findall(text))
        if len(text) + sum(counts) > _LONGEST:
            raise LaunchError(f"The layout {layout[:60]!r} of the pipeline has too many layers.")
        text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    if set(text) - set("EtmL|"):
        raise LaunchError(f"{layout[:60]!r} is no layout of a pipeline, as Et*3|(tt|)*29,m|L is.")
    return text.split("|")


def _counted(found: re.Match[str]) -> str:
    return f"{found[1]}*{len(found[0])}"
