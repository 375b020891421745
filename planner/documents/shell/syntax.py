"""What a shell script consists of, as written: words of parts, commands, branches and loops."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Literal:
    """Characters that stand for themselves; ``start`` to ``end`` is where, without quotes.

    ``quote`` is what they stand in: nothing, ``'``, ``"``, ``$'`` or a backslash before them.
    """

    text: str
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """``$name`` or ``${name...}``; ``operator`` such as ``:-`` with what follows it."""

    name: str
    start: int
    end: int
    quoted: bool
    subscript: str = ""
    operator: str = ""
    argument: tuple[Part, ...] = ()


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``$(( ... ))``."""

    parts: tuple[Part, ...]
    start: int
    end: int
    quoted: bool


@dataclass(frozen=True, slots=True)
class Run:
    """What only running it would tell: ``$(command)``, `` `command` ``, ``<(command)``.

    ``parts`` are what ``$(cat <<END`` shows, which is told.
    """

    start: int
    end: int
    quoted: bool
    parts: tuple[Part, ...] = ()


Part = Literal | Parameter | Arithmetic | Run


@dataclass(frozen=True, slots=True)
class RawWord:
    """One word as written."""

    parts: tuple[Part, ...]
    start: int
    end: int

    @property
    def literal(self) -> str | None:
        """Its text where it has literal parts alone."""
        texts = [part.text for part in self.parts if isinstance(part, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None


@dataclass(frozen=True, slots=True)
class Assignment:
    """``NAME=value``, ``NAME+=value`` or ``NAME=(words)``; of an element if ``subscript``."""

    name: str
    start: int
    adds: bool
    subscript: str
    value: RawWord | None = None
    elements: tuple[RawWord, ...] = ()


@dataclass(frozen=True, slots=True)
class HereText:
    """The body of ``<<END``; of one literal part if ``END`` was quoted."""

    parts: tuple[Part, ...]
    start: int
    end: int
    delimiter: str


@dataclass(slots=True)
class Redirection:
    """Where a command reads or writes; ``body`` of a here-document once it was met."""

    operator: str
    word: RawWord
    body: HereText | None = None


@dataclass(frozen=True, slots=True)
class Simple:
    """Assignments and words; ``declares`` is the builtin, such as ``export``, that takes them."""

    assignments: tuple[Assignment, ...]
    words: tuple[RawWord, ...]
    redirections: tuple[Redirection, ...]
    start: int
    end: int
    declares: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """Commands joined by ``&&`` and ``||``, which stand before each but the first."""

    items: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Alone:
    """Commands whose variables are their own: a subshell, parts of a pipe, in the background."""

    body: tuple[Node, ...]
    in_background: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """``{ ... }``."""

    body: tuple[Node, ...]
    redirections: tuple[Redirection, ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """``! command``."""

    node: Node


@dataclass(frozen=True, slots=True)
class Computed:
    """``(( ... ))``."""

    parts: tuple[Part, ...]
    start: int


@dataclass(frozen=True, slots=True)
class If:
    """Conditions with what is done if they hold; the last may have none."""

    clauses: tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]
    otherwise: tuple[Node, ...] | None


@dataclass(frozen=True, slots=True)
class Loop:
    """``for`` with its variable and words, ``while`` and ``until`` with a condition."""

    variable: str
    words: tuple[RawWord, ...]
    condition: tuple[Node, ...]
    body: tuple[Node, ...]
    start: int
    assigned: tuple[tuple[str, int], ...]
    is_until: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """``case word in pattern) ... ;; esac``."""

    word: RawWord
    clauses: tuple[tuple[tuple[RawWord, ...], tuple[Node, ...]], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """``name() { ... }``."""

    name: str
    body: Node


Node = Simple | Chain | Alone | Group | Not | Computed | If | Loop | Case | Function


@dataclass(slots=True)
class Source:
    """The text that is read, with what messages need."""

    text: str
    name: str
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        position = -1
        self.starts.append(0)
        while (position := self.text.find("\n", position + 1)) >= 0:
            self.starts.append(position + 1)

    def line(self, position: int) -> int:
        """The line of a character; the first is 1."""
        return bisect_right(self.starts, position)

    def at(self, position: int) -> str:
        """``file:line`` of a character."""
        return f"{self.name}:{self.line(position)}"
