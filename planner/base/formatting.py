"""Format numbers for people, and choose the units of the output."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from planner.base.csv_cells import TypedRow
from planner.base.units import DAY as DAY
from planner.base.units import GIB, HOUR

_SCALES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
# From here on fractions say nothing.
_ALL_DIGITS_BELOW = 1000
_WORDS = {True: "yes", False: "no"}


# Control characters except line ends, and characters that reverse the text direction.
_UNPRINTABLE = dict.fromkeys(
    [*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F),
     *range(0x2066, 0x206A)]
)  # fmt: skip


def printable(text: str) -> str:
    """Remove characters from a text that a terminal would interpret.

    >>> printable("H100\x1b[31m")
    'H100[31m'
    """
    return text if text.isprintable() else text.translate(_UNPRINTABLE)


def format_count(number: float) -> str:
    """Format an integer with thousands separators.

    >>> format_count(107520)
    '107,520'
    """
    return f"{number:,.0f}"


def format_large(number: float) -> str:
    """Format a large number with words, such as "1.5 trillion".

    >>> format_large(65285660672)
    '65.29 billion'
    """
    for scale, word in _SCALES:
        if number >= scale:
            return f"{number / scale:.4g} {word}"
    return format_count(number)


def format_duration(seconds: float) -> str:
    """Format seconds in a suitable unit, such as "3.2 h".

    >>> format_duration(22.42), format_duration(2e6)
    ('22.4 s', '23.1 days')
    >>> format_duration(math.inf), format_duration(math.nan)
    ('endless', 'unknown')
    """
    if not math.isfinite(seconds):
        return "endless" if seconds > 0 else "unknown"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    for limit, unit, name in ((600.0, 1.0, "s"), (2 * HOUR, 60.0, "min"), (2 * DAY, HOUR, "h")):
        if seconds < limit:
            return f"{format_significant(seconds / unit)} {name}"
    return f"{format_significant(seconds / DAY)} days"


def format_significant(number: float) -> str:
    """Format a number with three significant digits and thousands separators.

    >>> format_significant(22.4178), format_significant(2048.7)
    ('22.4', '2,049')
    """
    if not math.isfinite(number):
        return "-"
    if abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def format_percent(share: float) -> str:
    """A share in percent with one decimal place."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else "-"


def format_gib(num_bytes: float) -> str:
    """Bytes in GiB."""
    return f"{num_bytes / GIB:,.1f} GiB"


def format_usd(amount: float) -> str:
    """Format USD: no cents from 100 USD on, two significant digits below one cent.

    >>> format_usd(1234.5), format_usd(0.4), format_usd(0.00123)
    ('1,234 USD', '0.40 USD', '0.0012 USD')
    """
    if 0 < amount < 0.01:
        return f"{amount:.2g} USD"
    return f"{amount:,.0f} USD" if amount >= 100 else f"{amount:.2f} USD"


def format_kw(power: float) -> str:
    """Electric power in kW."""
    return f"{format_significant(power / 1e3)} kW"


def format_co2(mass: float) -> str:
    """Format a mass of CO2 equivalent in g, kg or t.

    >>> format_co2(0.0102), format_co2(255978)
    ('10.2 g CO2e', '256 t CO2e')
    """
    scales = ((1.0, 1e-3, "g"), (1e4, 1.0, "kg"), (math.inf, 1e3, "t"))
    scale, unit = next((scale, unit) for limit, scale, unit in scales if mass < limit)
    return f"{format_significant(mass / scale)} {unit} CO2e"


def format_rate(rate: float) -> str:
    """A rate."""
    return f"{format_significant(rate)}/s"


NOUNS = (
    "answers|cells|characters|chunks|columns|configurations|copies|cores|curves|days"
    "|directories|documents|entries|errors|examples|experts|faults|fields|figures|files|GPUs"
    "|groups|hours|layers|lines|measurements|methods|micro-batches|minutes|models|months|nodes"
    "|numbers|offers|operators|options|parameters|passes|periods|plans|pools|processes|prompts"
    "|publishers|questions|replicas|requests|rows|runs|samples|scenarios|sequences|services"
    "|slots|sources|specs|stages|steps|things|tokens|users|values|workers|years"
)
"""What texts count, as alternatives of a pattern."""
_ENDS = {"ies": "y", "sses": "ss", "tches": "tch"}
_SINGULAR = {"are": "is", "have": "has", "were": "was", "do": "does"}
_NO_ADJECTIVES = "of|to|or|and|x|in|at|the|thousand|million|billion|trillion"
_ONE_OF_SEVERAL = re.compile(
    rf"(?<![\w.,/])(?<![<>=] )1 ((?!(?:{_NO_ADJECTIVES}) )[a-z-]+ )?({NOUNS})(?![\w/-])"
    rf"(?: ({'|'.join(_SINGULAR)})(?!\w))?"
)


def _singular(match: re.Match[str]) -> str:
    """Replace a match such as "1 layers are" by its singular, "1 layer is"."""
    adjective, noun, verb = match.groups(default="")
    short = noun.removesuffix("s")
    for plural, singular in _ENDS.items():
        if noun.endswith(plural):
            short = noun.removesuffix(plural) + singular
    return f"1 {adjective}{short}{' ' * bool(verb)}{_SINGULAR.get(verb, '')}"


def fix_plurals(text: str) -> str:
    """Make the nouns after the number 1 singular in a text.

    >>> (fix_plurals("1 runs on 21 GPUs"), fix_plurals("1 options have no effect"),
    ... fix_plurals("1 of 3 runs"))
    ('1 run on 21 GPUs', '1 option has no effect', '1 of 3 runs')
    >>> (fix_plurals("1 trillion tokens"), fix_plurals("1 new tokens"),
    ... fix_plurals("pipeline > 1 the layers"))
    ('1 trillion tokens', '1 new token', 'pipeline > 1 the layers')
    """
    return _ONE_OF_SEVERAL.sub(_singular, text)


def format_counted(number: float, noun: str) -> str:
    """Format a number with its noun, singular or plural.

    >>> format_counted(1, "run"), format_counted(2000, "run"), format_counted(0, "GPU")
    ('1 run', '2,000 runs', '0 GPUs')
    """
    shown = format_count(number)
    return f"{shown} {noun}{'' if shown == '1' else 's'}"


def format_gpus(number: float) -> str:
    """A number of GPUs."""
    return format_counted(number, "GPU")


def format_gpus_of_row(row: TypedRow) -> str:
    """Number and type of a plan's GPUs, ``8 x h100-sxm-80gb + 8 x h20-96gb`` with two types."""
    number, other = row["num_gpus"], row.get("rollout_gpu")
    if other in (None, "", row["gpu"]):
        return f"{format_count(number)} x {row['gpu']}"
    rollout = row["rollout_gpus"]
    trains = f"{format_count(number - rollout)} x {row['gpu']}"
    return f"{trains} + {format_count(rollout)} x {other}"


def join_words(words: Iterable[str]) -> str:
    """Join words to a list in a sentence: ``a, b and c``.

    >>> join_words(["cost", "time", "memory"])
    'cost, time and memory'
    """
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def format_parameter(value: object) -> str:
    """Format the value of a parameter as text.

    >>> format_parameter(0.95), format_parameter(4096.0), format_parameter(True)
    ('0.95', '4,096', 'yes')
    """
    if isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, float) and abs(value) < _ALL_DIGITS_BELOW and not value.is_integer():
        return f"{value:.4g}"
    return format_count(value) if isinstance(value, int | float) else str(value)


def format_probability(share: float) -> str:
    """Format a probability in percent, never as 0 or 100 %.

    >>> format_probability(0.97), format_probability(0.9999)
    ('97 %', '> 99 %')
    """
    if share > 0.99:
        return "> 99 %"
    return "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


EVEN_FIT = 0.5
SURE_FIT = 0.9
"""From which probability on a plan fits; below it, it may fit."""


def format_fit_probability(share: float) -> str:
    """Format the probability that a plan fits in memory.

    >>> format_fit_probability(0.9999), format_fit_probability(0.86), format_fit_probability(0.4)
    ('fits, > 99 % likely', 'may fit, 86 % likely', '40 % likely to fit')
    """
    likely = f"{format_probability(share)} likely"
    if share <= EVEN_FIT:
        return f"{likely} to fit"
    return f"{'fits' if share >= SURE_FIT else 'may fit'}, {likely}"


def format_limit(amount: float, unit: str) -> str:
    """Format an ``amount`` of ``unit`` (byte, second, usd, watt, kg, 1/s, gpus or 1)."""
    if not math.isfinite(amount):
        return "unknown"
    formats = {
        "byte": format_gib,
        "second": format_duration,
        "usd": format_usd,
        "watt": format_kw,
        "kg": format_co2,
        "1": format_percent,
        "1/s": format_rate,
        "count": format_gpus,
    }
    return formats[unit](amount)


def summarize_assumed(names: Sequence[str]) -> str | None:
    """Summarize names of assumed spec numbers; several of one table become a count.

    >>> summarize_assumed(["gpu power", "gpu efficiency.gemm.latency", "gpu efficiency.wave"])
    'gpu power; gpu efficiency (2 numbers)'
    """
    counts = Counter(name.partition(".")[0] for name in names)
    words = [name if n == 1 else f"{name} ({n} numbers)" for name, n in counts.items()]
    return "; ".join(words) or None
