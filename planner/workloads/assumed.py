"""What was chosen for the user, what a request leaves out, and how that is told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from planner.base import text
from planner.optimize.problem import Constraint, is_unknown
from planner.optimize.source import Source
from planner.question.request import Request
from planner.question.terms import terms_of
from planner.specs.catalogue import Catalogue


class Notes:
    """Collects what a plan reports about the specs of a catalogue, and defaults."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.defaults: dict[str, str] = {}
        self.tried: dict[str, Sequence[str]] = {}
        self.digests: dict[str, str] = {}
        self.assumed: list[str] = []

    def spec(self, kind: str, name: str, content: str, origins: Mapping[str, str]) -> None:
        self.digests[f"{kind} {name}"] = content
        self.assumed += [
            f"{kind} {key}"
            for key, source in origins.items()
            if source == "assumed" or source.startswith("default (")
        ]

    def copy(self, given: str, name: str) -> None:
        """Note where the model ``name`` stands for a copy of it that was named."""
        if self.catalogue.copied_from(given):
            self.defaults["model"] = f"{name}, of which {given} is a copy judging by its name"


def assumed_limits(workload: str, given: Collection[str]) -> dict[str, float]:
    """The table's default of every limit that has one, in SI units.

    None where a limit of a time is given: who gives one knows what the others are to be.
    """
    known = terms_of(workload, "limit")
    if _limits_a_time(workload, given):
        return {}
    return {name: float(term.default) for name, term in known.items() if term.default}


def assumed_for_batches(given: Collection[str], output_tokens: int) -> dict[str, float]:
    """The bound on a static batch's request latency [s]; none where a limit of a time is given.

    That of a served answer of so many tokens within the assumed limits of serving: nobody waits
    longer for it in a batch, whatever its length.
    """
    if _limits_a_time("inference", given):
        return {}
    served = assumed_limits("serve", ())
    further = (output_tokens - 1) * served["time_per_output_token"]
    return {"request_latency": served["time_to_first_token"] + further}


def _limits_a_time(workload: str, given: Collection[str]) -> bool:
    known = terms_of(workload, "limit")
    return any(known[name].type == "second" for name in given if name in known)


def limit_notes(
    limits: Iterable[Constraint], assumed: Mapping[str, float] | None = None
) -> dict[str, str]:
    """What is said of limits that nobody gave; ``assumed`` has the bounds they had at first."""
    return {one.name: _note(one, (assumed or {}).get(one.name)) for one in limits if one.assumed}


def sureness_notes(
    sources: Sequence[Source], limits: Sequence[Constraint], request: Request
) -> dict[str, str]:
    """What is said where a confidence is asked for that no published runs tell of."""
    sure, judged = request.limit_confidence, [(limit.name, limit.sign) for limit in limits]
    if request.request_rate is not None:
        judged.append(("request_rate", -1))
    unknown = dict.fromkeys(
        source.told
        for source in sources
        if any(is_unknown(source, name, sure, sign) for name, sign in judged)
    )
    if not unknown:
        return {}
    where = "" if len(unknown) == len({source.told for source in sources}) else _some(unknown)
    return {"limits": f"judged at the prediction: no published runs{where}"}


def _some(names: Collection[str]) -> str:
    first, *others = names
    return f" like {first}" + (f" and {len(others)} others" if others else "")


def tried_notes(
    tried: Mapping[str, Sequence[str]], row: Mapping[str, object] | None = None
) -> dict[str, str]:
    """What is said of parameters that the space had several values of: the one of a ``row``."""
    if row is None:
        return {name: f"{' or '.join(values)} (of the space)" for name, values in tried.items()}
    return {
        name: f"{row[name]} of {', '.join(values)} (all that the space tries)"
        for name, values in tried.items()
    }


def _note(limit: Constraint, before: float | None) -> str:
    words = f"at {'most' if limit.sign > 0 else 'least'} {text.limit(limit.bound, limit.unit)}"
    if before is None or before == limit.bound:
        return f"{words} (default)"
    told = f"relaxed from {text.limit(before, limit.unit)}"
    return f"{words}, {told} (no plan keeps the defaults)"
