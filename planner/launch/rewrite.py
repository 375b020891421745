"""A user's launch file with a change made in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.launch.imported import Imported
from planner.launch.job import Job
from planner.launch.option_table import Remark
from planner.launch.target import Target
from planner.launch.text import diff

REMOVED = None
"""In place of the text of an option: it is taken out."""


@dataclass(frozen=True, kw_only=True)
class Rewritten:
    """A file after a change.

    ``unexpressed`` is what the target cannot say of the change, ``unwritten`` the options whose
    place in the file text alone does not tell, each with what it is to be.
    """

    name: str
    before: str
    after: str
    unexpressed: tuple[Remark, ...] = ()
    unwritten: Mapping[str, str] = field(default_factory=dict)

    @property
    def diff(self) -> str:
        """A unified diff, empty where nothing is changed."""
        return diff(self.before, self.after, self.name)


def rewritten(imported: Imported, before: Job, after: Job) -> Rewritten:
    """The file of a launch, changed from the plan ``before`` to the one ``after``."""
    found, target = imported.found, imported.target
    settings = target.settings(after)
    return Rewritten(
        name=found.name, before=found.text, after=found.text, unexpressed=settings.unexpressed
    )


def option_changes(target: Target, before: Job, after: Job) -> dict[str, tuple[str, ...] | None]:
    """The options that say another plan than before: their texts, `REMOVED` where they go."""
    old, new = (
        {
            one.option: () if one.text is None else (one.text,)
            for one in target.settings(job).options
        }
        for job in (before, after)
    )
    changed: dict[str, tuple[str, ...] | None] = {
        option: texts for option, texts in new.items() if old.get(option) != texts
    }
    return changed | {option: REMOVED for option in old if option not in new}
