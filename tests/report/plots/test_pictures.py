"""What pictures show: their points, labels and sums, in both themes and at all widths."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import planner
from planner.decide.explain.step_breakdown import explain_steps
from planner.errors import SearchSpaceError
from planner.show.presenters.pareto_front import front_points
from planner.show.presenters.plots import picture as shown_pictures
from planner.show.presenters.plots.charts import compared_quantities, kernels_of, part_bars
from planner.show.presenters.plots.curves import (
    Curve,
    Curves,
    Matrix,
    size_curves,
    size_picture,
    size_title,
)
from planner.show.presenters.plots.picture import Picture, decades, draw
from planner.show.presenters.search import search_report
from planner.show.presenters.workload_details import details_of
from planner.show.theme import DARK, LIGHT, THEMES
from planner.specs.catalogue import Catalogue
from planner.validation.accuracy import ComparedRun, joined, predict
from planner.validation.run_tables import SHIPPED, SHIPPED_INFERENCE, read_runs
from planner.validation.spec_library import Library
from planner.workloads.workload import Evaluation

TRAIN = {"model": "llama-7b", "gpu": "h100", "num_gpus": 16, "space": "small"}
SERVE = {
    "workload": "serve",
    "model": "llama-3.1-8b",
    "gpu": "h100",
    "num_gpus": 2,
    "input_tokens": 1000,
    "output_tokens": 200,
    "engine": "vllm",
}

Shown = Callable[..., Any]
PLACES = ("lowest", "highest", "recommended and lowest")


@pytest.fixture(scope="module")
def trained() -> Any:
    return planner.search(**TRAIN)


@pytest.fixture(scope="module")
def served() -> Any:
    return planner.search(**SERVE)


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Draws a picture and gives the figure, after all that stands in it was found inside it."""
    figures: list[Any] = []
    drawing = shown_pictures.drawing

    @contextmanager
    def kept(picture: Picture, *, height: float) -> Iterator[Any]:
        with drawing(picture, height=height) as drawn:
            yield drawn
            figures.append(drawn.figure)

    for module in (
        "charts",
        "curves",
        "timeline",
    ):
        monkeypatch.setattr(f"planner.show.presenters.plots.{module}.drawing", kept)

    def show(name: str, *subject: Any, width: int = 900, dark: bool = False) -> Any:
        path = tmp_path / "picture.png"
        look = {"theme": DARK if dark else LIGHT, "width": width}
        draw(Picture(path=path, name=name, **look), *subject)
        assert struct.unpack(">I", path.read_bytes()[16:20]) == (width,)
        _refuse_overlaps(figures[-1])
        return figures[-1]

    return show


def _refuse_overlaps(figure: Any) -> None:
    """Titles, legends and axes of a figure are inside it, and no two of them overlap."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    renderer = FigureCanvasAgg(figure).get_renderer()
    whole = figure.bbox
    parts = [axes.get_tightbbox(renderer) for axes in figure.axes if axes.get_visible()]
    parts += [legend.get_window_extent(renderer) for legend in figure.legends]
    parts += [text.get_window_extent(renderer) for text in figure.texts if text.get_text().strip()]
    for at, part in enumerate(parts):
        assert part.x0 >= -2
        assert part.y0 >= -2
        assert part.x1 <= whole.x1 + 2
        assert part.y1 <= whole.y1 + 2
        for other in parts[at + 1 :]:
            across = min(part.x1, other.x1) - max(part.x0, other.x0)
            down = min(part.y1, other.y1) - max(part.y0, other.y0)
            assert min(across, down) <= 2


def _source(figure: Any) -> str:
    """The notes of a figure, the source and its date."""
    return figure.texts[-1].get_text().replace("\n", " ")


def _words(figure: Any) -> list[str]:
    return [
        text.get_text().replace("\n", " ") for legend in figure.legends for text in legend.texts
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [400, 900, 1900])
@pytest.mark.parametrize("dark", [False, True], ids=THEMES)
def test_a_front_shows_every_plan_and_the_recommended_one(
    shown: Shown, trained: Any, width: int, dark: bool
) -> None:
    figure = shown("front", trained.plan, trained, width=width, dark=dark)
    (axes,) = figure.axes
    table = trained.table
    points = [line.get_xydata() for line in axes.lines if line.get_marker() == "o"]
    drawn = {tuple(point) for line in points for point in line}
    assert drawn == {*zip(table["step_time_s"], table["peak_memory_gib"], strict=True)}
    (star,) = [line for line in axes.lines if line.get_marker() == "*"]
    row = trained.recommended.row
    assert star.get_xydata().tolist() == [[row["step_time_s"], row["peak_memory_gib"]]]
    assert _words(figure)[0].startswith("recommended: ")
    assert any("90 % interval" in words for words in _words(figure))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step time [s]", "peak memory [GiB]")
    assert figure.get_facecolor()[:3] == (20 / 255, 24 / 255, 29 / 255) if dark else (1, 1, 1)


def test_intervals_are_those_of_the_columns(trained: Any) -> None:
    found = front_points(search_report(trained.plan, trained))
    frame = trained.to_frame().sort_values("rank").dropna(subset="rank")
    assert found.first.ends[0].tolist() == frame.step_time_low_s.tolist()
    assert found.second.ends[1].tolist() == frame.peak_memory_high_gib.tolist()
    assert found.ties[0] is False
    assert len(found.ties) == len(frame)


def test_a_front_of_serving_is_by_its_two_objectives(shown: Shown, served: Any) -> None:
    (axes,) = shown("front", served.plan, served).axes
    assert axes.get_xlabel() == "output tokens/s/GPU"
    assert axes.get_ylabel() == "tokens/s/user"


def test_one_objective_has_the_memory_beside_it(shown: Shown) -> None:
    found = planner.search(**TRAIN, objectives="throughput")
    (axes,) = shown("front", found.plan, found).axes
    assert axes.get_ylabel() == "peak memory [GiB]"


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [400, 640, 800, 1100, 1900])
def test_parts_add_up_to_the_step_and_the_peak(shown: Shown, trained: Any, width: int) -> None:
    row = trained.recommended.row
    time, memory = part_bars(trained.plan, trained.recommended)
    scale = 1.0 if time.unit == "s" else 1e-3
    assert scale * time.total == pytest.approx(row["step_time_s"], rel=1e-12)
    assert memory.total == pytest.approx(row["peak_memory_gib"], rel=1e-12)
    figure = shown("parts", trained.plan, trained.recommended, width=width)
    for axes, bar in zip(figure.axes, (time, memory), strict=True):
        ends = [patch.get_x() + patch.get_width() for patch in axes.patches]
        assert max(ends) == pytest.approx(bar.total)
        assert len(axes.patches) == len(bar.parts)


def test_parts_of_serving_are_modules_exchanges_and_waits(shown: Shown, served: Any) -> None:
    prefill, decode, memory = part_bars(served.plan, served.recommended)
    assert prefill.title == "Time of a prefill step"
    assert decode.title == "Time of a decode step"
    assert {"attention", "feed_forward", "overhead"} <= set(decode.parts)
    assert memory.total == pytest.approx(served.recommended.row["peak_memory_gib"])
    shown("parts", served.plan, served.recommended)


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [400, 800, 1900])
@pytest.mark.parametrize("asked", [TRAIN, SERVE], ids=["train", "serve"])
def test_kernels_stand_under_their_roof(shown: Shown, asked: dict[str, Any], width: int) -> None:
    found = planner.search(**asked)
    steps = explain_steps(found.plan, Evaluation(candidates=found.recommended))
    kernels = [kernel for kernel in kernels_of(steps) if kernel.flops]
    # What engines are fitted to read a cache with may be beyond the bandwidth of the memory.
    assert all(0 < k.of_roof <= (1.25 if "decode" in k.name else 1) for k in kernels)
    for step in steps:
        mine = [kernel.in_step for kernel in kernels_of(steps) if kernel.step == step.name]
        assert 0.3 * step.seconds < sum(mine) <= step.seconds * (1 + 1e-9)
    figure = shown("roofline", found.plan, found.recommended, width=width)
    (axes,) = figure.axes
    points = [tuple(one) for drawn in axes.collections for one in drawn.get_offsets()]
    assert len(points) == len(kernels)
    assert points[0] == pytest.approx((kernels[0].intensity, kernels[0].rate / 1e12))
    assert "of its roof" in _words(figure)[0]
    assert "only moves data" in figure.legends[0].get_title().get_text().replace("\n", " ")


@pytest.mark.slow
def test_sizes_are_curves_with_their_limit(shown: Shown) -> None:
    sizes = planner.size(
        model="llama-7b", framework="megatron-lm", space="small", gpu=["h100", "a100"],
        total_tokens=100e9, constraints={"calendar_time": "13d"},
    )  # fmt: skip
    curves = size_curves(sizes)
    assert curves.limits == {"x": 13.0}
    rows = [fleet.row for size in sizes.feasible for fleet in size.choices.values()]
    assert [y for curve in curves.curves for y in curve.y] == [row["cost_usd"] for row in rows]
    figure = shown("cost", size_title(sizes), [curves])
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("calendar time [days]", "cost [USD]")
    assert "limit" in _words(figure)


def test_unknown_prices_leave_the_number_of_gpus(shown: Shown) -> None:
    sizes = planner.size(
        model="llama-7b", framework="megatron-lm", space="small", gpu=["h800"],
        total_tokens=100e9, constraints={"calendar_time": "30d"},
    )  # fmt: skip
    (axes,) = shown("cost", size_title(sizes), [size_curves(sizes)]).axes
    assert axes.get_ylabel() == "GPUs"


@pytest.mark.slow
def test_the_load_of_a_day_has_its_cost_over_the_peak(shown: Shown, tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text("time,request_rate\n00:00,5\n09:00,10\n", encoding="utf-8")
    sizes = planner.size(
        workload="serve", model="llama-3.1-8b", engine="vllm", gpu=["h100", "h200"], load=day,
        mode="aggregated",
        constraints={"time_to_first_token": "1s", "time_per_output_token": "40ms"},
    )  # fmt: skip
    curves = size_curves(sizes)
    assert [curve.y[0] for curve in curves.curves] == [size.day.cost for size in sizes.feasible]
    (axes,) = shown("cost", size_title(sizes), [curves]).axes
    assert axes.get_xlabel() == "GPUs at the peak"
    assert all(float(tick.get_text() or 0).is_integer() for tick in axes.get_xticklabels())


@pytest.mark.slow
def test_a_day_has_what_comes_what_is_served_and_the_gpus(shown: Shown, tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("time,request_rate\n00:00,5\n08:00,60\n18:00,20\n", encoding="utf-8")
    sizes = planner.size(
        workload="serve", model="llama-3.1-8b", engine="vllm", gpu="h100", load=path, price=2,
        startup_time="10min", mode="aggregated",
    )  # fmt: skip
    figure = shown("day", *size_picture("day", sizes))
    above, below = figure.axes
    day = sizes.best.day
    autoscaled, clock = below.lines[1], below.lines[0]
    assert max(clock.get_ydata()) == max(autoscaled.get_ydata()) == day.peak.num_gpus
    assert autoscaled.get_xdata()[-1] == clock.get_xdata()[-1] == 24
    assert below.lines[2].get_ydata()[0] == day.peak.num_gpus
    assert below.get_xlabel() == "time [h]"
    asked, _ = day.autoscaler_counts(day.with_spare.spare)
    assert [*asked.values] == [*autoscaled.get_ydata()[:-1]]
    assert "requests that come" in _words(figure)
    assert above.get_ylabel() == "requests/s"


def _curves(number: int) -> Curves:
    curves = [
        Curve(
            name=f"gpu-{at}",
            x=[10.0, 5.0],
            y=[1.0 + at, 2.0 + at],
            ends=[(0.5, 2.0), (np.nan, np.nan)],
            counts=[8, 16],
            ties=[False, at == 1],
        )
        for at in range(number)
    ]
    return Curves(title="", x_label="x", y_label="y", curves=curves, recommended=(10.0, 1.0))


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [400, 900])
def test_of_many_curves_the_best_are_shown(shown: Shown, width: int) -> None:
    figure = shown("cost", "many", [_curves(40)], width=width)
    assert "14 of 40 curves" in figure.axes[0].get_title(loc="left")
    words = _words(figure)
    assert "gpu-0, 8 to 16 GPUs" in words
    assert not any(word.startswith("gpu-14") for word in words)
    assert any("tied with the best" in word for word in words)


@pytest.mark.slow
def test_several_works_are_panels(shown: Shown) -> None:
    figure = shown("cost", "works", [_curves(2)] * 8)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 6
    assert "6 of 8 works" in figure.get_suptitle()


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [400, 900])
def test_a_matrix_has_a_word_in_every_cell(shown: Shown, width: int) -> None:
    matrix = Matrix(
        title="Cost",
        rows=["one", "two"],
        columns=["8", "16", "32"],
        texts=[["*1.00", "=2.00", "m"], ["3.00", "*1.50", "?"]],
        values=[[1.0, 2.0, np.nan], [3.0, 1.5, np.nan]],
        best=[[True, True, False], [False, True, False]],
        sign=1,
    )
    figure = shown("matrix", "a sweep", [matrix], "* best of its column", width=width)
    texts = {text.get_text(): text for text in figure.axes[0].texts}
    assert set(texts) == {"*1.00", "=2.00", "m", "3.00", "*1.50", "?"}
    colors = [patch.get_facecolor() for patch in figure.axes[0].patches]
    assert colors[2] == colors[5]  # both without a number
    assert len({*colors}) == 5
    assert texts["*1.00"].get_fontweight() == "bold"
    chosen = replace(matrix, recommended=(1, 1))
    figure = shown("matrix", "a sweep", [chosen], "* best of its column", width=width)
    outlines = [patch for patch in figure.axes[0].patches if not patch.get_fill()]
    cells = [(patch.get_x() + patch.get_width() / 2, patch.get_y() + 0.45) for patch in outlines]
    assert cells == [pytest.approx((1, 1)), pytest.approx((0, 0))]
    note = _source(figure)
    assert "red outline: recommended; dashed outline: lowest" in note
    best = replace(matrix, recommended=(0, 0))
    figure = shown("matrix", "a sweep", [best], "* best of its column", width=width)
    assert "recommended and lowest" in _source(figure)


@pytest.mark.parametrize(
    ("recommended", "sign", "words"),
    [
        ((10.0, 1.0), 1, ["recommended and lowest"]),
        ((5.0, 3.0), 1, ["recommended", "lowest: gpu-0"]),
        ((10.0, 1.0), -1, ["recommended", "highest: gpu-1"]),
        ((10.0, 1.0), 0, ["recommended"]),
    ],
)
def test_the_recommended_and_the_lowest_are_marked(
    shown: Shown, recommended: tuple[float, float], sign: int, words: list[str]
) -> None:
    panel = replace(_curves(2), recommended=recommended, sign=sign)
    figure = shown("cost", "Which?", [panel])
    found = [word for word in _words(figure) if word.split(":")[0] in ("recommended", *PLACES)]
    assert found == words


@pytest.mark.parametrize("width", [400, 900])
def test_a_picture_has_its_source_and_its_date(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    figure = shown("cost", "Which?", [_curves(2)], width=width)
    note = _source(figure)
    assert note.startswith(f"Source: planner {planner.__version__} from published runs")
    assert note.endswith("2023-11-14")


def _tables(folder: Path) -> list[list[ComparedRun]]:
    """Some published runs of each table with their predictions."""
    tables, library = [], Library(catalogue=Catalogue())
    for file in (SHIPPED, *SHIPPED_INFERENCE):
        path = folder / file.name
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[:15]), encoding="utf-8")
        runs = read_runs(path)
        tables.append(joined(runs, predict(runs, library)))
    return tables


@pytest.mark.slow
def test_predictions_stand_over_measurements(shown: Shown, tmp_path: Path) -> None:
    tables = _tables(tmp_path)
    panels = compared_quantities(tables)
    for panel in panels:
        assert len(panel.measured) == len(panel.predicted) > 0
    step = next(one for one in panels if one.quantity in ("step_time_s", "tokens_per_s_per_gpu"))
    row = next(row for row in tables[0] if step.quantity in row.measured)
    assert step.measured[0] == row.measured[step.quantity]
    assert step.predicted[0] == row.ranges[step.quantity].value
    figure = shown("predicted", "runs", tables, width=1200)
    assert len([axes for axes in figure.axes if axes.get_visible()]) == len(panels)


@pytest.mark.parametrize(("low", "high"), [(0.14, 0.36), (1.0, 5.9), (3.0, 30.0), (0.01, 100.0)])
def test_a_logarithmic_axis_has_few_numbers(low: float, high: float) -> None:
    axes = Figure().subplots()
    axes.set_xlim(low, high)
    decades(axes.xaxis, high / low)
    axes.set_xlim(low, high)
    assert 2 <= sum(low <= tick <= high for tick in axes.get_xticks()) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 800, 1900])
@pytest.mark.parametrize(
    "settings",
    [
        {"tensor_parallel": 8, "pipeline_parallel": 4},
        {"tensor_parallel": 4, "pipeline_parallel": 64},
    ],
    ids=["short", "deep"],
)
def test_a_timeline_has_a_row_for_every_stage_and_its_memory(
    shown: Shown, width: int, settings: dict[str, int]
) -> None:
    found = planner.estimate(
        model="llama-65b", num_gpus=2048, global_batch_size=1024, settings=settings
    )
    (timeline,) = details_of(found.plan).timelines(found.candidates)
    figure = shown("timeline", "a step", [timeline], width=width)
    lanes, memory = figure.axes
    boxes = sum(
        len(drawn.get_paths()) for drawn in lanes.collections if drawn.get_label()[0] != "_"
    )
    assert boxes == len(timeline.spans)
    assert lanes.get_ylim() == (len(timeline.lanes) - 0.5, -0.5)
    assert len(lanes.get_yticks()) <= 16
    highest = max(np.max(line.get_ydata()) for line in memory.lines[:-1])
    assert highest == pytest.approx(timeline.peak / 2**30)
    assert {"forward", "backward", "optimizer"} <= set(_words(figure))


def test_steps_of_inference_are_panels(shown: Shown) -> None:
    found = planner.estimate(
        workload="inference", model="llama-3.1-8b", gpu="h100", num_gpus=1, input_tokens=512,
        output_tokens=128, settings={"concurrency": 16},
    )  # fmt: skip
    figure = shown("timeline", "steps", details_of(found.plan).timelines(found.candidates))
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title.partition(":")[0] for title in titles] == ["Prefill step", "Decode step"]


@pytest.mark.security
def test_names_are_text_and_never_formulas_or_markup(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    odd = Curves(title="$x^2$ <script>\x1b[31m", x_label="x", y_label="y", curves=_curves(1).curves)
    draw(Picture(path=path, name="cost"), "a$b <b> 模型 & \x07", [odd])
    text = path.read_text(encoding="utf-8")
    assert "<script>" not in text
    assert text.startswith("<?xml")


def test_the_same_picture_has_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in ("one.svg", "two.svg"):
        draw(Picture(path=tmp_path / name, name="cost"), "same", [_curves(3)])
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [320, 900])
def test_curves_of_latency_go_through_the_percentiles(shown: Shown, width: int) -> None:
    found = planner.estimate(**SERVE, request_rate=10.0)
    row = found.candidates.row
    (axes,) = shown("latency", found.plan, found.candidates, width=width).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    for line, name in zip(
        points, ("time_to_first_token", "time_per_output_token", "request_latency"), strict=True
    ):
        assert [*line.get_ydata()] == [50, 90, 99]
        assert [*line.get_xdata()] == [row[f"{name}_p{percent}_s"] for percent in (50, 90, 99)]


@pytest.mark.few(1)
@pytest.mark.parametrize(("width", "mode"), [(320, "aggregated"), (1900, "disaggregated")])
def test_what_is_found_lies_on_the_curve_of_its_router(shown: Shown, width: int, mode: str) -> None:
    sessions = {"input_tokens": 6000, "turns": 12, "think_time": 60.0, "host_cache": 2e11}
    asked = {"num_gpus": 8, "mode": mode, "settings": {"tp": 1, "pp": 1}, "request_rate": 16.0}
    found = planner.search(**SERVE | sessions | asked)
    (axes,) = shown("reuse", found.plan, found.recommended, width=width, dark=True).axes
    row, (random, knowing, own, host) = found.recommended_row, axes.lines
    share = 100 * row["gpu_cache_hit_rate"]
    # Workers of pools find what is kept at their own rate, which a plan need not fill.
    assert own.get_ydata()[0] == pytest.approx(share, abs=0.5 if mode == "aggregated" else 15)
    for point in (own, host):
        at = np.interp(point.get_xdata()[0], random.get_xdata(), random.get_ydata())
        assert point.get_ydata()[0] == pytest.approx(at, abs=0.5)
    assert (knowing.get_ydata() >= random.get_ydata() - 1e-9).all()
    with pytest.raises(SearchSpaceError, match="requests that share prompts"):
        shown("reuse", found.plan, planner.search(**SERVE).recommended)


def test_a_step_of_training_has_no_latency_of_requests(shown: Shown) -> None:
    found = planner.estimate(model="llama-7b", gpu="h100", num_gpus=8, settings={"zero_stage": 3})
    with pytest.raises(SearchSpaceError, match="give --workload serve"):
        shown("latency", found.plan, found.candidates)
