"""Commands whose options take a text as it is written.

typer asks pydantic for every value, which takes longer to load than a search needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from typer._click import Context, Parameter
    from typer.core import TyperOption


class _Plain:
    """What typer makes of the values of an option: nothing, where they are texts."""

    def coerce(self, value: object, param: TyperOption, ctx: Context) -> object:
        """The value of an option; where it is no text, as typer makes it."""
        if value is None:
            return () if param.multiple else None
        annotation = param.type_descriptor.annotation
        if annotation is str:
            return value
        if annotation == list[str]:
            return [*value] if isinstance(value, Iterable) else value
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _plain(params: list[Parameter]) -> list[Parameter]:
    """These parameters; those of older versions of typer know no such thing."""
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            vars(param)["_runtime_param"] = _Plain()
    return params


class PlainCommand(TyperCommand):
    """A command of such options."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Its options, with the one of the help."""
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands with such options of its own."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Its options, with the one of the help."""
        return _plain(super().get_params(ctx))
