"""Stand-ins for packages that no parser of arguments runs: kernels, compilers, pictures.

Modules that name them can be imported; nothing of this computes anything. It saves the gigabytes
of the real packages, or needs no GPU where they do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, ClassVar


class Anything:
    """Has every attribute, may be called and subscripted; a decorator that keeps functions."""

    __members__: ClassVar[dict[str, Any]] = {}  # of a compiled enumeration

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *given: Any, **_: Any) -> Any:
        kept = len(given) == 1 and isinstance(given[0], (FunctionType, type))
        return given[0] if kept else Anything()

    def __getitem__(self, _: object) -> Anything:
        return Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __enter__(self) -> Anything:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __or__(self, _: object) -> Anything:
        return Anything()

    __ror__ = __or__

    def __class_getitem__(cls, _: object) -> type:
        return cls

    @classmethod
    def __get_pydantic_core_schema__(cls, _: object, __: object) -> dict[str, Any]:
        return {"type": "any"}


class Named(type):
    """A class that has every attribute."""

    def __getattr__(cls, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Empty(ModuleType):
    """A module that has every name."""

    __version__ = "99.0.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Named(name, (Anything,), {}) if name[:1].isupper() else Anything()


class Finder(MetaPathFinder, Loader):
    """Finds every module of the packages named, after everything that is installed."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self.names or fullname in self.names:
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Empty(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class Missing(Finder):
    """Finds every package that is not installed, but for those named."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package in (*self.names, *sys.stdlib_module_names) or package.startswith("_"):
            return None
        return ModuleSpec(fullname, self, is_package=True)


def install_missing(*but: str) -> None:
    """Stand in for every package that is not installed, but for those named."""
    sys.meta_path.append(Missing(but))


def install(*names: str) -> None:
    """Stand in for these packages from now on."""
    sys.meta_path.append(Finder(names))


def pass_over(folder: Path, *packages: str) -> None:
    """Let modules of packages in a folder be imported without what the packages import first."""
    for name in packages:
        sys.modules[name] = module = ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")))]
