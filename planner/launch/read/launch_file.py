"""A launch file as a question: assumptions for missing terms, evaluated as its framework runs."""

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
from planner.launch.model_shape import find_model_in_text, find_model_of_name
from planner.launch.read.import_launch import (
    MODEL_SPLITS,
    SPLITS,
    ImportedLaunch,
    has_other_layers,
    parse_count,
)
from planner.launch.read.parsed_launch import LENGTHS, REPLICAS, parse_int, suffix_of
from planner.launch.read.read_launch import PROSE_SUFFIXES, read_launch
from planner.launch.wrappers.read_resources import gpus_in_text
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
from planner.workloads.make_plan import Plan, evaluate, make_single_plan
from planner.workloads.serving.results import DISAGGREGATED
from planner.workloads.workload import Evaluation

_CONCURRENCY = "concurrency"


def apply_engine_start(
    request: Request, burst: int | None = None
) -> tuple[Request, tuple[str, ...]]:
    """Return the request with the concurrency that the engine reaches, and notes about it.

    Only requests to serve with a concurrency change.

    Raises `SpecError, SearchSpaceError, InfeasibleError`: the question is impossible.
    """
    if request.workload != "serve" or _CONCURRENCY not in request.settings:
        return request, ()
    plan, _, notes = evaluate_launch(request, burst)
    return plan.request, notes


def evaluate_launch(
    request: Request, burst: int | None = None
) -> tuple[Plan, Evaluation, tuple[str, ...]]:
    """Evaluate the configuration of a launch file; return plan, evaluation and notes.

    An engine runs as many requests as fit into its KV cache: a larger ``max_num_seqs`` is never
    reached. With a request rate, concurrency follows from the load, up to ``max_num_seqs``.
    Raises SpecError, SearchSpaceError or InfeasibleError if the question is impossible.
    """
    cap = request.settings.get(_CONCURRENCY) if request.workload == "serve" else None
    if cap is not None and request.request_rate is not None:
        other_settings = {
            name: value for name, value in request.settings.items() if name != _CONCURRENCY
        }
        ranks = int(_first_number(request.settings.get("attention_data_parallel", 1)))
        seqs = request.max_num_seqs or max(int(_first_number(cap)) // ranks, 1)
        request, cap = replace(request, settings=other_settings, max_num_seqs=seqs), None
    plan = make_single_plan(request, burst)
    evaluation = evaluate(plan, burst)
    if cap is None or not _exceeds_kv_cache(evaluation):
        return plan, evaluation, ()
    max_that_fit = _max_concurrency(
        request, int(_first_number(cap)), full_row(evaluation).get("most_sequences")
    )
    if max_that_fit is None:
        return plan, evaluation, ()
    plan = make_single_plan(_with_concurrency(request, max_that_fit), burst)
    note = (
        f"Its KV cache holds {max_that_fit:,} requests at once, not for "
        f"{int(_first_number(cap)):,}."
    )
    return plan, evaluate(plan, burst), (note,)


def _max_concurrency(request: Request, cap: int, estimate: Value) -> int | None:
    """Return the most concurrent requests, up to ``cap``, that fit into memory; None if not one.

    The bisection begins near ``estimate``.
    """
    low, high = 0, cap
    nearby = [*range(int(estimate), int(estimate) + 2)] if isinstance(estimate, int | float) else []
    while high - low > 1:
        middle = next((count for count in nearby if low < count < high), (low + high) // 2)
        evaluation = evaluate(make_single_plan(_with_concurrency(request, middle)))
        fits = not (evaluation.rejected_by or _exceeds_kv_cache(evaluation))
        low, high = (middle, high) if fits else (low, middle)
    return low or None


def _exceeds_kv_cache(evaluation: Evaluation) -> bool:
    """Whether the concurrent requests do not all fit into the KV cache."""
    return evaluation.rejected_by == _OUT_OF_MEMORY or evaluation.candidates.waits


def _with_concurrency(request: Request, cap: int) -> Request:
    return replace(request, settings={**request.settings, _CONCURRENCY: cap})


def _first_number(value: object) -> float:
    return float(str(value[0] if isinstance(value, tuple | list) else value))


def full_row(evaluation: Evaluation) -> Row:
    """The result columns of one configuration, unknown numbers as None."""
    (row,) = full_rows(evaluation.table(), [evaluation.source])
    return row


def _with_pools(launch: ImportedLaunch, num_gpus: int) -> ImportedLaunch:
    """Return the launch with prefill and decode pools scaled to a total number of GPUs.

    Raises LaunchError if the GPUs are not a multiple of those of the file.
    """
    file_gpus = parse_count(launch.values.get("num_gpus"))
    if not file_gpus or num_gpus == file_gpus:
        return launch
    if num_gpus % file_gpus:
        raise LaunchError(
            f"{launch.path}: its prefill and decode workers take {file_gpus} GPUs together; "
            f"{num_gpus} is not a multiple of that. Give --gpus "
            f"{max(num_gpus // file_gpus, 1) * file_gpus}, or "
            "--set replicas and prefill_replicas."
        )
    copies = {
        name: parse_count(launch.values.get(name, 1)) * (num_gpus // file_gpus) for name in REPLICAS
    }
    return replace(launch, values={**launch.values, **copies, "num_gpus": num_gpus})


DEFAULT_GPUS = ("h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x-192gb", "b300-sxm")
"""GPUs assumed if a file names none, the best documented first; the first that fits is used."""
_CHOICES: Mapping[str, Sequence[object]] = {
    "zero_stage": (2, 3),
    "sequence_parallel": (True,),
    "tensor_parallel": (1, 2, 4, 8),
    "pipeline_parallel": (1, 2, 4, 8),
}
"""Values tried for terms set outside of the file; the fastest that fits is used."""
_DEFAULT_LENGTH = 1024
_DEFAULT_SAMPLE = 2048
_FULL_TRAINING = (None, "pretrain")
_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
_REPOSITORY = re.compile(r"(?<![\w./@-])[A-Za-z][\w-]*/[\w.-]*\w(?![\w/:@])")
_MAX_REPOSITORIES = 100
_NUM_DOUBLINGS = 11
_OTHER_COUNT_FACTORS = (2, 4)
_MIN_SHRINK = 0.97
_OUT_OF_MEMORY, _GPU_COUNT = "out_of_memory", "gpu_count"
_SPEEDS = ("tokens_per_s", "output_tokens_per_s")


@record(kw_only=True)
class LaunchOnGpus:
    """A launch file on a number of GPUs: its request and its result columns.

    ``rejected_by`` is the rule that it breaks; empty if it runs.
    """

    num_gpus: int
    imported: ImportedLaunch
    request: Request
    row: Mapping[str, object]
    rejected_by: str

    @property
    def rank(self) -> tuple[bool, int, float]:
        """Return a sort key (greater is better): attempts that run, by speed; then those out of
        memory, by memory; then those that break another rule; an impossible GPU count last.
        """
        if self.rejected_by:
            severity = {_OUT_OF_MEMORY: 2, _GPU_COUNT: 0}.get(self.rejected_by, 1)
            return False, severity, -self.peak_memory
        speed = next((self.row[name] for name in _SPEEDS if self.row.get(name)), 0.0)
        return True, 0, float(str(speed))

    @property
    def peak_memory(self) -> float:
        """Memory of the fullest GPU [GiB]; infinite for a layout that breaks a rule."""
        peak = self.row["peak_memory_gib"]
        return inf if peak is None else float(str(peak))


@record(kw_only=True)
class LaunchQuestion:
    """A launch file as a question.

    ``other_counts`` are evaluations on other numbers of GPUs, if the number is assumed.
    """

    imported: ImportedLaunch
    request: Request
    other_counts: tuple[LaunchOnGpus, ...] = ()


@record(kw_only=True)
class LaunchFile:
    """A user's launch file with the user's answers to its missing terms.

    ``answers`` are by term; ``number`` chooses one of several launches, counted from 1; ``text`` is
    read in place of that of the file; ``option_name`` returns the name of an answer in messages;
    ``workload`` chooses one of several workloads of the file.
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
        """Return the request of the file, with missing terms assumed, except the model.

        Raises LaunchError if it cannot be read, starts nothing supported, or does not name its
        model.
        Raises SpecError or SearchSpaceError if it names something unknown or impossible.
        """
        launch = self._read_launch(None)
        missing = launch.missing_terms(self.answers)
        assumed = self._model_of_path() if "model" in missing else {}
        named_models = self._models_in(launch) if "model" in missing and not assumed else ()
        if len(named_models) == 1 and suffix_of(self.path) not in PROSE_SUFFIXES:
            assumed = {"model": (named_models[0], "the only model named in its text")}
        launch.require_answers(self.answers, self.option_name)
        launch.require({*missing} & {"model"} - {*assumed}, self.option_name, named_models)
        missing = tuple(name for name in missing if name not in assumed)
        resources = launch.command.resources
        has_no_gpus = resources.num_gpus is None and resources.gpus_per_node is None
        open_splits = {*SPLITS} & {*launch.answers.missing}
        count_is_open = has_no_gpus and open_splits and "num_gpus" not in self.answers
        if not missing and count_is_open:
            return self._smallest_count(launch, assumed)
        if not missing and assumed:
            attempt = self._evaluate_on(None, assumed)
            return LaunchQuestion(imported=attempt.imported, request=attempt.request)
        if not missing and launch.answers.fallbacks:
            attempt = self._evaluate_on(None, {})
            return LaunchQuestion(imported=attempt.imported, request=attempt.request)
        if not missing:
            request = launch.request(self.answers, self.specs, self.option_name)
            return LaunchQuestion(imported=launch, request=request)
        gpus = self._candidate_gpus(launch) if "gpu" in missing else {"": ""}
        choices = [
            {**assumed, "gpu": (gpu, reason)} if gpu else {**assumed}
            for gpu, reason in gpus.items()
        ]
        if "num_gpus" in missing or count_is_open:
            return self._smallest_count(launch, choices[0])
        return self._first_that_runs(choices)

    def _model_of_path(self) -> Mapping[str, tuple[str, str]]:
        """Return the model that the file or folder name means, with the reason; else empty."""
        path = self.path.absolute()
        if has_other_layers(path):
            return {}
        for name in (path.name, path.parent.name):
            similar = nearest_model(name.replace("_", "-"), self.specs)
            if model := find_model_of_name(name) or similar or find_model_in_text(name):
                return {"model": (model, f"{name} is the name of the file or its folder")}
        return {}

    def _models_in(self, launch: ImportedLaunch) -> tuple[str, ...]:
        """Return repositories in the text of a file that are known models, one per model."""
        repositories = dict.fromkeys(_REPOSITORY.findall(launch.command.text))
        models: dict[str, str] = {}
        for repository in [*repositories][:_MAX_REPOSITORIES]:
            if model := checkpoint_of(repository, self.specs).model:
                models.setdefault(model, repository)
        return (*models.values(),)

    def _first_that_runs(self, choices: Sequence[Mapping[str, tuple[str, str]]]) -> LaunchQuestion:
        """Evaluate the file with each choice until one runs; return it, else the best attempt.

        A choice has assumed values, such as the GPU, each with its reason.
        """
        attempts: list[LaunchOnGpus] = []
        for assumed in choices:
            try:
                attempts.append(self._evaluate_on(None, assumed))
            except PlannerError:
                if not attempts:
                    raise
                continue
            if not attempts[-1].rejected_by:
                break
        is_by_memory = any(attempt.rejected_by in ("", _OUT_OF_MEMORY) for attempt in attempts)
        if not is_by_memory and not {*DEFAULT_GPUS} & {
            str(c.get("gpu", ("",))[0]) for c in choices
        }:
            # GPUs that a text only mentions, such as ones without the file's precision
            reason = "the GPUs in its text cannot run it"
            others = ({**choices[0], "gpu": (gpu, reason)} for gpu in DEFAULT_GPUS)
            return self._first_that_runs([*others])
        best = max(attempt.rank[:2] for attempt in attempts)
        attempt = next(attempt for attempt in attempts if attempt.rank[:2] == best)
        return LaunchQuestion(imported=attempt.imported, request=attempt.request)

    def _read_launch(self, num_gpus: int | None, gpu: str | None = None) -> ImportedLaunch:
        """Return the launch on ``num_gpus`` GPUs; None: the user's number, else the file's."""
        gpus_text = self._requested_gpus() if num_gpus is None else str(num_gpus)
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
        launch = read(num_gpus=gpus_text)
        is_pooled = launch.values.get("mode") == DISAGGREGATED and not {*REPLICAS} & {*self.answers}
        if gpus_text is not None and is_pooled:
            launch = _with_pools(read(), int(gpus_text))
        launch = replace(launch, answered=frozenset(self.answers))
        launch = launch.for_other_model() if "model" in self.answers else launch
        # Defaults of parameters stay: a batch that depends on another is scaled by it.
        parameters = terms_of(launch.workload, "parameter")
        return self._with_lengths(launch.without_defaults(self.answers.keys() - parameters.keys()))

    def _with_lengths(self, launch: ImportedLaunch) -> ImportedLaunch:
        """Return the launch with shorter requests if its server refuses the default lengths."""
        if launch.workload == "train":
            return self._with_samples(launch)
        max_tokens = parse_count(launch.values.get("max_model_len"))
        model_name = self.answers.get("model", launch.values.get("model"))
        with suppress(PlannerError, OSError):
            if not max_tokens and model_name:
                max_tokens = load_model(str(model_name), self.specs).max_position_embeddings or 0
        if not 1 < max_tokens < len(LENGTHS) * _DEFAULT_LENGTH:
            return launch
        values = {**launch.values, **self.answers}
        lengths = {name: parse_count(values.get(name)) for name in LENGTHS}
        is_specified = {name: values.get(name) is not None for name in LENGTHS}  # or 0: no answer
        shorter = {
            name: min(max_tokens - lengths[other], _DEFAULT_LENGTH)
            if is_specified[other]
            else max_tokens // 2
            for name, other in zip(LENGTHS, reversed(LENGTHS), strict=True)
            if not is_specified[name] and lengths[other] < max_tokens
        }
        reason = f"no request is longer than {max_tokens:,} tokens"
        return replace(
            launch,
            values={**launch.values, **shorter},
            assumed={**launch.assumed, **dict.fromkeys(shorter, reason)},
        )

    def _with_samples(self, launch: ImportedLaunch) -> ImportedLaunch:
        """Return a fine-tuning with samples of default length, if the file specifies none.

        The sequence length of the model is of pre-training, and may be longer.
        """
        values = {**launch.values, **self.answers}
        is_specified = values.get("sequence_length") is not None
        if (
            is_specified
            or "model" not in launch.values
            or values.get("training_objective") in _FULL_TRAINING
        ):
            return launch
        with suppress(PlannerError):
            model = load_model(str(launch.values["model"]), self.specs)
            if model.training is not None and model.training.sequence_length > _DEFAULT_SAMPLE:
                reason = "it does not give the length of its samples"
                return replace(
                    launch,
                    values={**launch.values, "sequence_length": _DEFAULT_SAMPLE},
                    assumed={**launch.assumed, "sequence_length": reason},
                )
        return launch

    def _requested_gpus(self) -> str | None:
        """Return the user's number of GPUs as text; None if the user sets none, or several."""
        num_gpus = self.answers.get("num_gpus")
        if num_gpus is None or num_gpus == ALL or isinstance(num_gpus, list | tuple):
            return None
        counts = parse_values(glossary()[NUM_GPUS], str(num_gpus), self.option_name("num_gpus"))
        return str(counts[0]) if len(counts) == 1 else None

    def _candidate_gpus(self, launch: ImportedLaunch) -> Mapping[str, str]:
        """Return GPU types to try, each with the reason: named in text or path, else defaults."""
        text, path = launch.command.text, self.path.absolute()
        text_above = "\n".join(text.split("\n")[: launch.command.line])
        # In Markdown, the section above the command counts.
        section = _SECTION.split(text_above)[-1] if suffix_of(path) in PROSE_SUFFIXES else ""
        mentions = gpus_in_text(text, path, self.specs, section)
        mentioned = {
            mention.gpu: f"{mention.word} is in its text or its path" for mention in mentions
        }
        defaults = dict.fromkeys(DEFAULT_GPUS, "neither its text nor its path names one")
        tried: list[str] = []
        gpus: dict[str, str] = {}
        for gpu, reason in (mentioned or defaults).items():
            gpus[gpu] = f"{reason}, and it does not run on {', '.join(tried)}" if tried else reason
            tried.append(gpu)
        return gpus

    def _evaluate_on(
        self, num_gpus: int | None, assumed: Mapping[str, tuple[str, str]]
    ) -> LaunchOnGpus:
        """Evaluate the file on ``num_gpus`` GPUs with the fastest values of its missing terms.

        ``num_gpus`` None: the user's or the file's number. ``assumed`` has values with reasons.
        """
        values: dict[str, object] = {name: value for name, (value, _) in assumed.items()}
        launch = self._read_launch(num_gpus, str(values["gpu"]) if "gpu" in values else None)
        launch = launch.for_other_model() if "model" in assumed else launch
        missing = launch.missing_terms({**self.answers, **values})
        names = [name for name in missing if name in _CHOICES]
        reasons = {name: reason for name, (_, reason) in assumed.items()}
        reasons |= dict.fromkeys(names, "not set in the file: the fastest that fits")
        attempts = [
            self._evaluate_imported(
                launch.complete({**values, **dict(zip(names, choice, strict=True))}, reasons)
            )
            for choice in product(*(_CHOICES[name] for name in names))
        ]
        best = max(attempts, key=lambda attempt: attempt.rank)
        # A fallback precision is for GPUs without the first, other fallbacks are for small GPUs.
        fallback_values = launch.answers.fallbacks.items() if best.rejected_by else ()
        fallbacks = {
            name: fallback
            for name, fallback in fallback_values
            if name not in self.answers
            and (name == "precision") != (best.rejected_by == _OUT_OF_MEMORY)
        }
        if not fallbacks:
            return best
        alternatives = [
            value if isinstance(value, tuple) else (value,) for value, _ in fallbacks.values()
        ]
        attempts = [best]
        for choice in product(*alternatives):
            changed = best.imported.complete(
                dict(zip(fallbacks, choice, strict=True)),
                {name: reason for name, (_, reason) in fallbacks.items()},
            )
            attempts.append(self._evaluate_imported(changed))
            if not attempts[-1].rejected_by:
                break
        return max(attempts, key=lambda attempt: attempt.rank)

    def _evaluate_imported(self, launch: ImportedLaunch) -> LaunchOnGpus:
        """Evaluate a launch with the user's answers; return results and the rule it breaks."""
        degrees = {name: value for name, value in self.answers.items() if name in SPLITS}
        others = {name: value for name, value in self.answers.items() if name not in degrees}
        with_degrees = replace(launch, values={**launch.values, **degrees})
        request = with_degrees.request(others, self.specs, self.option_name)
        _, evaluation, _ = evaluate_launch(request)
        return LaunchOnGpus(
            num_gpus=int(launch.values.get("num_gpus") or 0),
            imported=launch,
            request=request,
            row=full_row(evaluation),
            rejected_by=evaluation.rejected_by,
        )

    def _smallest_count(
        self, launch: ImportedLaunch, assumed: Mapping[str, tuple[str, str]]
    ) -> LaunchQuestion:
        """Evaluate the file on growing numbers of GPUs; return the fewest on which it fits.

        If it fits on none, the fewest that its layout allows, or with the lowest memory per GPU.
        """
        attempts: list[LaunchOnGpus] = []
        errors: list[PlannerError] = []
        step = self._count_step(launch, assumed)
        for num_gpus in (step * 2**power for power in range(_NUM_DOUBLINGS)):
            try:
                attempts.append(self._evaluate_on(num_gpus, assumed))
            except PlannerError as error:
                errors.append(error)
                continue
            if not attempts[-1].rejected_by or _stopped_shrinking(attempts):
                break
        # A small batch cannot keep all GPUs of a node busy.
        smaller_step = step
        while (
            attempts
            and attempts[-1].rejected_by not in ("", _OUT_OF_MEMORY)
            and smaller_step % 2 == 0
        ):
            smaller_step //= 2
            with suppress(PlannerError):
                if not (attempt := self._evaluate_on(smaller_step, assumed)).rejected_by:
                    attempts.append(attempt)
                    step = 1
        if not attempts:
            raise errors[0]
        best = max(attempt.rank[:2] for attempt in attempts)
        chosen = next(attempt for attempt in attempts if attempt.rank[:2] == best)
        reason = "the fewest on which it fits" if best[0] else "the fewest that its layout allows"
        if not best[0] and {*SPLITS} & {*chosen.imported.assumed}:
            lowest_memory = max(attempt.rank for attempt in attempts)
            chosen = next(attempt for attempt in attempts if attempt.rank == lowest_memory)
            reason = "the fewest with the lowest memory per GPU; it does not fit"
        reason += ", in whole nodes" if step > 1 else ""
        values = {"num_gpus": chosen.num_gpus}
        imported = chosen.imported.complete(values, {"num_gpus": reason})
        smaller = [attempt for attempt in attempts if attempt.num_gpus < chosen.num_gpus]
        return LaunchQuestion(
            imported=imported,
            request=chosen.request,
            other_counts=(*smaller[-1:], *self._other_counts(chosen, assumed, step)),
        )

    def _other_counts(
        self, chosen: LaunchOnGpus, assumed: Mapping[str, tuple[str, str]], step: int
    ) -> Iterator[LaunchOnGpus]:
        """Yield evaluations on one GPU, and on multiples of the chosen number, if they can run."""
        single_gpu = (1,) if chosen.num_gpus == step > 1 else ()
        for num_gpus in (
            *single_gpu,
            *(chosen.num_gpus * factor for factor in _OTHER_COUNT_FACTORS),
        ):
            try:
                attempt = self._evaluate_on(num_gpus, assumed)
            except PlannerError:
                continue
            if attempt.rejected_by in ("", _OUT_OF_MEMORY):
                yield attempt

    def _count_step(self, launch: ImportedLaunch, assumed: Mapping[str, tuple[str, str]]) -> int:
        """Return the fewest GPUs that fill whole nodes and are a multiple of the layout's splits.

        Servers, GPUs without a scale-up fabric, and single processes with a device map start with
        one GPU.
        """
        requested = self.answers.get("gpu")
        name = assumed["gpu"][0] if "gpu" in assumed else launch.values.get("gpu", requested)
        (name, *_) = name if isinstance(name, list | tuple) else [name]
        name = DEFAULT_GPUS[0] if name in (None, ALL) else str(name).partition(",")[0]
        gpu = Catalogue(self.specs).load_gpu(name).spec
        stated = parse_int(launch.command.resources.gpus_per_node)
        uses_single_gpu = launch.workload != "train" or gpu.scale_up.domain_size == 1
        uses_single_gpu = uses_single_gpu or "--device_map" in launch.command.options
        gpus_per_node = stated or (1 if uses_single_gpu else default_cluster(gpu).gpus_per_node)
        values = {**launch.values, **self.answers}
        sizes = [parse_count(values.get(split)) or 1 for split in MODEL_SPLITS]
        return lcm(gpus_per_node, prod(sizes))


def _stopped_shrinking(attempts: Sequence[LaunchOnGpus]) -> bool:
    """Whether the last doubling of GPUs did not reduce the memory per GPU."""
    if {attempt.rejected_by for attempt in attempts[-2:]} != {_OUT_OF_MEMORY} or not attempts[:-1]:
        return False
    return attempts[-1].peak_memory > _MIN_SHRINK * attempts[-2].peak_memory


def _single_text(value: object) -> str | None:
    """An answer as text; None if there is none, or several."""
    is_single = value is not None and not isinstance(value, list | tuple) and "," not in str(value)
    return str(value) if is_single and value != ALL else None
