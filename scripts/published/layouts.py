"""The split of a published run's replicas, where its source counts in a way of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from planner.validation.run_tables import Run
from published.setups import PUBLISHED
from published.tables import convention

# Workers of a pool that are wider run attention data parallel, whatever the columns say,
# unless a configuration file says otherwise.
_WIDEST_TENSOR = 8


@dataclass(frozen=True, kw_only=True)
class Split:
    """GPUs of a replica: tensor, pipeline and attention-data parallel ranks, and of experts."""

    tensor: int
    pipeline: int
    attention: int
    experts: int

    @property
    def replica_gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline * self.attention

    def cells(self, prefix: str) -> dict[str, int]:
        """As columns with a prefix."""
        return {
            f"{prefix}tensor_parallel": self.tensor,
            f"{prefix}pipeline_parallel": self.pipeline,
            f"{prefix}attention_data_parallel": self.attention,
            f"{prefix}expert_parallel": self.experts,
        }


def split_of(run: Run, prefix: str, moe: bool) -> tuple[Split, float]:
    """How the columns of a run with this prefix split a replica, and how many replicas there are.

    The number of replicas is that of a run without pools of workers.
    """
    split = _split(run, prefix, moe)
    total = run.count("num_gpus")
    if total and not prefix:
        split = _within(split, total)
        return split, max(total / split.replica_gpus, 1.0)
    if not prefix and split.attention == 1 and not run.text(PUBLISHED):
        return _divided(split, _batches(run), moe)
    return split, 1.0


def _split(run: Run, prefix: str, moe: bool) -> Split:
    def count(name: str) -> int:
        return run.count(f"{prefix}{name}") or 1

    t, a, e = count("tensor_parallel"), count("attention_data_parallel"), count("expert_parallel")
    if not prefix and (t > _WIDEST_TENSOR or run.text("attention_data_parallel")):
        t, a, e = _once(t, a, e, count("expert_tensor_parallel"))
    if prefix and moe and a == 1 and t > _WIDEST_TENSOR and not run.text(PUBLISHED):
        t, a = 1, t
    if moe and not prefix and convention(run, "attention") == "data_parallel":
        t, a, e = _shared(t, a, e, run.count("data_parallel") or 1)
    experts = math.gcd(e, t * a) if (t * a) % e else e
    return Split(
        tensor=t, pipeline=count("pipeline_parallel"), attention=a, experts=experts if moe else 1
    )


def _once(t: int, a: int, e: int, per_expert: int) -> tuple[int, int, int]:
    """Sizes where a source multiplied the width of a node twice.

    Some list the replica's GPUs as tensor, expert and attention-data parallel each and then
    their product: 8 GPUs appear as 64 = 8 x 8, 4 GPUs as 4 x 4 = 16. Where a row does not
    count ranks of attention, 4 = 2 x 2 are 4 GPUs of a node.
    """
    if per_expert == e > 1 and t * a == e * per_expert:
        return (1, e, e) if a > 1 else (e, 1, e)
    if t == a > 1 and e == t * a:
        return 1, a, a
    return t, a, e


def _shared(t: int, a: int, e: int, d: int) -> tuple[int, int, int]:
    """Sizes with attention data parallel over the whole replica, experts spread over it."""
    ranks = max(t * a, d, e)
    return 1, ranks, e if e > 1 else ranks


def _batches(run: Run) -> int:
    """Into how many equal batches a source divides the requests of its clients."""
    whole, batch = run.count("concurrency") or 1, run.count("engine_batch_size")
    return whole // batch if batch and whole % batch == 0 else 1


def _divided(split: Split, batches: int, moe: bool) -> tuple[Split, float]:
    """The split and replicas that have so many batches: as many ranks of attention, or replicas."""
    if moe and batches == split.tensor > 1:
        return replace(split, tensor=1, attention=batches), 1.0
    return split, float(max(batches, 1))


def _within(split: Split, total: int) -> Split:
    """Fewer tensor-parallel ranks where a source counts cores of its GPUs."""
    if split.replica_gpus <= total:
        return split
    return replace(split, tensor=max(1, total // (split.pipeline * split.attention)))
