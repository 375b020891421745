"""How often GPUs fail, and what an interruption of training costs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from planner.specs.cache import kept
from planner.specs.checked import checked
from planner.specs.hardware import Loaded, loaded
from planner.specs.load import BytesPerSecond, GpuSeconds, Ratio, Seconds, Share, read_toml
from planner.specs.paths import SpecKind, find
from planner.specs.profile import profile_table

DEFAULT = "published"
_FREQUENCIES = ("gpu_hours_per_interruption", "gpu_hours_per_preemption", "campaign")


@checked
class Frequency:
    """GPU-time between two events of a kind; its range is that of published figures."""

    typical: GpuSeconds
    """What is expected."""
    low: GpuSeconds | None = None
    """Where they are most frequent; as ``typical`` where not given."""
    high: GpuSeconds | None = None
    """Where they are rarest; as ``typical`` where not given."""

    def __post_init__(self) -> None:
        if not self.end("low") <= self.typical <= self.end("high"):
            raise ValueError("low, typical and high must be in order")

    def end(self, name: str) -> float:
        """``low``, ``typical`` or ``high`` in GPU-seconds."""
        given = getattr(self, name)
        return self.typical if given is None else given


@checked
class Checkpoints:
    """How the state of a run is saved."""

    bandwidth_per_node: BytesPerSecond | None = None
    """What a node writes to storage; unlimited where not given."""
    total_bandwidth: BytesPerSecond | None = None
    """What the whole storage takes; unlimited where not given."""
    blocking_share: Share = 1.0
    """Share of the time of writing for which training stops: 1 where it waits for the end."""
    interval: Seconds | None = None
    """Training between two of them; the one that loses least where not given."""


@checked
class Recovery:
    """What an interruption takes beside reading the checkpoint and doing work again."""

    detection: Seconds = 0.0
    """Until it is noticed and located."""
    restart: Seconds = 0.0
    """Until nodes are exchanged and all processes run again."""
    warm_up: Seconds = 0.0
    """What the first steps take longer."""

    @property
    def total(self) -> float:
        """Seconds together."""
        return self.detection + self.restart + self.warm_up


@checked
class Stragglers:
    """GPUs or links that work on, but slowly."""

    gpu_hours_per_slowdown: GpuSeconds
    """GPU-time between two of them."""
    duration: Seconds
    """Until it is over or the node is exchanged."""
    lost_share: Share
    """Share of its speed that the whole job loses meanwhile."""


@checked
class Campaign:
    """GPU-hours of a whole campaign over those of its steps, checkpoints and failures.

    Restarts by hand, evaluations, nodes that are slow for long, parts that are run again, hours
    that a job holds its GPUs before it trains.
    """

    typical: Ratio
    """The median of published campaigns."""
    low: Ratio
    """What 1 of 20 stay below."""
    high: Ratio
    """What 1 of 20 go beyond."""

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.typical <= self.high:
            raise ValueError("low, typical and high must be above 0 and in order")


NO_CAMPAIGN = Campaign(typical=1.0, low=1.0, high=1.0)


@checked
class ReliabilitySpec:
    """Failures of a fleet, and how training copes; what is not given does not happen."""

    name: str
    """What reports call it."""
    gpu_hours_per_interruption: Frequency | None = None
    """Of a job, by failures of hardware or software, planned maintenance excluded."""
    gpu_hours_per_preemption: Frequency | None = None
    """By a provider that takes spot instances back; counts under that contract alone."""
    checkpoints: Checkpoints = Checkpoints()
    """Saving."""
    recovery: Recovery = Recovery()
    """Starting again."""
    stragglers: Stragglers | None = None
    """Slow parts."""
    campaign: Campaign | None = None
    """Of pretraining, what a campaign takes beyond all this; nothing where not given."""
    spare_share: Share = 0.0
    """Nodes that stand by, as a share of those that train; whole nodes only."""
    aliases: tuple[str, ...] = ()
    """Other names of it."""
    notes: str = ""
    """What else is to know."""

    def gpu_time(self, kind: str, end: str) -> float:
        """GPU-seconds per ``interruption`` or ``preemption``: ``low``, ``typical``, ``high``."""
        frequency: Frequency | None = getattr(self, f"gpu_hours_per_{kind}")
        return math.inf if frequency is None else frequency.end(end)

    @property
    def is_ideal(self) -> bool:
        """Whether nothing ever interrupts, slows or saves."""
        return replace(self, name=IDEAL.name, aliases=(), notes="") == IDEAL


IDEAL = ReliabilitySpec(name="ideal")


@kept
def load_reliability(name: str, folder: Path | None = None) -> Loaded[ReliabilitySpec]:
    """Figures by name, alias or path, with the source of each; a file may ``extends`` another.

    Raises
    ------
    SpecError
        They are unknown, or the file or one that it extends has faults.
    """
    path = find(SpecKind.RELIABILITY, name, folder)
    table, others = reliability_table(path, folder)
    return loaded(ReliabilitySpec, table, path, *others)


def reliability_table(
    path: Path, folder: Path | None = None
) -> tuple[dict[str, object], tuple[Path, ...]]:
    """The tables of a file over those of the one it ``extends``, and the files of these.

    A frequency is replaced as a whole: the range of published ones is not that of one's own.

    Raises
    ------
    SpecError
        A file cannot be read, or what it extends is unknown or itself.
    """
    table, others = profile_table(SpecKind.RELIABILITY, path, folder)
    own = read_toml(path)
    below = reliability_table(others[0], folder)[0] if others else {}
    for frequency in _FREQUENCIES:
        if nearest := own.get(frequency, below.get(frequency)):
            table[frequency] = nearest
    return table, others
