"""The kernels of a plan under the roofline of its GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.records import record
from planner.base.units import TERA
from planner.decide.explain.step_breakdown import ExplainedStep, explain_steps
from planner.errors import SearchSpaceError
from planner.optimize.source import Candidates
from planner.show.presenters.format_results import short_plan
from planner.show.presenters.plots.picture import Canvas, Picture, decades, drawing
from planner.show.presenters.question_summary import question_title
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 7
_MARKS = "osD^"
_SMALLEST, _LARGEST = 24.0, 320.0
"""Areas of points in square points: the longer a kernel takes, the larger."""


@record(kw_only=True)
class Kernel:
    """A kernel of a step: FLOPs, bytes and seconds of one run, and its total seconds in a step.

    ``flops`` is 0 for kernels that only move data. ``peak`` [FLOP/s] and ``bandwidth`` [byte/s] are
    those of the hardware.
    """

    step: str
    name: str
    flops: float
    num_bytes: float
    seconds: float
    in_step: float
    peak: float
    bandwidth: float

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.num_bytes

    @property
    def rate(self) -> float:
        """Achieved FLOP/s."""
        return self.flops / self.seconds

    @property
    def of_roof(self) -> float:
        """The achieved share of the roofline at its intensity."""
        return self.rate / min(self.peak, self.intensity * self.bandwidth)


def draw_roofline(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw the kernels of one configuration into a file.

    Raises SearchSpaceError if a flat efficiency is specified.
    Raises OutputError if the file cannot be written.
    """
    steps = explain_steps(plan, Evaluation(candidates=candidates))
    kernels = list(kernels_of(steps))
    computing = [kernel for kernel in kernels if kernel.flops > 0]
    if not computing:
        raise SearchSpaceError(
            "--picture roofline: the whole step reaches a specified share of the peak, so "
            "there are no "
            "kernels to draw: leave out --flops-efficiency."
        )
    height = min(max(0.5 * picture.width, 320), 640)
    with drawing(picture, height=height) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        row = candidates.row
        canvas.title(
            f"How close are kernels to the peak? {question_title(plan)}: {short_plan(plan, row)}"
        )
        _draw_roof(canvas, axes, computing)
        note = _format_moving_share(kernels, steps)
        canvas.legend(*_draw_kernels(canvas, axes, computing, steps), note=note)
        axes.set(xlabel="FLOPs per byte of GPU memory", ylabel="TFLOP/s")


def kernels_of(steps: Sequence[ExplainedStep]) -> Iterator[Kernel]:
    """Yield the kernels of engine or training steps that move data.

    Exchanges and waits are left out, as they have no roofline.
    """
    for step in steps:
        for part in step.parts:
            for done in part.part.done:
                figures = done.work.figures
                if "memory_bandwidth" not in figures or not done.figure("num_bytes"):
                    continue
                flops = done.figure("flops") if "flops" in figures else 0.0
                yield Kernel(
                    step=step.name,
                    name=part.title,
                    flops=flops,
                    num_bytes=done.figure("num_bytes"),
                    seconds=done.once,
                    in_step=done.times * done.once,
                    peak=done.figure("peak_flops") if flops else np.inf,
                    bandwidth=done.figure("memory_bandwidth"),
                )


def _draw_roof(canvas: Canvas, axes: Axes, kernels: Sequence[Kernel]) -> None:
    """Draw the bandwidth as a slope, and each peak as a line with its number."""
    theme, bandwidth = canvas.theme, kernels[0].bandwidth
    x = np.array([kernel.intensity for kernel in kernels])
    y = np.array([kernel.rate for kernel in kernels]) / TERA
    peaks = sorted({kernel.peak for kernel in kernels})
    left = min(x.min() / 3, peaks[0] / bandwidth / 3)
    right = max(x.max() * 8, peaks[-1] / bandwidth * 8)  # leaves space for the labels
    low, high = y.min() / 3, peaks[-1] / TERA * 2.5
    slope = np.array([left, peaks[-1] / bandwidth])
    axes.plot(slope, slope * bandwidth / TERA, color=theme.muted, linewidth=1.6)
    for peak in peaks:
        axes.plot([peak / bandwidth, right], [peak / TERA] * 2, color=theme.muted, linewidth=1.6)
        peak_label = f"{peak / TERA:,.0f} TFLOP/s"
        axes.annotate(
            peak_label, (right, peak / TERA), (-4, 3), textcoords="offset points", ha="right"
        )
    decades(axes.xaxis, right / left)
    decades(axes.yaxis, high / low)
    axes.set(xlim=(left, right), ylim=(low, high))
    across = max(low * TERA / bandwidth, left) * 1.25
    axes.annotate(
        f"{bandwidth / TERA:.3g} TB/s",
        (across, across * bandwidth / TERA),
        (3, -12),
        textcoords="offset points",
    )


def _draw_kernels(
    canvas: Canvas, axes: Axes, kernels: Sequence[Kernel], steps: Sequence[ExplainedStep]
) -> tuple[list[Any], list[str]]:
    """Draw a point for each kernel; return legend handles and labels of the longest ones."""
    theme = canvas.theme
    seconds = {step.name: step.seconds for step in steps}
    marks = dict(zip(seconds, _MARKS, strict=False))
    sums: dict[tuple[str, str], float] = {}
    for kernel in kernels:
        key = (kernel.step, kernel.name)
        sums[key] = sums.get(key, 0.0) + kernel.in_step / seconds[kernel.step]
    largest = sorted(sums, key=lambda key: -sums[key])[:_MOST_NAMED]
    colors = {key: theme.series[index % len(theme.series)] for index, key in enumerate(largest)}
    longest = max(kernel.in_step / seconds[kernel.step] for kernel in kernels)
    for kernel in kernels:
        share = kernel.in_step / seconds[kernel.step] / longest
        axes.scatter(
            kernel.intensity,
            kernel.rate / TERA,
            s=_SMALLEST + share * (_LARGEST - _SMALLEST),
            marker=marks[kernel.step],
            color=colors.get((kernel.step, kernel.name), theme.muted),
            edgecolors=theme.background,
            linewidths=0.8,
            alpha=0.9,
            zorder=3,
        )
    handles, labels = [], []
    for key in largest:
        step, name = key
        matching = [kernel for kernel in kernels if (kernel.step, kernel.name) == key]
        reached = np.average([k.of_roof for k in matching], weights=[k.in_step for k in matching])
        handles.append(axes.scatter([], [], s=60, marker=marks[step], color=colors[key]))
        prefix = f"{step}: " if len(seconds) > 1 else ""
        share = 100 * sums[key]
        labels.append(
            f"{prefix}{name}, {share:.0f} % of the step, {100 * reached:.0f} % of its roof"
        )
    if len(sums) > len(largest):
        handles.append(axes.scatter([], [], s=40, color=theme.muted))
        labels.append(f"{len(sums) - len(largest)} others")
    return handles, labels


def _format_moving_share(kernels: Sequence[Kernel], steps: Sequence[ExplainedStep]) -> str:
    """Return a note on the share of each step that only moves data, exchanges or waits."""
    texts = []
    for step in steps:
        moving = [k for k in kernels if k.step == step.name and not k.flops]
        shown = sum(k.in_step for k in kernels if k.step == step.name and k.flops)
        share = sum(k.in_step for k in moving) / step.seconds
        rest = max(1 - share - shown / step.seconds, 0.0)
        texts.append(
            f"{step.name}: {100 * share:.0f} % only moves data, {100 * rest:.0f} % exchanges and "
            "waits"
        )
    return f"Not shown: {'; '.join(texts)}. Large points take longer."
