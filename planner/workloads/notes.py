"""What was chosen for the user, and which specs were read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
            self.defaults["model"] = f"{name}, of which {given} is a copy by its name"
