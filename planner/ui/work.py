"""What worker processes do: answer a question as an object and as a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from planner.base.reading import json_of
from planner.base.records import record
from planner.decide.sizing.size import contracts_given, size_all, tasks_of
from planner.errors import InfeasibleError
from planner.optimize.exhaustive import exhaustive_search
from planner.pages.document import Document
from planner.pages.read import document_page
from planner.show.html import environment, page_data
from planner.show.views.documents import add_estimate, finish_search, object_text
from planner.show.views.infeasible import infeasible_message
from planner.show.views.rows import RowFiles, result_blocks
from planner.show.views.sizes import add_sizes, question_lines, reason_lines
from planner.specs.catalogue import Catalogue
from planner.ui.limits import Limits, Refused
from planner.ui.question import Question, option_of
from planner.workloads.plan import answered, evaluated, make_plan, one_configuration, result_of

Tell = Callable[[int, int], None]
"""Is told how much is done, and of how much."""

_WHERE = "the answer"


@record(kw_only=True)
class Answer:
    """The object of ``--json`` as text; as a page its content and what its script draws, as HTML
    and JSON.
    """

    title: str
    object: str
    content: str
    data: str

    @property
    def size(self) -> int:
        """Characters of all."""
        return len(self.object) + len(self.content) + len(self.data)


def answer(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> Answer:
    """Answer a question.

    Raises
    ------
    PlannerError
        It is unknown, impossible, infeasible, or beyond a limit.
    """
    text = _ANSWERS[question.command](question, specs, limits, tell)
    if len(text) > limits.answer_bytes:
        raise Refused(_too_large(limits), 413)
    page = document_page(Document.of(json_of(text, _WHERE), _WHERE), Catalogue(specs))
    templates = environment()
    content = templates.get_template("content.html").render(page=page)
    data = templates.from_string("{{ data|tojson }}").render(data=page_data(page))
    made = Answer(title=page.title, object=text, content=content, data=data)
    if made.size > limits.answer_bytes:
        raise Refused(_too_large(limits), 413)
    return made


def _too_large(limits: Limits) -> str:
    most = limits.answer_bytes / 2**20
    return f"The answer has more than {most:g} MB: narrow the question, or use the command line."


def _search(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> str:
    plan = make_plan(question.request(specs))
    total = plan.problem.num_rows
    if total > limits.rows:
        raise Refused(
            f"That is {total:,} configurations; here a search has at most {limits.rows:,}. Narrow "
            "it with settings, or use the command line.",
            413,
        )
    result = exhaustive_search(plan.problem, progress=lambda done: tell(done, total))
    plan = answered(plan, result)
    if result.fastest is None:
        raise InfeasibleError(infeasible_message(plan, result))

    def add(files: RowFiles) -> None:
        files.add(result_blocks(plan, result.scaled(result.table)))
        finish_search(files, plan, result, question.words, {"driver": "exhaustive"})

    return object_text(add)


def _estimate(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> str:
    plan = one_configuration(question.request(specs))
    found = evaluated(plan)
    if found.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, found), found))
    return object_text(lambda files: add_estimate(files, plan, found, question.words))


def _size(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> str:
    fields = dict(question.fields)
    contracts = contracts_given(fields.pop("contract", None), option_of("contract"))
    asked = Question(command="size", workload=question.workload, fields=fields)
    request = asked.request(specs)
    total = len(tasks_of(request, contracts, said=option_of))
    tell(0, total)
    sizes = size_all(request, contracts, said=option_of, progress=lambda done: tell(done, total))
    if sizes.best is None:
        lines = [*question_lines(sizes), *filter(None, reason_lines(sizes))]
        raise InfeasibleError("\n".join(lines))
    return object_text(lambda files: add_sizes(files, sizes, question.words))


_ANSWERS = {"search": _search, "estimate": _estimate, "size": _size}
