"""The public functions for files of runs: launch files, logs and tables of runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from planner.commands.command import Call, no_bar
from planner.commands.launch import LAUNCH
from planner.launch.read.launch_file import LaunchFile
from planner.launch.write.write_launch import WrittenLaunch, save_launch
from planner.optimize.exhaustive import Progress
from planner.question.request import Request
from planner.workloads.build_request import make_request
from planner.workloads.saved_plan import SavedPlan

if TYPE_CHECKING:
    from planner.show.presenters.validation import ValidateAnswer
    from planner.validation.logs.log_comparison import Comparison


def write_launch(
    target: str,
    output: str | os.PathLike[str] | None = None,
    *,
    plan: str | os.PathLike[str] | None = None,
    wrapper: str = "script",
    **request: object,
) -> WrittenLaunch:
    """The files that start a plan with a tool: the plan of a file, or the recommended plan.

    Raises SpecError, SearchSpaceError or InfeasibleError if something is unknown, faulty or
    impossible, or nothing fits; LaunchError if target or wrapper is unknown, or cannot start the
    plan; OutputError if one of the user's files would be replaced, or the directory cannot be
    written.

    Parameters
    ----------
    target : the tool: ``megatron-lm``, ``vllm`` ...
    output : the directory of the files, made if needed; None: no file is written
    plan : a plan file; fields of ``request`` change it
    wrapper : ``script``, ``slurm``, ``kubernetes`` or ``kserve``
    request : as in `search`; default of framework or engine: those of the target

    Returns
    -------
    WrittenLaunch
        ``files`` with name and text; ``notes`` on what the tool cannot express.

    >>> written = write_launch("vllm", workload="serve", model="llama-3.1-8b", gpu="h100",
    ...                        num_gpus=1)
    >>> [file.name for file in written.files]
    ['serve.sh', 'benchmark.sh', 'plan.toml']
    """
    base = None if plan is None else SavedPlan.read(Path(plan)).request()
    extra = {"target": target, "wrapper": wrapper, "base": base, "is_layout": base is not None}
    written = LAUNCH.answer(Call(request=request, extra=extra, bar=no_bar)).launch
    if output is not None:
        save_launch(Path(output), written)
    return written


def read_launch(path: str | os.PathLike[str], **answers: object) -> Request:
    """The question of a launch file: the ``base`` of `search` or `estimate`.

    Settings that neither the file nor ``answers`` specify are assumed, except the model. With
    ``workload="rl"`` a file that trains on its own generated answers is read as the whole step,
    else as the update only.

    Raises LaunchError if the file cannot be read, starts no known program, or sets no model;
    SpecError or SearchSpaceError if it names an unknown spec or value.

    Parameters
    ----------
    path : launch file: a shell script, YAML, JSON or TOML document
    answers : fields of `planner.Request` that the file leaves open, or that replace those of the
        file

    Returns
    -------
    Request
        the question of the file, with its layout in ``settings``.

    >>> from tempfile import mkdtemp
    >>> path = Path(mkdtemp(), "serve.sh")
    >>> _ = path.write_text("vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2")
    >>> request = read_launch(path, gpu="h100")
    >>> request.workload, request.settings["tensor_parallel"]
    ('serve', 2)
    """
    specs = None if answers.get("specs") is None else Path(str(answers["specs"]))
    workload = answers.get("workload")
    file = LaunchFile(path=Path(path), answers=answers, specs=specs, workload=workload)
    question = file.question()
    return make_request(answers, base=question.request)


def validate_log(
    log: str | os.PathLike[str],
    plan: str | os.PathLike[str],
    *,
    log_format: str | None = None,
    specs: str | os.PathLike[str] | None = None,
) -> Comparison:
    """The measured quantities of a run's log compared with the predictions of its plan.

    Raises LaunchError if the log cannot be read, or is of another run than the plan's; SpecError or
    SearchSpaceError if the file is not a plan, or names an unknown spec or value.

    Parameters
    ----------
    log : output of the run, or a result file of its benchmark
    plan : the file of the plan that ran
    log_format : name of the format, such as ``megatron``; default: recognized from the lines
    specs : a folder of the user's specs, which replaces the plan's

    Returns
    -------
    Comparison
        ``quantities`` by the names of columns of runs, in their units [s, 1/s, GiB], each with
        its prediction and 90 % interval; ``notes``; the ``cells`` of the run's row.

    >>> from tempfile import mkdtemp
    >>> folder = mkdtemp()
    >>> _ = write_launch("vllm", folder, workload="serve", model="llama-3.1-8b", gpu="h100",
    ...                  num_gpus=1, input_tokens=1000, output_tokens=200)
    >>> compared = validate_log("docs/samples/bench.json", f"{folder}/plan.toml")
    >>> [quantity.name for quantity in compared.quantities][:2]
    ['requests_per_s', 'output_tokens_per_s']
    """
    from planner.logs.formats import read_log
    from planner.validation.logs.log_comparison import compare
    from planner.validation.logs.predicted_run import PredictedRun

    planned = PredictedRun.read(Path(plan), None if specs is None else Path(specs))
    return compare(read_log(Path(log), log_format), planned, Path(log).name)


def validate_runs(
    runs: str | os.PathLike[str] | None = None,
    *,
    where: str | Sequence[str] = (),
    specs: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> ValidateAnswer:
    """The errors of predictions for measured runs, as ``planner validate`` shows them.

    Raises SpecError if the table has errors; SearchSpaceError if a condition is invalid, names an
    unknown column, or no run meets it.

    Parameters
    ----------
    runs : a CSV file of runs; None: the published runs
    where : pandas expressions over the columns of runs, such as ``"gpu_vendor == 'amd'"``. Of each
        run planner adds ``model_kind``, ``gpu_vendor``, ``consumer_gpu``, ``context_tokens`` and
        ``first_run``
    specs : a folder of the user's specs
    progress : called with the number of runs done

    Returns
    -------
    ValidateAnswer
        ``runs``, each with ``measured`` values and predicted ``ranges`` in the units of the
        columns [s, 1/s, GiB]; ``to_frame()`` has a row per run.

    >>> answer = validate_runs(where="publisher == 'torchtitan' and num_gpus >= 256")
    >>> answer.runs[0].software, len(answer.runs) == len(answer.to_frame())
    ('torchtitan', True)
    """
    from planner.show.presenters.validation import ValidateAnswer
    from planner.specs.catalogue import Catalogue
    from planner.validation.spec_library import Library
    from planner.validation.validated_runs import predict_runs

    library = Library(catalogue=Catalogue(None if specs is None else Path(specs)))
    conditions = [where] if isinstance(where, str) else [*where]
    path = None if runs is None else Path(runs)
    return ValidateAnswer.from_result(
        predict_runs(path, conditions, library, lambda total, unit: nullcontext(progress))
    )
