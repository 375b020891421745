"""How much slower first runs are than tuned ones, where published runs are vendors' recipes.

Intervals come from published runs. Those of Megatron's family were tuned for weeks: layouts,
graphs, kernels and the balance of experts. Who starts there has none of it, and published pairs of
a first and a tuned run say what that costs. Runs of other frameworks are people's own already.
"""

from __future__ import annotations

from functools import cache

from planner.base.training_objectives import TrainingObjective
from planner.confidence.tables import read_table


@cache
def slower_at_first(framework: str) -> float:
    """The step time of the slowest published first run over that of the tuned one, 1 or more.

    ``framework`` is a label of `planner.confidence.frameworks`. The frameworks of the table are
    one family, whose runs differ by what is tuned, not by the name.

    >>> slower_at_first("NeMo"), slower_at_first("HF Trainer")
    (5.0, 1.0)
    """
    rows = read_table("first_runs.csv")
    if framework not in {row["framework"] for row in rows}:
        return 1.0
    return max(float(row["slower"]) for row in rows)


def is_first_run(tuned: bool | None, objective: TrainingObjective) -> bool:
    """Whether a run is a first one: as said, else fine-tuning is.

    Pretraining is planned for months and tuned before it starts.
    """
    return objective is not TrainingObjective.PRETRAIN if tuned is None else not tuned
