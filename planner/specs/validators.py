"""What the annotations of a spec say beside bounds, in words that load no pydantic until it judges.

Bounds are those of `annotated_types`, which pydantic reads itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.base.records import record


@record()
class Before:
    """A function of the value as it is given, and of what holds its ``context``."""

    func: Callable[[Any, Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The same for pydantic."""
        from pydantic_core.core_schema import with_info_before_validator_function

        return with_info_before_validator_function(self.func, handler(source))


@record()
class After:
    """A function of the value that is right so far."""

    func: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The same for pydantic."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self.func, handler(source))


@record()
class Strict:
    """Nothing is converted: no text is a number, no fraction of zero a whole number."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The same for pydantic."""
        return {**handler(source), "strict": True}
