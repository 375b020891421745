"""What a plan writes, every option of it, is read back into the parameters that it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from documents import with_files
from round_trip import found_of, lost
from rows import each
from serving_trip import lost_between
from worked.asked import job
from worked.plans import PLANS

from planner.launch.option_table import OptionRole
from planner.launch.targets import target_of, targets
from planner.question.terms import terms_of

NOT_READ = {
    "llama-server": {"quantization": "the name of a file tells it, which is the user's"},
    "vllm drafted": {
        "concurrency": "the plan has more places than requests, and one option for both",
        "lora_rank": "vLLM has some ranks alone: the next one is written, and told",
    },
    "axolotl fsdp": {"optimizer": "no name of Transformers is of it, which is told"},
}
"""What plans say and files cannot, with the reason."""
WITHOUT_READER = ("dynamo",)
# Which server is of which pool stands in a document that the shell makes.
_BY_SHELL = ("tensorrt-llm", "pools")
CASES = [
    (name, plan)
    for name in targets()
    for plan in PLANS[name]
    if name not in WITHOUT_READER and (name, plan) != _BY_SHELL
]


@pytest.mark.few(12)
@pytest.mark.parametrize(("name", "plan"), CASES)
def test_every_option_that_is_written_is_read_back(name: str, plan: str) -> None:
    """Plans of worked values, which have every row of a table: see ``test_worked_values``."""
    target, one = target_of(name), job(PLANS[name][plan])
    draft = target.make_draft(one)
    if one.workload == "train" or not one.is_disaggregated:
        document = with_files(target, draft)
        found = replace(found_of(target, draft), options=document.options, files=document.files)
        wrong = lost(target, one, target.read_settings(found))
    else:
        wrong = lost_between(target, one)
    known = {*NOT_READ.get(name, ()), *NOT_READ.get(f"{name} {plan}", ())}
    assert {name: pair for name, pair in wrong.items() if name not in known} == {}


@each("name", [name for name in targets() if name not in WITHOUT_READER])
def test_every_word_of_a_table_is_one_that_its_parameter_takes(name: str) -> None:
    """Else a file would be read into what no plan can have."""
    target = target_of(name)
    for workload in target.workloads:
        terms = terms_of(workload, "parameter")
        for row in target.table.rows:
            codes = terms[row.parameter].codes if row.parameter in terms else None
            is_word = (
                row.role in (OptionRole.IS, OptionRole.READS, OptionRole.OMITTED, OptionRole.USUAL)
                and row.value
            )
            if codes is not None and is_word and not terms[row.parameter].is_level:
                assert row.value in [code.word for code in codes], row
