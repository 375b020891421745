"""What drafts tokens in front of a server, in the words of launch files."""

from __future__ import annotations

from pathlib import Path

from planner.launch.job import Job, hub_name
from planner.launch.target import Argument, Variable
from planner.specs.catalogue import Catalogue
from planner.specs.drafting import DraftMethod
from planner.specs.model import ModelSpec

_NAME = "DRAFT_MODEL"
_HEADS = (DraftMethod.EAGLE, DraftMethod.EAGLE3)


def named_draft(job: Job) -> ModelSpec | None:
    """The model that drafts tokens, where the plan names one.

    Raises
    ------
    SpecError
        There is no such model any more.
    """
    name, folder = job["draft_model"], job.pinned.specs_folder
    return Catalogue(Path(folder) if folder else None).load_model(str(name)) if name else None


def draft_word(job: Job) -> str | Variable:
    """What an engine is told to draft with: a repository, or what the user must say."""
    spec = named_draft(job)
    if spec is None:
        return Variable(name=_NAME, meaning="folder or ORG/NAME of the model that drafts")
    known = hub_name(str(job["draft_model"]), *spec.aliases)
    return known or Variable(name=_NAME, meaning=f"folder or ORG/NAME of {spec.name}, which drafts")


def draft_file(job: Job) -> Variable:
    """The GGUF file of the model that drafts; such files have no names that are known."""
    spec = named_draft(job)
    model = "the model that" if spec is None else f"{spec.name}, which"
    return Variable(name=_NAME, meaning=f"GGUF file of {model} drafts")


def beside_table(job: Job) -> DraftMethod | None:
    """The method of a plan that no table of options says; None: one that they do, or none."""
    method = DraftMethod(job["draft_method"] or "")
    is_beside = method in (*_HEADS, DraftMethod.NGRAM)
    return method if is_beside and job["draft_tokens"] else None


def draft_method(job: Job) -> str:
    """Who drafts: as it is said, a model that is named, else modules of the model itself, else any
    smaller one."""
    if (method := beside_table(job)) is not None:
        return str(method)
    if job["draft_model"]:
        return "draft"
    return "mtp" if max(job.model.num_nextn_predict_layers, job.model.mtp_num_layers) else "draft"


def method_arguments(job: Job, option: str, model: str, *, upper: bool) -> list[Argument]:
    """``option`` with such a method, and ``model`` with heads."""
    method = beside_table(job)
    if method is None:
        return []
    found = [Argument(words=(option, method.upper() if upper else str(method)))]
    heads = Variable(name=_NAME, meaning="folder or ORG/NAME of the heads that draft")
    return [*found, Argument(words=(model, heads))] if method in _HEADS else found
