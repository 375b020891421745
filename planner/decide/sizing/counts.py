"""Which numbers of GPUs are worth a look."""

from __future__ import annotations

from planner.workloads.place import LARGEST_OF_ALL, every_count

_PRIMES = (2, 3, 5, 7)


def whole_nodes(gpus_per_node: int, most: int | None) -> tuple[int, ...]:
    """The numbers of GPUs that a run is usually given, ascending.

    Powers of two within a node, then whole nodes, in numbers whose prime factors are 2, 3, 5 and
    7: others leave few ways to divide a batch, layers and heads. Up to ``most``, 16,384 where
    nothing ends the cluster.

    >>> whole_nodes(8, 100)
    (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96)
    """
    end = most or LARGEST_OF_ALL
    found = {power for power in every_count(end) if power < gpus_per_node}
    found |= {
        nodes * gpus_per_node for nodes in range(1, end // gpus_per_node + 1) if _is_smooth(nodes)
    }
    return tuple(sorted(found))


def coarse(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Of ascending numbers about one in every doubling, the last one among them."""
    found: list[int] = []
    for count in counts:
        if not found or count >= 2 * found[-1]:
            found.append(count)
    return tuple(dict.fromkeys([*found, *counts[-1:]]))


def thinned(counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    """At most so many of ascending numbers, evenly, the first and the last among them."""
    if len(counts) <= number:
        return counts
    last = len(counts) - 1
    return tuple(counts[round(step * last / (number - 1))] for step in range(number))


def _is_smooth(number: int) -> bool:
    for prime in _PRIMES:
        while number % prime == 0:
            number //= prime
    return number == 1
