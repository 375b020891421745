"""Explicit layers of each chunk of a pipeline, in the words of Megatron-Core."""

from __future__ import annotations

import re
from functools import lru_cache

from planner.errors import SpecError

_REPEATED_GROUP = re.compile(r"\(([^()]+)\)\*(\d{1,4})")
_REPEATED = re.compile(r"(.)\*(\d{1,4})")
_COUNTS = re.compile(r"\d{1,5}(,\d{1,5})*")
_LONGEST = 100_000


def chunks_of(layout: str) -> list[str]:
    """The chunks that a layout deals layers to; E: embedding, t: layer, m: later tokens, L: loss.

    >>> chunks_of("Et*3|(tt|)*2,m|L")
    ['Ettt', 'tt', 'tt', 'm', 'L']

    Raises
    ------
    SpecError
        It is none, or longer than any model.
    """
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (_REPEATED_GROUP, _REPEATED):
        counts = (int(number) * len(each) for each, number in pattern.findall(text))
        if len(text) + sum(counts) > _LONGEST:
            raise SpecError(f"The layout {layout[:60]!r} of the pipeline has too many layers.")
        text = pattern.sub(lambda found: found[1] * int(found[2]), text)
    if set(text) - set("EtmL|"):
        raise SpecError(
            f"{layout[:60]!r} is no layout of a pipeline, as Et*3|(tt|)*29,m|L and 7,8,8,7 are."
        )
    return text.split("|")


@lru_cache(maxsize=256)
def layers_of_chunks(layout: str) -> tuple[int, ...]:
    """Layers of each chunk; a layout may also be their numbers alone.

    >>> layers_of_chunks("Et*3|(tt|)*2,m|L"), layers_of_chunks("7,8,8,7")
    ((3, 2, 2, 1, 0), (7, 8, 8, 7))

    Raises
    ------
    SpecError
        It is no layout, or embedding or loss are not in the first and the last chunk.
    """
    text = layout.replace(" ", "")
    if _COUNTS.fullmatch(text):
        return tuple(int(number) for number in text.split(","))
    chunks = chunks_of(layout)
    inside = "".join(chunks)
    if not inside.startswith("E") or not inside.endswith("L") or chunks[0][:1] != "E":
        raise SpecError(
            f"{layout[:60]!r}: the first chunk of a pipeline holds the embedding (E), the last one "
            "the loss (L)."
        )
    if inside.count("E") > 1 or inside.count("L") > 1 or chunks[-1][-1:] != "L":
        raise SpecError(f"{layout[:60]!r} has several embeddings or losses, or chunks after L.")
    return tuple(chunk.count("t") + chunk.count("m") for chunk in chunks)
