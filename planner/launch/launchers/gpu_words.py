"""GPUs by the words that schedulers, clouds, drivers and people have for them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from planner.base.records import record
from planner.launch.option_table import shipped_rows
from planner.specs.cache import kept
from planner.specs.paths import SpecKind, aliases_of, names

_MAKERS = re.compile(r"^(?:nvidia|tesla|geforce|amd|instinct|gpu)-")
_SIZE = re.compile(r"^[^\n]{0,12}?(?<!\d)(\d{2,3})\s?gi?b", re.IGNORECASE)
_PCIE = re.compile(r"^[^\n]{0,12}?pcie", re.IGNORECASE)
# Shorter words, and bare numbers, mean other things in a text more often than a GPU.
_SHORTEST = 3
_OF_AMD = re.compile(r"(?<![a-z])(?:rocm|primus|amdgpu)(?![a-z])", re.IGNORECASE)
_USUAL_OF_AMD = "mi300x-192gb"


@record(kw_only=True)
class Instance:
    """A type of a cloud's machines: its GPU, and how many it has."""

    gpu: str
    gpus: int


INSTANCES: Mapping[str, Instance] = {
    row["instance"]: Instance(gpu=row["gpu"], gpus=int(row["gpus"]))
    for row in shipped_rows("launchers/instances.csv")
}
"""Types of machines of clouds by their names, in lower case."""


@record(kw_only=True)
class Named:
    """What a text names: a GPU, by which word, and the GPUs of its machine where that is told."""

    gpu: str
    word: str
    gpus_per_node: int | None = None


def gpu_called(word: str, folder: Path | None = None) -> str | None:
    """The GPU that a scheduler, a label of nodes or ``nvidia-smi`` calls so; None if unknown."""
    plain = re.sub(r"[\s_]+", "-", word.strip().lower())
    while stripped := _MAKERS.match(plain):
        plain = plain[stripped.end() :]
    if plain in INSTANCES:
        return INSTANCES[plain].gpu
    words = _words(folder)
    if (whole := words.get(plain)) is not None:
        return whole
    found = _pattern(folder).match(plain)
    if found is None:  # of a short name the first part, as in l4-vws
        return words.get(plain.partition("-")[0])
    return _of_size(found[0], plain[found.end() :], folder)


def gpus_named(
    text: str, path: Path, folder: Path | None = None, near: str = ""
) -> tuple[Named, ...]:
    """The GPUs that a file names in its text, else in its path, the likeliest first.

    A type of a cloud's machines counts before the names of GPUs, of which the one that stands
    there most often counts; those ``near`` what is started, a part of the text, before others.
    """
    for places in ((near, text), (str(path),)):
        for word in re.findall(r"[\w.-]+", "\n".join(places).lower()):
            if (instance := INSTANCES.get(word.strip(".-"))) is not None:
                return (Named(gpu=instance.gpu, word=word, gpus_per_node=instance.gpus),)
        words: dict[str, str] = {}
        for place in places:
            found: Counter[str] = Counter()
            own: dict[str, str] = {}
            for one in _pattern(folder).finditer(place.lower()):
                gpu = _of_size(one[0], place[one.end() : one.end() + 20], folder)
                found[gpu] += 1
                own.setdefault(gpu, one[0])
            words = {
                **words,
                **{gpu: own[gpu] for gpu, _ in found.most_common() if gpu not in words},
            }
        if words:
            return tuple(Named(gpu=gpu, word=word) for gpu, word in words.items())
    if software := _OF_AMD.search(text):
        return (Named(gpu=_USUAL_OF_AMD, word=software[0]),)
    return ()


def _of_size(word: str, following: str, folder: Path | None) -> str:
    """The GPU of a word that memory or form may follow: ``a100`` of ``A100-SXM4-40GB``."""
    plain, words = re.sub(r"[\s_]+", "-", word), _words(folder)
    while plain not in words and (stripped := _MAKERS.match(plain)):
        plain = plain[stripped.end() :]
    gpu = words[plain]
    own, size = re.search(r"-(\d+)gb$", gpu), _SIZE.match(following)
    form = "pcie" if _PCIE.match(following) else ""
    if size is None and (own is None or not form):
        return gpu
    memory = next(found[1] for found in (size, own) if found is not None)
    family = f"{gpu.partition('-')[0]}-"
    same = [
        name
        for name in (gpu, *names(SpecKind.GPUS, folder))
        if name.startswith(family) and name.endswith(f"-{memory}gb")
    ]
    usual = [name for name in same if (form or "sxm") in name]
    return next(iter((*usual, *same)), gpu)


@kept
def _words(folder: Path | None) -> Mapping[str, str]:
    """Names and aliases of GPUs with the name they mean."""
    own = {name: name for name in names(SpecKind.GPUS, folder)}
    return {**aliases_of(SpecKind.GPUS, folder), **own}


@kept
def _pattern(folder: Path | None) -> re.Pattern[str]:
    """Finds names and aliases in a text of lower case, with a blank for their dashes, too."""
    words = [
        word
        for word in _words(folder)
        if len(word) >= _SHORTEST and not word.isdigit() and re.search(r"\d", word)
    ]
    parts = [re.escape(word).replace(r"\-", "[-_ ]?") for word in sorted(words, key=len)[::-1]]
    # With its maker a short word means nothing else: Tesla T4, nvidia-l4.
    short = [word for word in _words(folder) if re.fullmatch(r"[a-z]\d", word)]
    parts += [rf"(?:tesla|nvidia)(?:[-_ ]tesla)?[-_ ]{word}" for word in short]
    return re.compile(rf"(?:(?<![a-z0-9.])|(?<=\d[x*]))(?:{'|'.join(parts)})(?![a-z0-9])")
