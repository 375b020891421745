"""Pages of the site that are made when it is built, and its navigation.

`docs/conf.py` calls this; nothing made here is in the repository.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import make_notebooks
import spec_pages

import planner.formulas
from planner.specs.catalogue import Catalogue

ROOT = Path(__file__).parents[1]
# Where the pages of the repository's top folder are on the site.
_OF_THE_TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "generated/contributing.md",
    "CHANGELOG.md": "generated/changelog.md",
    "SECURITY.md": "generated/security.md",
}
NAVIGATION = {
    "Start": "start/train start/serve start/buy start/check",
    "How-to": "generated/train generated/serve generated/buy generated/launch "
    "generated/share generated/notebooks",
    "Background": "background/prediction background/uncertainty background/accuracy "
    "background/traffic background/design background/speed generated/formulas "
    "generated/contributing generated/security",
    "Reference": "reference/reference generated/interface generated/gpus generated/clusters "
    "generated/models generated/frameworks generated/engines reference/launch_options "
    "reference/launch_files_read reference/models_read reference/accuracy_tables "
    "reference/releases reference/peers reference/causes "
    "reference/recipes reference/campaigns reference/procurement reference/llm_analysis "
    "reference/versions reference/install generated/changelog",
}
GROUPS = {
    "train": (
        "Train",
        "how-to/training how-to/layouts how-to/fine-tuning how-to/preferences how-to/rl "
        "how-to/rl_files",
    ),
    "serve": (
        "Serve",
        "how-to/serving how-to/static_batches how-to/inputs how-to/traffic how-to/sessions "
        "how-to/fleets how-to/simulators",
    ),
    "buy": (
        "Buy or rent",
        "how-to/sizing how-to/services how-to/sweeps how-to/clusters how-to/decide "
        "how-to/money how-to/failures how-to/energy how-to/api_prices",
    ),
    "launch": (
        "Launch and measure",
        "how-to/launch how-to/launch_from how-to/check how-to/launch_targets how-to/measure "
        "how-to/calibration",
    ),
    "notebooks": (
        "Notebooks",
        "generated/notebook_plan_pretraining generated/notebook_size_service "
        "generated/notebook_calibrate",
    ),
    "share": (
        "Understand and share",
        "how-to/comparing how-to/explaining how-to/operators how-to/largest how-to/pictures "
        "how-to/report how-to/files how-to/ui how-to/python how-to/drivers how-to/specs",
    ),
}
"""Pages of the site that list the How-to pages of a task: title and pages by name."""
_NOTEBOOK = re.compile(r"\]\(((?:\.\./)*)notebooks/(\w+)\.ipynb\)")
_FORMULAS = """Formulas
========

Every coefficient is in ``planner.formulas``: functions of numbers and of arrays of them, without
specs or configurations. Quantities are in SI units. This page is made of what the code says.
"""
_INTERFACE = """Python interface
================

:doc:`../how-to/python` has examples.

.. autofunction:: planner.search
.. autofunction:: planner.estimate
.. autofunction:: planner.check
.. autofunction:: planner.size
.. autofunction:: planner.size_services
.. autofunction:: planner.size_pools
.. autofunction:: planner.sweep
.. autofunction:: planner.explain
.. autofunction:: planner.compare
.. autofunction:: planner.max_batch
.. autofunction:: planner.max_batches
.. autofunction:: planner.max_length
.. autofunction:: planner.operators
.. autofunction:: planner.predictor
.. autofunction:: planner.write_launch
.. autofunction:: planner.read_launch
.. autofunction:: planner.validate_log
.. autofunction:: planner.validate_runs
.. autoclass:: planner.Request

Results
-------

.. autoclass:: planner.optimize.result.SearchResult
   :members:
.. autoclass:: planner.workloads.workload.Evaluation
   :members:
.. autoclass:: planner.decide.sizing.size_all.Sizes
   :members:
.. autoclass:: planner.decide.sizing.size.Size
   :members:
.. autoclass:: planner.decide.sizing.fleet.FeasiblePlan
   :members:
.. autoclass:: planner.sweeps.sweep_folder.Sweep
   :members:
.. autoclass:: planner.decide.explain.explanation.Explanation
   :members:
.. autoclass:: planner.decide.explain.plan_comparison.ComparedPlans
   :members:
.. autoclass:: planner.decide.explain.largest_fit.LargestFit
   :members:
.. autoclass:: planner.decide.explain.largest_fit.Methods
   :members:
.. autoclass:: planner.decide.explain.largest_fit.Method
   :members:
.. autoclass:: planner.decide.explain.operators.OperatorTimes
   :members:
.. autoclass:: planner.decide.api_comparison.ApiComparison
   :members:
.. autoclass:: planner.decide.api_comparison.Offer
.. autoclass:: planner.decide.predictor.Predictor
   :members:
.. autoclass:: planner.decide.predictor.VidurPredictor
   :members:

Errors
------

.. automodule:: planner.errors
   :members:
   :exclude-members: did_you_mean
"""


def write(folder: Path) -> None:
    """Write the pages into a folder; those that are as they were keep their time."""
    folder.mkdir(exist_ok=True)
    for name, text in pages():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """File names and texts."""
    catalogue = Catalogue(None)
    for kind in ("gpus", "clusters", "models", "frameworks", "engines"):
        yield f"{kind}.md", getattr(spec_pages, kind)(catalogue) + "\n"
    for name, (title, listed) in GROUPS.items():
        contents = "\n".join(f"/{page}" for page in listed.split())
        yield f"{name}.md", f"# {title}\n\n```{{toctree}}\n{contents}\n```\n"
    for path in sorted(make_notebooks.FOLDER.glob("*.ipynb")):
        notebook = make_notebooks.read(path)
        yield f"notebook_{path.stem}.md", make_notebooks.notebook_page(notebook)
    yield "formulas.rst", formulas()
    yield "interface.rst", _INTERFACE
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        text = ROOT.joinpath(name).read_text(encoding="utf-8")
        yield name.lower(), text.replace("](docs/", "](../").replace("](README.md", "](../index.md")


def formulas() -> str:
    """A section for each module of `planner.formulas`, in the words of its documentation."""
    parts = [_FORMULAS]
    for found in pkgutil.iter_modules(planner.formulas.__path__):
        title = found.name.replace("_", " ").capitalize().replace("Kv", "KV")
        name = f"planner.formulas.{found.name}"
        importlib.import_module(name)
        parts.append(f"{title}\n{'-' * len(title)}\n\n.. automodule:: {name}\n   :members:\n")
    return "\n".join(parts)


def prepare(name: str, source: list[str]) -> None:
    """Lead the links of a page to the site, and give its first page the navigation."""
    to_docs = "../" * name.count("/")
    for path, page in _OF_THE_TOP.items():
        source[0] = source[0].replace(f"]({to_docs}../{path}", f"]({to_docs}{page}")
    source[0] = _NOTEBOOK.sub(r"](\1generated/notebook_\2.md)", source[0])
    if name == "index":
        source[0] += "".join(_contents(caption, names) for caption, names in NAVIGATION.items())


def _contents(caption: str, names: str) -> str:
    listed = "\n".join(names.split())
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n"


def prepare_docstring(
    _app: Any, _what: str, name: str, _found: Any, _options: Any, lines: list[str]
) -> None:
    """Lead the lines of a docstring, as they are written here, to what Sphinx reads."""
    lines[:] = with_own_references(name, with_examples(with_parameters(lines)))


def with_own_references(name: str, lines: Iterable[str]) -> list[str]:
    """References with names that no other docstring on the page has."""
    label = re.sub(r"\W", "-", name)
    return [re.sub(r"(?<!\w)\[(\d+)\](?=_|\s|$)", rf"[#{label}-\1]", line) for line in lines]


def with_parameters(lines: Sequence[str]) -> list[str]:
    """Parameters as a list of definitions: we write what one means where others write its type."""
    prepared: list[str] = []
    inside = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if below and set(below) == {"-"}:
            inside = line == "Parameters"
            prepared.append(".. rubric:: Parameters" if inside else line)
        elif inside and line and set(line) == {"-"}:
            prepared.append("")
        elif inside and line[:1].strip() and " : " in line:
            names, _, words = line.partition(" : ")
            prepared += [", ".join(f"``{one}``" for one in names.split(", ")), f"    {words}"]
        else:
            prepared.append(line)
    return prepared


def with_examples(lines: Sequence[str]) -> list[str]:
    """Examples under a heading of their own, not in the section above them."""
    for number, line in enumerate(lines):
        if line.startswith(">>>"):
            return [*lines[:number], "Examples", "--------", *lines[number:]]
    return [*lines]
