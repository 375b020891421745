"""What the commands of serving engines have in common when they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from planner.base.reading import json_of
from planner.base.records import record
from planner.base.units import GIB
from planner.configurations.serving import OF_PREFILL, PREFILL, ServingConfigurations
from planner.errors import LaunchError, PlannerError
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.weights import weight_bytes
from planner.estimators.machine import Machine
from planner.launch.accepted import Accepted
from planner.launch.option_table import OptionTable
from planner.launch.serving import DECODE_POOL, PREFILL_POOL
from planner.launch.text import Given
from planner.launch.understood import Answers, Reading
from planner.question.inputs import read
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue
from planner.specs.checkpoint_names import checkpoint_of
from planner.specs.drafting import DraftMethod
from planner.specs.gpu import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.serving import ServingWorkload

_AGGREGATED, _DISAGGREGATED = "aggregated", "disaggregated"
_PROMPT_ALONE = "1"
_SIXTEEN_BIT = "w16a16"
_ANY_GPU, _ANY_NODE = "a100-sxm-80gb", "dgx-a100"  # weights are as large on every one
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+|[\w-][\w.-]*")
_HEADS = (DraftMethod.EAGLE3, DraftMethod.EAGLE)
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@record(kw_only=True)
class Told:
    """What is gathered of one command; ``answers`` makes the answers of it."""

    reading: Reading
    values: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def assume(self, name: str, value: Any, why: str) -> None:
        """A value that the command does not give."""
        if name not in self.values:
            self.values[name] = value
            self.defaults[name] = why

    def take(self, *options: str) -> None:
        """Options that told something."""
        self.used.update(option for option in options if self.reading.has(option))

    def copy(self, *names: str) -> None:
        """Parameters that the table reads as they are."""
        for name in names:
            meaning = self.reading.meanings.get(name)
            if meaning is not None:
                self.values[name] = meaning.value

    def count(self, name: str) -> int:
        """A parameter of the table as a whole number; 1 where it is none."""
        text = self.reading.value(name)
        number = whole(text)
        return number or 1

    def put_gpus(self, own: int) -> None:
        """The GPUs of all servers, where the file has a total, else those of one.

        Raises
        ------
        LaunchError
            The total is no multiple of what one server takes.
        """
        given = self.reading.found.world.num_gpus
        total = whole(given.texts[0]) if given is not None and given.texts else None
        if total is not None and given is not None and total % own:
            raise LaunchError(
                f"{self.reading.found.name}:{self.reading.found.line}: a server takes {own} GPUs, "
                f"and {given.option} gives {total} (line {given.line}): change one of them."
            )
        self.values["num_gpus"] = total or own

    def answers(self, pool: str) -> Answers:
        """The answers; those of a prefill worker have its names.

        Prefill and decode workers are commands of their own: the answers of both together are a
        plan, with the sum of their GPUs.
        """
        values = dict(self.values)
        values["mode"] = _DISAGGREGATED if pool in (PREFILL_POOL, DECODE_POOL) else _AGGREGATED
        defaults = dict(self.defaults)
        if pool == PREFILL_POOL:
            values = _of_prefill(values)
            defaults = _of_prefill(defaults)
            values["prefill_replicas"] = 1
        elif pool == DECODE_POOL:
            values["replicas"] = 1
        return self._made("serve", values, defaults)

    def batch(self) -> Answers:
        """The answers of an engine that is predicted for a static batch."""
        return self._made("inference", dict(self.values), dict(self.defaults))

    def _made(self, workload: str, values: dict[str, Any], defaults: dict[str, str]) -> Answers:
        return Answers(
            workload=workload,
            values=values,
            used=frozenset(self.used),
            defaults=defaults,
            asked=() if values.get("model") else ("model",),
            notes=tuple(self.notes),
        )


def _of_prefill(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        PREFILL + name if name in OF_PREFILL else name: value
        for name, value in values.items()
        if name != "concurrency"
    }


def whole(text: str | None) -> int | None:
    """A whole number as engines read it, ``8k`` and ``8K`` among others; None if it is none.

    >>> whole("8192"), whole("8K"), whole("1.5k"), whole("auto")
    (8192, 8192, 1500, None)
    """
    found = re.fullmatch(r"([0-9_]{1,18}(?:\.[0-9]{1,9})?)([kKmMgG]?)", (text or "").strip())
    if found is None:
        return None
    value = float(found[1].replace("_", "")) * _FACTORS.get(found[2], 1)
    return int(value) if value.is_integer() else None


def fraction(text: str | None) -> float | None:
    """A number; None if it is none."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def json_table(text: str | None) -> Mapping[str, Any]:
    """A mapping of JSON on the command line; empty where there is none that can be read."""
    try:
        value = json_of(text or "{}", "")
    except PlannerError:
        return {}
    return value if isinstance(value, dict) else {}


def with_config(reading: Reading, accepted: Accepted, table: OptionTable) -> Reading:
    """The reading with the options of the YAML that a command's ``--config`` names, or of a
    document of such options alone; those of the command go before them."""
    found = reading.found
    beside = found.files.get(reading.text("--config") or "")
    options: dict[str, Given] = {}
    for name, given in (*(beside.options.items() if beside else ()), *found.options.items()):
        option = accepted.find(name if name.startswith("-") else f"--{name.replace('_', '-')}")
        # A flag that is off in a document is one that is not there.
        if given.texts != ("false",) or name.startswith("-"):
            options[name if option is None else option.name] = given
    texts = {name: given.texts[0] if given.texts else None for name, given in options.items()}
    return Reading(found=replace(found, options=options), meanings=table.read(texts))


def words_of(reading: Reading) -> Iterator[str]:
    """Words that are no options, as far as text tells them."""
    for given in reading.found.positional:
        yield from (text for text in given.texts if text)


def known_model(name: str | None) -> ModelSpec | None:
    """The shipped model that a repository or folder is by its name; None where there is none.
    Nothing is loaded from elsewhere."""
    found = checkpoint_of(name).model if name else None
    try:
        return Catalogue().load_model(found) if found else None
    except (PlannerError, OSError, ValueError):
        return None


def known_gpu(name: str | None) -> GpuSpec | None:
    """The GPU that a scheduler's word means; None where it is not known."""
    try:
        return Catalogue().load_gpu(name).spec if name else None
    except (PlannerError, OSError, ValueError):
        return None


def put_draft_model(told: Told, name: object) -> None:
    """The model that drafts, if it is one that is known: heads of other methods are none."""
    if isinstance(name, str) and known_model(name) is not None:
        told.values["draft_model"] = checkpoint_of(name).model


def put_draft_method(
    told: Told, word: str | None, path: str | None, model: ModelSpec | None
) -> None:
    """What drafts, as a command names it, or the heads that it loads.

    Modules of a model are read as such where it has some: engines run them like heads.
    """
    name, heads = (word or "").lower(), (path or "").lower()
    if not name:
        name = next((one for one in _HEADS if one in heads), "")
    has_modules = model is not None and bool(model.num_nextn_predict_layers or model.mtp_num_layers)
    is_module = name.endswith(("mtp", "nextn")) or (name == DraftMethod.EAGLE and not heads)
    if has_modules and is_module:
        told.values["draft_method"] = str(DraftMethod.MTP)
    elif name in (*_HEADS, DraftMethod.NGRAM):
        told.values["draft_method"] = name


def put_model(told: Told, name: str | None) -> ModelSpec | None:
    """The model of a command; None where none is shipped of that name.

    A folder whose name tells nothing is left open.
    """
    model = known_model(name)
    if name and (model is not None or _REPOSITORY.fullmatch(name)):
        told.values["model"] = name
    elif name:
        told.notes.append(f"Which model {name} is, its name does not tell.")
    return model


def put_quantization(told: Told, name: str | None, model: ModelSpec | None) -> None:
    """The types of weights: as an option says, else those of the checkpoint as its name tells."""
    values = told.values
    told.copy("quantization", "expert_quantization")
    if "quantization" in values:
        values.setdefault("expert_quantization", values["quantization"])
        return
    if "expert_quantization" in values:
        published = model.quantization if model else None
        told.assume("quantization", published or _SIXTEEN_BIT, "that of the checkpoint")
        return
    word = checkpoint_of(name).quantization if name else None
    if word is not None:
        why = f"the checkpoint is called {name}"
        told.assume("quantization", word, why)
        told.assume("expert_quantization", word, why)
        return
    why = "the published checkpoint" if model else "16 bit, as no option says otherwise"
    dense = (model.quantization if model else None) or _SIXTEEN_BIT
    experts = (model.expert_quantization if model else None) or dense
    told.assume("quantization", dense, why)
    told.assume("expert_quantization", experts, why)


def put_experts(told: Told, model: ModelSpec | None, stage_gpus: int) -> None:
    """Experts over all GPUs of a stage, or each over all of them."""
    splits = told.reading.value("splits_experts") == "true"
    has_experts = model is None or model.num_experts > 0
    told.values["expert_parallel"] = stage_gpus if splits and has_experts else 1


def put_offload(told: Told, model: ModelSpec | None, option: str) -> None:
    """The share of the weights in host memory, of GiB of each GPU; no cache there."""
    told.values.update(weight_offload=0.0, kv_offload=0.0)
    size = fraction(told.reading.text(option))
    told.take(option)
    if not size:
        return
    if model is None:
        told.notes.append(
            f"{option} keeps {size:g} GiB of each GPU's weights in host memory: give their share "
            "with --set weight_offload=SHARE."
        )
        return
    whole_size = weights_per_gpu(model, told.values) / GIB
    told.values["weight_offload"] = min(round(size / whole_size, 4), 0.99)


def weights_per_gpu(model: ModelSpec, values: Mapping[str, Any]) -> float:
    """Bytes of the weights of a GPU of one server, wherever they are kept.

    ``values`` has its parameters and the name of its ``engine``.
    """
    catalogue, terms = Catalogue(), glossary()
    setting = ServingSetting(
        machine=Machine(
            gpu=catalogue.load_gpu(_ANY_GPU).spec,
            cluster=catalogue.load_cluster(_ANY_NODE).spec,
        ),
        model=model,
        engine=catalogue.load_engine(str(values["engine"])).spec,
        workload=ServingWorkload(input_tokens=1, output_tokens=1),
    )
    names = (*ServingConfigurations.names(),)
    own = {
        name: terms[name].coded(read(terms[name], value) if isinstance(value, str) else value)
        for name, value in values.items()
        if name in names
    }
    return float(weight_bytes(setting, ServingConfigurations.of(**own)).total)


def note_lengths(told: Told, longest: int | None) -> None:
    """That a command does not tell how long requests are."""
    limit = "" if longest is None else f", at most {longest:,} tokens together"
    if told.reading.value("output_tokens") == _PROMPT_ALONE:
        told.copy("output_tokens")
        told.notes.append(
            "Requests are embedded or scored: a prompt without an answer is done at its first "
            f"token. The command does not say how long they are{limit}: give --input-tokens."
        )
    else:
        told.notes.append(
            f"The command does not say how long prompts and answers are{limit}: give "
            "--input-tokens and --output-tokens."
        )
    told.notes.append(
        "As many of the requests that may run at once do run as the cache has room for."
    )
