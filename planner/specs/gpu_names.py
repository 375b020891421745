"""GPUs by the names that drivers, schedulers, clouds and people give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from planner.base.read_files import packaged_rows
from planner.base.records import record

# Words around a GPU's name, dropped in this order until the rest is a name.
_MAKERS = {
    "nvidia",
    "tesla",
    "geforce",
    "amd",
    "instinct",
    "radeon",
    "intel",
    "apple",
    "google",
    "ascend",
}
_MACHINES = {"dgx", "hgx", "node", "macbook", "gpu", "gpus", "card", "accelerator", "graphics"}
_MACHINES |= {"data", "center", "mega", "oam", "ac", "arc"}
_EDITIONS = {"blackwell", "hopper", "ampere", "workstation", "server", "desktop", "edition"}
_EDITIONS |= {"generation"}
_LINES = {"pro", "quadro"}
_DROPPED = (
    _MAKERS | {"gpu"},
    _MAKERS | _MACHINES,
    _MAKERS | _MACHINES | _EDITIONS,
    _MAKERS | _MACHINES | _EDITIONS | _LINES,
)
_MEMORY_TYPE = re.compile(r"(?:hbm|gddr)\d?[a-z]?")
_COUNT = re.compile(r"\d{1,3}x|x\d{1,3}")
_COUNTED = re.compile(r"^\d{1,3}[x*](?=[a-z]+\d)|(?<=\d{3})x\d{1,2}$")
_SIZE = re.compile(r"(\d{2,3})g(?:i?b)?")
_FORM = re.compile(r"(sxm|pcie|nvl)\d?")
_PROFILE = re.compile(r"\d{1,3}[abcq]")  # of a virtual GPU, such as L40S-48C
_TRADE_MARKS = re.compile(r"[®™]|\((?:r|tm)\)", re.IGNORECASE)
# A card of 180 GiB is sold as one of 192 GB.
_SIZE_TOLERANCE = 0.1


@record(kw_only=True)
class CloudInstance:
    """A type of a cloud's machines.

    Parameters
    ----------
    gpu : name of its GPU
    gpus : number of its GPUs
    """

    gpu: str
    gpus: int


@cache
def cloud_instances() -> Mapping[str, CloudInstance]:
    """Return types of machines of clouds by their names, in lower case."""
    return {
        row["instance"]: CloudInstance(gpu=row["gpu"], gpus=int(row["gpus"]))
        for row in packaged_rows(Path(__file__).parent / "instances.csv")
    }


def named_gpu(text: str, gpu_by_name: Mapping[str, str]) -> str | None:
    """Return the GPU that a driver, scheduler, cloud or person names; None if unknown.

    Parameters
    ----------
    text : name, such as ``NVIDIA H100 80GB HBM3``
    gpu_by_name : GPUs by their names and aliases in lower case

    >>> named_gpu("NVIDIA H100 80GB HBM3", {"h100": "h100-sxm-80gb"})
    'h100-sxm-80gb'
    """
    if not text.isprintable():
        return None
    lower = _TRADE_MARKS.sub("", text).strip().lower()
    for word in (lower, f"standard_{lower}"):
        if (instance := cloud_instances().get(re.sub(r"\s+", "_", word))) is not None:
            return instance.gpu
    by_letters = {_join(_parts(name)): gpu for name, gpu in gpu_by_name.items()}
    parts = _parts(lower.partition("mig-")[0])
    parts = [part for part in parts if not _COUNT.fullmatch(part)]
    for dropped in _DROPPED:
        name = [part for part in parts if part not in dropped]
        for spelling in (name, [_COUNTED.sub("", part) for part in name]):
            if gpu := by_letters.get(_join(spelling)) or _variant(spelling, by_letters):
                return gpu
    return None


def _variant(parts: list[str], by_letters: Mapping[str, str]) -> str | None:
    """Return the GPU of a family by the memory size and form that follow its name."""
    described = (_SIZE, _FORM, _MEMORY_TYPE, _PROFILE)
    family = [part for part in parts if not any(kind.fullmatch(part) for kind in described)]
    gpu = by_letters.get(_join(family))
    if gpu is None or len(family) == len(parts):
        return None
    size = next((int(match[1]) for part in parts if (match := _SIZE.fullmatch(part))), None)
    form = next((match[1] for part in parts if (match := _FORM.fullmatch(part))), "")
    stem = gpu.partition("-")[0]
    relatives = [gpu]
    if re.search(r"\d", stem):
        relatives += [name for name in {*by_letters.values()} if name.startswith(f"{stem}-")]
    near = [name for name in relatives if size is None or _has_size(name, size)]
    near = [name for name in near if name.endswith(f"-{size}gb")] or near
    fitting = [name for name in sorted(near) if (form or "sxm") in name]
    return next(iter((*fitting, *near)), None)


def _has_size(gpu: str, size: int) -> bool:
    """Whether the memory size in a GPU's name is ``size`` [GB]; True if the name has none."""
    match = re.search(r"-(\d+)gb$", gpu)
    return match is None or abs(int(match[1]) / size - 1) <= _SIZE_TOLERANCE


def _parts(text: str) -> list[str]:
    return re.findall(r"[a-z0-9+.*]+", text)


def _join(parts: Iterable[str]) -> str:
    return "".join(parts)
