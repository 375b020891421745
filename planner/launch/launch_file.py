"""What a launch file leaves open and planner assumes, judged as its framework would run it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf, lcm, prod
from pathlib import Path

from planner.base.csv_cells import Row, Value
from planner.base.records import record
from planner.errors import LaunchError, PlannerError
from planner.launch.import_launch import MODEL_SPLITS, SPLITS, ImportedLaunch, parse_count
from planner.launch.launchers.job_resources import gpus_in_text
from planner.launch.model_shape import model_named, model_within
from planner.launch.parsed_launch import LENGTHS, REPLICAS, parse_int
from planner.launch.read_launch import PROSE_SUFFIXES, read_launch
from planner.optimize.collector import full_rows
from planner.question.names import NUM_GPUS
from planner.question.parse_values import parse_values
from planner.question.request import ALL, Request
from planner.question.terms import glossary, terms_of
from planner.specs.catalogue import Catalogue, load_model
from planner.specs.file_cache import snapshot_files
from planner.specs.hardware import default_cluster
from planner.specs.quantization import checkpoint_of, nearest_model
from planner.workloads.build_request import OptionNamer
from planner.workloads.deployments import DISAGGREGATED
from planner.workloads.make_plan import Plan, evaluate, make_single_plan
from planner.workloads.workload import Evaluation

_CAP = "concurrency"


def apply_engine_start(
    request: Request, burst: int | None = None
) -> tuple[Request, tuple[str, ...]]:
    """The request as an engine runs what a launch file says, and what is to be said of that.

    Raises `SpecError, SearchSpaceError, InfeasibleError`: the question is impossible.
    """
    if request.workload != "serve" or _CAP not in request.settings:
        return request, ()
    plan, _, notes = evaluate_launch(request, burst)
    return plan.request, notes


def evaluate_launch(
    request: Request, burst: int | None = None
) -> tuple[Plan, Evaluation, tuple[str, ...]]:
    """The plan of a launch file as it is started, its prediction, and what is to be said of it.

    An engine takes in as many requests as its cache has room for: a larger ``max_num_seqs`` is
    a bound that is never reached. With a request rate the number that it keeps busy counts, of so
    many at most.
    Raises SpecError, SearchSpaceError or InfeasibleError if the question is impossible.
    """
    cap = request.settings.get(_CAP) if request.workload == "serve" else None
    if cap is not None and request.request_rate is not None:
        others = {name: value for name, value in request.settings.items() if name != _CAP}
        ranks = int(_first(request.settings.get("attention_data_parallel", 1)))
        seqs = request.max_num_seqs or max(int(_first(cap)) // ranks, 1)
        request, cap = replace(request, settings=others, max_num_seqs=seqs), None
    plan = make_single_plan(request, burst)
    evaluation = evaluate(plan, burst)
    if cap is None or not _lacks_room(evaluation):
        return plan, evaluation, ()
    room = _most_that_fit(request, int(_first(cap)), full_row(evaluation).get("most_sequences"))
    if room is None:
        return plan, evaluation, ()
    plan = make_single_plan(_with_cap(request, room), burst)
    note = f"Its cache holds {room:,} requests at once, not for {int(_first(cap)):,}."
    return plan, evaluate(plan, burst), (note,)


def _most_that_fit(request: Request, cap: int, near: Value) -> int | None:
    """The most requests at once that the memory has room for; None where it has none for one.

    ``near`` is the number beside which it is looked for first.
    """
    low, high = 0, cap
    tried = [*range(int(near), int(near) + 2)] if isinstance(near, int | float) else []
    while high - low > 1:
        middle = next((one for one in tried if low < one < high), (low + high) // 2)
        evaluation = evaluate(make_single_plan(_with_cap(request, middle)))
        fits = not (evaluation.rejected_by or _lacks_room(evaluation))
        low, high = (middle, high) if fits else (low, middle)
    return low or None


def _lacks_room(evaluation: Evaluation) -> bool:
    """Whether not all requests find room at once."""
    return evaluation.rejected_by == _OUT or evaluation.candidates.waits


def _with_cap(request: Request, cap: int) -> Request:
    return replace(request, settings={**request.settings, _CAP: cap})


def _first(value: object) -> float:
    return float(str(value[0] if isinstance(value, tuple | list) else value))


def full_row(evaluation: Evaluation) -> Row:
    """The result columns of one configuration, unknown numbers as None."""
    (row,) = full_rows(evaluation.table(), [evaluation.source])
    return row


def _with_pools(launch: ImportedLaunch, num_gpus: int) -> ImportedLaunch:
    """The pools of a launch, each so many times as large that they take all GPUs together.

    Raises LaunchError if the GPUs are not a multiple of those of the file.
    """
    own = parse_count(launch.values.get("num_gpus"))
    if not own or num_gpus == own:
        return launch
    if num_gpus % own:
        raise LaunchError(
            f"{launch.path}: its prefill and decode workers take {own} GPUs together, and "
            f"{num_gpus} are no multiple of them: give --gpus {max(num_gpus // own, 1) * own}, or "
            "--set replicas and prefill_replicas."
        )
    copies = {
        name: parse_count(launch.values.get(name, 1)) * (num_gpus // own) for name in REPLICAS
    }
    return replace(launch, values={**launch.values, **copies, "num_gpus": num_gpus})


USUAL_GPUS = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x-192gb", "b300-sxm")
"""Taken where a file names none: the first on which it fits, the one of which most is published."""
_LIKELY: Mapping[str, Sequence[object]] = {
    "zero_stage": (2, 3),
    "sequence_parallel": (True,),
    "tensor_parallel": (1, 2, 4, 8),
    "pipeline_parallel": (1, 2, 4, 8),
}
"""Values of what a file takes from outside, of which the fastest that fits is taken."""
_USUAL_LENGTH = 1024
_USUAL_SAMPLE = 2048
_FULL_TRAINING = (None, "pretrain")
_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
_REPOSITORY = re.compile(r"(?<![\w./@-])[A-Za-z][\w-]*/[\w.-]*\w(?![\w/:@])")
_MOST_WORDS = 100
_DOUBLED = 11
_OTHER_COUNT_FACTORS = (2, 4)
_SHRINKS = 0.97
_OUT, _COUNT = "out_of_memory", "gpu_count"
_SPEEDS = ("tokens_per_s", "output_tokens_per_s")


@record(kw_only=True)
class LaunchOnGpus:
    """A launch file on a number of GPUs: what it asks, and its result columns.

    ``rejected_by`` is the rule that it breaks, or what it lacks; empty where it runs.
    """

    num_gpus: int
    imported: ImportedLaunch
    request: Request
    row: Mapping[str, object]
    rejected_by: str

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Greater is better: what runs, the faster; what does not fit, the smaller; what breaks
        another rule; a layout that does not go with the number of GPUs."""
        if self.rejected_by:
            kind = {_OUT: 2, _COUNT: 0}.get(self.rejected_by, 1)
            return False, kind, -self.peak_memory
        speed = next((self.row[name] for name in _SPEEDS if self.row.get(name)), 0.0)
        return True, 0, float(str(speed))

    @property
    def peak_memory(self) -> float:
        """Of the fullest GPU, in GiB; infinite of a layout that breaks a rule."""
        peak = self.row["peak_memory_gib"]
        return inf if peak is None else float(str(peak))


@record(kw_only=True)
class LaunchQuestion:
    """A launch file as a question; ``other_counts`` are other numbers of GPUs where one is
    assumed.
    """

    imported: ImportedLaunch
    request: Request
    other_counts: tuple[LaunchOnGpus, ...] = ()


@record(kw_only=True)
class LaunchFile:
    """A user's launch file and what he answers beside it.

    ``answers`` are those answers by term; of several things in the file the one of this ``number``
    counts, from 1; ``text`` is read in place of that of the file; ``option_name`` is how messages
    call an answer; ``workload`` what is planned of a file that tells several.
    """

    path: Path
    answers: Mapping[str, object]
    specs: Path | None = None
    number: int | None = None
    text: str | None = None
    option_name: OptionNamer = str
    workload: object = None

    @snapshot_files()
    def question(self) -> LaunchQuestion:
        """The question, with what nothing tells assumed; the model alone is asked for.

        Raises LaunchError if it cannot be read, starts nothing that planner reads, or does not tell
        its model.
        Raises SpecError or SearchSpaceError if it names what is unknown or impossible.
        """
        found = self._read(None)
        lacking = found.lacking(self.answers)
        near = self._model_of_path() if "model" in lacking else {}
        likely = self._models_in(found) if "model" in lacking and not near else ()
        if len(likely) == 1 and self.path.suffix not in PROSE_SUFFIXES:
            near = {"model": (likely[0], "the only model named in its text")}
        found.require_known(self.answers, self.option_name)
        found.require({*lacking} & {"model"} - {*near}, self.option_name, likely)
        lacking = tuple(name for name in lacking if name not in near)
        if not lacking and near:
            one = self._on(None, near)
            return LaunchQuestion(imported=one.imported, request=one.request)
        if not lacking and found.answers.fallbacks:
            one = self._on(None, {})
            return LaunchQuestion(imported=one.imported, request=one.request)
        if not lacking:
            request = found.request(self.answers, self.specs, self.option_name)
            return LaunchQuestion(imported=found, request=request)
        world = found.command.resources
        is_untold = world.num_gpus is None and world.gpus_per_node is None
        gpus = self._gpus(found) if "gpu" in lacking else {"": ""}
        choices = [{**near, "gpu": (gpu, why)} if gpu else {**near} for gpu, why in gpus.items()]
        if "num_gpus" in lacking or (is_untold and {*SPLITS} & {*lacking}):
            return self._smallest(found, choices[0])
        return self._first(choices)

    def _model_of_path(self) -> Mapping[str, tuple[str, str]]:
        """The model that the name of the file, or else of its folder, names, and that it does."""
        path = self.path.absolute()
        for name in (path.name, path.parent.name):
            near = nearest_model(name.replace("_", "-"), self.specs)
            if model := model_named(name) or near or model_within(name):
                return {"model": (model, f"{name} is the name of the file or its folder")}
        return {}

    def _models_in(self, launch: ImportedLaunch) -> tuple[str, ...]:
        """The repositories that the text of a file names and that are of known models."""
        words = dict.fromkeys(_REPOSITORY.findall(launch.command.text))
        models: dict[str, str] = {}
        for word in [*words][:_MOST_WORDS]:
            if model := checkpoint_of(word, self.specs).model:
                models.setdefault(model, word)
        return (*models.values(),)

    def _first(self, choices: Sequence[Mapping[str, tuple[str, str]]]) -> LaunchQuestion:
        """The file on the first GPU on which it runs, or on the first of all."""
        tried: list[LaunchOnGpus] = []
        for assumed in choices:
            try:
                tried.append(self._on(None, assumed))
            except PlannerError:
                if not tried:
                    raise
                continue
            if not tried[-1].rejected_by:
                break
        best = max(one.rank[:2] for one in tried)
        one = next(one for one in tried if one.rank[:2] == best)
        return LaunchQuestion(imported=one.imported, request=one.request)

    def _read(self, num_gpus: int | None, gpu: str | None = None) -> ImportedLaunch:
        given = self._requested_gpus() if num_gpus is None else str(num_gpus)
        read = partial(
            read_launch,
            self.path,
            self.number,
            self.specs,
            gpu=gpu or _single_text(self.answers.get("gpu")),
            release=str(self.answers.get("engine_version") or ""),
            text=self.text,
            workload=self.workload,
        )
        found = read(num_gpus=given)
        is_pooled = found.values.get("mode") == DISAGGREGATED and not {*REPLICAS} & {*self.answers}
        if given is not None and is_pooled:
            found = _with_pools(read(), int(given))
        found = found.of_other_model() if "model" in self.answers else found
        # Of a parameter the default stays: a batch that follows another is scaled by it.
        parameters = terms_of(found.workload, "parameter")
        return self._with_lengths(found.without_defaults(self.answers.keys() - parameters.keys()))

    def _with_lengths(self, launch: ImportedLaunch) -> ImportedLaunch:
        """The launch with requests that its server takes, where those of a plan are too long."""
        if launch.workload == "train":
            return self._with_samples(launch)
        most = parse_count(launch.values.get("max_model_len"))
        if not 1 < most < len(LENGTHS) * _USUAL_LENGTH:
            return launch
        told = {**launch.values, **self.answers}
        known = {name: parse_count(told.get(name)) for name in LENGTHS}
        is_told = {name: told.get(name) is not None for name in LENGTHS}  # or 0: no answer
        shorter = {
            name: min(most - known[other], _USUAL_LENGTH) if is_told[other] else most // 2
            for name, other in zip(LENGTHS, reversed(LENGTHS), strict=True)
            if not is_told[name] and known[other] < most
        }
        why = f"no request is longer than {most:,} tokens"
        return replace(
            launch,
            values={**launch.values, **shorter},
            assumed={**launch.assumed, **dict.fromkeys(shorter, why)},
        )

    def _with_samples(self, launch: ImportedLaunch) -> ImportedLaunch:
        """A tuning with samples of the usual length, as those of pre-training are longer."""
        told = {**launch.values, **self.answers}
        is_told = told.get("sequence_length") is not None
        if (
            is_told
            or "model" not in launch.values
            or told.get("training_objective") in _FULL_TRAINING
        ):
            return launch
        with suppress(PlannerError):
            model = load_model(str(launch.values["model"]), self.specs)
            if model.training is not None and model.training.sequence_length > _USUAL_SAMPLE:
                why = "it does not give the length of its samples"
                return replace(
                    launch,
                    values={**launch.values, "sequence_length": _USUAL_SAMPLE},
                    assumed={**launch.assumed, "sequence_length": why},
                )
        return launch

    def _requested_gpus(self) -> str | None:
        """The number of GPUs that the user gives, however written; None of several, or none."""
        given = self.answers.get("num_gpus")
        if given is None or given == ALL or isinstance(given, list | tuple):
            return None
        counts = parse_values(glossary()[NUM_GPUS], str(given), self.option_name("num_gpus"))
        return str(counts[0]) if len(counts) == 1 else None

    def _gpus(self, launch: ImportedLaunch) -> Mapping[str, str]:
        """The GPUs that may be taken where no launcher and nobody tells one, and why."""
        text, path = launch.command.text, self.path.absolute()
        above = "\n".join(text.split("\n")[: launch.command.line])
        # Of a text for people the section above what is started.
        near = _SECTION.split(above)[-1] if path.suffix in PROSE_SUFFIXES else ""
        named = gpus_in_text(text, path, self.specs, near)
        likely = {one.gpu: f"{one.word} stands in its text or its path" for one in named}
        usual = dict.fromkeys(USUAL_GPUS, "neither its text nor its path names one")
        before: list[str] = []
        gpus: dict[str, str] = {}
        for gpu, why in (likely or usual).items():
            gpus[gpu] = f"{why}, and it does not run on {', '.join(before)}" if before else why
            before.append(gpu)
        return gpus

    def _on(self, num_gpus: int | None, assumed: Mapping[str, tuple[str, str]]) -> LaunchOnGpus:
        """The file on so many GPUs, with the best of what else it leaves open."""
        values: dict[str, object] = {name: value for name, (value, _) in assumed.items()}
        found = self._read(num_gpus, str(values["gpu"]) if "gpu" in values else None)
        found = found.of_other_model() if "model" in assumed else found
        lacking = found.lacking({**self.answers, **values})
        names = [name for name in lacking if name in _LIKELY]
        told = {name: why for name, (_, why) in assumed.items()}
        told |= dict.fromkeys(names, "set from outside: the fastest that fits")
        tried = [
            self._judged(found.completed({**values, **dict(zip(names, one, strict=True))}, told))
            for one in product(*(_LIKELY[name] for name in names))
        ]
        best = max(tried, key=lambda one: one.rank)
        # Another precision is for a GPU that lacks one, all else for one that is too small.
        others = found.answers.fallbacks.items() if best.rejected_by else ()
        instead = {
            name: one
            for name, one in others
            if name not in self.answers and (name == "precision") != (best.rejected_by == _OUT)
        }
        if not instead:
            return best
        changed = best.imported.completed(
            {name: value for name, (value, _) in instead.items()},
            {name: why for name, (_, why) in instead.items()},
        )
        return max(best, self._judged(changed), key=lambda one: one.rank)

    def _judged(self, launch: ImportedLaunch) -> LaunchOnGpus:
        request = launch.request(self.answers, self.specs, self.option_name)
        _, evaluation, _ = evaluate_launch(request)
        return LaunchOnGpus(
            num_gpus=int(launch.values.get("num_gpus") or 0),
            imported=launch,
            request=request,
            row=full_row(evaluation),
            rejected_by=evaluation.rejected_by,
        )

    def _smallest(
        self, launch: ImportedLaunch, assumed: Mapping[str, tuple[str, str]]
    ) -> LaunchQuestion:
        """The file on the fewest GPUs on which it fits, or that its layout takes."""
        tried: list[LaunchOnGpus] = []
        errors: list[PlannerError] = []
        step = self._step(launch, assumed)
        for num_gpus in (step * 2**power for power in range(_DOUBLED)):
            try:
                tried.append(self._on(num_gpus, assumed))
            except PlannerError as error:
                errors.append(error)
                continue
            if not tried[-1].rejected_by or _is_vain(tried):
                break
        # A batch of a few sequences leaves GPUs of a whole node without any.
        part = step
        while tried and tried[-1].rejected_by not in ("", _OUT) and part % 2 == 0:
            part //= 2
            with suppress(PlannerError):
                if not (one := self._on(part, assumed)).rejected_by:
                    tried.append(one)
                    step = 1
        if not tried:
            raise errors[0]
        best = max(one.rank[:2] for one in tried)
        chosen = next(one for one in tried if one.rank[:2] == best)
        why = "the fewest on which it fits" if best[0] else "the fewest that its layout takes"
        if not best[0] and {*SPLITS} & {*chosen.imported.assumed}:
            least = max(one.rank for one in tried)
            chosen = next(one for one in tried if one.rank == least)
            why = "the fewest with the lowest memory per GPU; it does not fit"
        why += ", in whole nodes" if step > 1 else ""
        values = {"num_gpus": chosen.num_gpus}
        imported = chosen.imported.completed(values, {"num_gpus": why})
        smaller = [one for one in tried if one.num_gpus < chosen.num_gpus]
        return LaunchQuestion(
            imported=imported,
            request=chosen.request,
            other_counts=(*smaller[-1:], *self._other_counts(chosen, assumed, step)),
        )

    def _other_counts(
        self, chosen: LaunchOnGpus, assumed: Mapping[str, tuple[str, str]], step: int
    ) -> Iterator[LaunchOnGpus]:
        """The file on one GPU, twice and four times as many, as far as it takes them."""
        alone = (1,) if chosen.num_gpus == step > 1 else ()
        for num_gpus in (*alone, *(chosen.num_gpus * factor for factor in _OTHER_COUNT_FACTORS)):
            try:
                one = self._on(num_gpus, assumed)
            except PlannerError:
                continue
            if one.rejected_by in ("", _OUT):
                yield one

    def _step(self, launch: ImportedLaunch, assumed: Mapping[str, tuple[str, str]]) -> int:
        """The fewest GPUs that fill whole nodes and that the layout divides.

        Servers, cards without a fabric of their own, and one process that places its layers start
        with one GPU.
        """
        asked = self.answers.get("gpu")
        name = assumed["gpu"][0] if "gpu" in assumed else launch.values.get("gpu", asked)
        (name, *_) = name if isinstance(name, list | tuple) else [name]
        name = USUAL_GPUS[0] if name in (None, ALL) else str(name).partition(",")[0]
        gpu = Catalogue(self.specs).load_gpu(name).spec
        told = parse_int(launch.command.resources.gpus_per_node)
        is_alone = launch.workload != "train" or gpu.scale_up.domain_size == 1
        is_alone = is_alone or "--device_map" in launch.command.options
        node = told or (1 if is_alone else default_cluster(gpu).gpus_per_node)
        known = {**launch.values, **self.answers}
        sizes = [parse_count(known.get(split)) or 1 for split in MODEL_SPLITS]
        return lcm(node, prod(sizes))


def _is_vain(tried: Sequence[LaunchOnGpus]) -> bool:
    """Whether twice as many GPUs made no GPU's memory smaller where it is too small."""
    if {one.rejected_by for one in tried[-2:]} != {_OUT} or not tried[:-1]:
        return False
    return tried[-1].peak_memory > _SHRINKS * tried[-2].peak_memory


def _single_text(value: object) -> str | None:
    """One answer as text; None where there is none, or several."""
    is_one = value is not None and not isinstance(value, list | tuple) and "," not in str(value)
    return str(value) if is_one and value != ALL else None
