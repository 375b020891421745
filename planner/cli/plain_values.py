"""Commands whose options take a text as it is written.

typer asks pydantic for every value, which takes longer to load than a search needs.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperGroup


class _Plain:
    """What typer makes of the values of an option: nothing, where they are texts."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of an option; where it is no text, as typer makes it."""
        if value is None:
            return () if param.multiple else None
        annotation = param.type_descriptor.annotation
        if annotation is str:
            return value
        if annotation == list[str]:
            return [*value]
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _plain(params: list[Any]) -> list[Any]:
    """These parameters; those of older versions of typer know no such thing."""
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = _Plain()
    return params


class PlainCommand(TyperCommand):
    """A command of such options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, with the one of the help."""
        return _plain(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """A group of commands with such options of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, with the one of the help."""
        return _plain(super().get_params(ctx))
