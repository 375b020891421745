"""What the requests of a replica meet on average."""

from __future__ import annotations

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.estimators.inference.offered import Offered
from planner.estimators.inference.serving import Phases
from planner.estimators.inference.waits import Queue


@record(kw_only=True)
class Served:
    """Means over the requests of one replica; times in seconds.

    ``decoding``: sequences in a step; ``utilization``: share of the engine's time in which
    prompts are computed; ``wait``: seconds a prompt queues; ``placed_first``: from its place
    among the sequences to the first token, ``burst`` of them behind prompts that started with it,
    as a share ``together`` of the requests does; ``queue``: what it meets; ``offered``: the
    requests that come at a rate, and what piles up of them.
    """

    phases: Phases
    in_flight: FloatArray
    decoding: FloatArray
    utilization: FloatArray
    wait: FloatArray
    placed_first: FloatArray
    burst: FloatArray
    together: Numeric
    time_per_output_token: FloatArray
    request_rate: FloatArray
    queue: Queue
    offered: Offered | None = None

    @property
    def place_wait(self) -> FloatArray:
        """Mean seconds until there is a place where requests come at random."""
        if self.offered is None:
            return self.queue.place_wait
        return self.offered.place_wait(self.queue, self.request_rate)

    @property
    def time_to_first_token(self) -> FloatArray:
        """Mean seconds from arrival to the first token."""
        first = self.placed_first
        if self.offered is not None:
            first = first + self.offered.mean_wait
        return first + self.place_wait

    def request_latency(self, output_tokens: Numeric) -> FloatArray:
        """Seconds from arrival to the last token."""
        return self.time_to_first_token + (output_tokens - 1) * self.time_per_output_token
