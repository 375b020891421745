"""Files that a Kubernetes manifest brings along in its ConfigMaps."""

from __future__ import annotations

from planner.documents.yaml_places import documents
from planner.shell import HereDocument
from planner.shell.text import Span


def config_maps(text: str, name: str) -> dict[str, HereDocument]:
    """The files of all ConfigMaps of a YAML text by their keys, with their places in it.

    Raises
    ------
    LaunchError
        It is no YAML, is too long or nested too deeply.
    """
    return {
        key: HereDocument(
            text=place.text,
            span=Span(0, 0),
            line=place.line,
            expanded=True,
            pieces=place.pieces,
        )
        for document in documents(text, name)
        if document.get("kind").text == "ConfigMap"
        for key, place in document.get("data").items()
        if place.text
    }
