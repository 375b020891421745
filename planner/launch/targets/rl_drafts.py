"""A plan of reinforcement learning in the words of a program: what is alike for all of them.

Both sides are one job of Ray, which ``ray symmetric-run`` starts on every node (Ray's user guide
of SLURM, from 2.49 on); the program runs on the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from planner.base.software_enums import Placement
from planner.base.training_names import Algorithm
from planner.errors import LaunchError
from planner.launch.benchmark import training_draft
from planner.launch.option_table import (
    OptionTable,
    Quantities,
    Remark,
    Role,
    Settings,
    Words,
    word_of,
)
from planner.launch.target import Argument, Draft, File, Job, Target, Variable
from planner.question.terms import terms_of

MODEL = Variable(name="MODEL", meaning="the model: ORG/NAME on Hugging Face, or a folder")
OUTPUT = Variable(
    name="OUTPUT_DIR", meaning="where checkpoints go", default="output", is_output=True
)


def is_apart(job: Job) -> bool:
    """Whether trainer and engine have GPUs of their own."""
    return bool(job["placement"] != Placement.COLOCATED.word)


_OLDER = ("staleness", "partial_rollout")
"""Of asynchronous steps: the other placements say it themselves."""


def step_words(job: Job) -> Words:
    """What all programs are told alike, of a plan.

    Raises
    ------
    LaunchError
        Its programs cannot be told so.
    """
    if job["adapter"] not in (None, "none"):
        raise LaunchError(
            f"adapter {job['adapter']} is not written for steps of reinforcement learning: write "
            "the plan without --adapter, and add the program's own words for it."
        )
    rollouts, apart = job.profile.rollouts, is_apart(job)
    own = rollouts.separate_sync if apart else rollouts.colocated_sync
    if job["weight_sync"] not in ("auto", own):
        raise LaunchError(
            f"weight_sync {job['weight_sync']} is not written: {job.profile.name} hands weights "
            f"over by {own} where the placement is {job['placement']}: leave it out."
        )
    if job["critic"] != (job["algorithm"] == Algorithm.PPO):
        raise LaunchError(
            f"{job['algorithm']} with critic {word_of(job['critic'])} is not written: a critic is "
            "there with --algorithm ppo, and with no other."
        )
    longest = job["input_tokens"] + job["output_cap"]
    streams = job["placement"] == Placement.ASYNC.word
    nodes, each = _nodes(job, job["train_gpus"] or job["num_gpus"])
    return {
        "model_path": job.hub_name,
        "longest": longest,
        "token_budget": job["micro_batch_tokens"] or max(rollouts.micro_batch_tokens, longest),
        "rollout_gpu_memory": job["rollout_gpu_memory"]
        or (rollouts.separate_memory if apart else rollouts.colocated_memory),
        "weight_sync": None,
        "colocated": not apart,
        "streams": streams,
        **{name: job[name] if streams else None for name in _OLDER},
        "num_nodes": job.num_nodes,
        "node_size": job.gpus_per_node,
        "train_nodes": nodes,
        "train_each": each,
        **(_apart(job) if apart else {}),
    }


def _apart(job: Job) -> Words:
    """The GPUs that generate; what colocated sides tell of each other says nothing."""
    nodes, each = _nodes(job, job["rollout_gpus"])
    return {
        "rollout_nodes": nodes,
        "rollout_each": each,
        "offload_train": None,
        "offload_rollout": None,
    }


def _nodes(job: Job, gpus: int) -> tuple[int, int]:
    """Nodes of a side, and its GPUs on each.

    Raises
    ------
    LaunchError
        The sides have neither whole nodes nor as many GPUs on each.
    """
    node, sides = job.gpus_per_node, (job["train_gpus"], job["rollout_gpus"])
    if all(one % node == 0 for one in sides):
        return gpus // node, node
    if all(one % job.num_nodes == 0 for one in sides):
        return job.num_nodes, gpus // job.num_nodes
    near = max(round(sides[0] / node), 1) * node
    raise LaunchError(
        f"{sides[0]} GPUs that train and {sides[1]} that generate are neither whole nodes of "
        f"{node} nor as many on each of {job.num_nodes}: nearest: --set train_gpus={near}."
    )


def per_rank(job: Job, tokens: int) -> int:
    """A budget of tokens as programs count it that have one for each rank of a sequence."""
    return -(-tokens // int(job["context_parallel"]))


def saying_all(
    target: Target, draft: Callable[[Job, Settings], Draft]
) -> Callable[[Job, Settings], Draft]:
    """The draft, which refuses a plan of which the target's table cannot say a parameter.

    Answers that no option has, as the mean length, are told in the file.
    """

    def drafted(job: Job, settings: Settings) -> Draft:
        said = job.said_once(target.said(job))
        if wrong := [*_unsaid(target.table, said)]:
            raise LaunchError(
                f"{target.title} cannot start this plan: {'; '.join(wrong)}. Change it with --set."
            )
        return draft(job, settings)

    return drafted


_ALONE = (Role.USUAL, Role.OMITTED, Role.DERIVED)


def _unsaid(table: OptionTable, said: Quantities) -> Iterator[str]:
    """The values that no option says, each with the values that one does.

    What is off needs no option, unless the table tells what its program does without one.
    """
    answers = terms_of("rl", "question")
    for name in table.parameters:
        value, rows = said.get(name), table.rows_of(name, *Role)
        if value is None:
            continue
        notes = [row.note for row in rows if row.role is Role.NONE and row.is_of(value)]
        if notes and name in answers:  # which the file tells
            continue
        ways = [row for row in rows if row.role not in (Role.NONE, Role.LEFT, Role.READS)]
        is_free = not value and not any(row.role in _ALONE for row in rows)
        if notes or not (is_free or not ways or any(row.is_of(value) for row in ways)):
            has = " and ".join(dict.fromkeys(row.value for row in ways))
            yield f"{name} {word_of(value)} ({notes[0] if notes else f'it has {has}'})"


def step_draft(
    job: Job,
    target: str,
    arguments: Sequence[Argument],
    more: Sequence[str] = (),
    files: tuple[File, ...] = (),
    left: tuple[Remark, ...] = (),
) -> Draft:
    """The one job of Ray that trains and generates, and what measures some of its steps.

    ``more`` are words of the measurement.
    """
    return training_draft(job, target, arguments, launcher="ray", more=more, files=files, left=left)
