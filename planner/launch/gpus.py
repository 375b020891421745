"""How many GPUs a user's file starts its job on, and whether a split of them can be."""

from __future__ import annotations

from math import prod

from planner.errors import LaunchError
from planner.launch.understood import Reading
from planner.shell.text import Given


def gpus_of(reading: Reading) -> int | None:
    """GPUs of the whole job; None where the file leaves them open.

    A launcher that is given processes of a node and no nodes starts one node.
    """
    world = reading.found.world
    total = number_of(world.num_gpus)
    if total is not None:
        return total
    of_node, nodes = number_of(world.gpus_per_node), number_of(world.num_nodes)
    if of_node is None or (world.num_nodes is not None and nodes is None):
        return None
    return of_node * (1 if nodes is None else nodes)


def number_of(given: Given | None) -> int | None:
    """The whole number that something says; None where text alone does not tell one."""
    if given is None or len(given.texts) != 1:
        return None
    text = (given.texts[0] or "").replace("_", "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None


def require_split(reading: Reading, num_gpus: int | None, **sizes: int) -> None:
    """Refuse GPUs that a file's own split of the model does not divide.

    Raises
    ------
    LaunchError
        The file starts on fewer GPUs, or on others, than it deals the model to.
    """
    ranks = prod(sizes.values())
    if num_gpus is None or ranks < 1 or num_gpus % ranks == 0:
        return
    words = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
    raise LaunchError(
        f"{reading.found.name}:{reading.found.line}: starts on {num_gpus} GPUs, but {words} takes "
        f"multiples of {ranks}: give the number of GPUs with --gpus if it runs on others."
    )
