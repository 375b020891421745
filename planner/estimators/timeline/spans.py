"""A step over time: what each rank does when, and what its memory holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from planner.base.records import record

COMPUTE, EXCHANGE, TRANSFER, WAIT = "compute", "exchange", "transfer", "wait"
STREAMS = (COMPUTE, EXCHANGE, TRANSFER, WAIT)
"""What a rank does at once only one of, as shown: what hides behind other work is not there."""

MORE, BUBBLE = "more", "pipeline_bubble"
"""Parts of spans: what is left out of the middle, and idle time."""


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds in which a lane does one thing.

    ``part`` is a part of the step's time, or a pass; ``within`` has the seconds by part of a span
    of ``MORE``.
    """

    lane: int
    stream: str
    name: str
    part: str
    start: float
    duration: float
    within: Mapping[str, float] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """When it ends [s]."""
        return self.start + self.duration


@record(kw_only=True)
class Timeline:
    """One step of several lanes: the stages of a pipeline, or a GPU.

    ``makespan`` [s] is the step's time. ``skipped`` are times at which all lanes do what repeats
    what stands before and after. ``memory``: for each lane, from when on it holds how many bytes;
    ``peak`` is the most of all, of which ``capacity`` may be used. ``hand_over``: the share of a
    pass after which the next stage takes it on (`planner.estimators.timeline.placed`).
    """

    title: str
    lanes: Sequence[str]
    spans: Sequence[Span]
    makespan: float
    skipped: Sequence[tuple[float, float]] = ()
    memory: Sequence[Sequence[tuple[float, float]]] = ()
    peak: float = 0.0
    capacity: float = 0.0
    hand_over: float = 1.0

    def of_lane(self, lane: int) -> Iterator[Span]:
        """The spans of a lane in order."""
        return iter(sorted((s for s in self.spans if s.lane == lane), key=lambda s: s.start))

    def seconds(self, lane: int) -> dict[str, float]:
        """Seconds of a lane by part, those left out of the middle among them; they add up."""
        sums: dict[str, float] = {}
        for span in self.of_lane(lane):
            for part, seconds in (span.within or {span.part: span.duration}).items():
                sums[part] = sums.get(part, 0.0) + seconds
        return sums
