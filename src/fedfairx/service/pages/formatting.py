"""Numbers and times as pages show them."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence

from markupsafe import Markup

from fedfairx.service.exposure_cache import YEAR
from fedfairx.service.schemas import FeatureExplained
from fedfairx.service.share_sentence import MOST_TIMES, written
from fedfairx.util.formatting import duration, visible

_THOUSANDS = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SEPARATOR = re.compile(r"(?<=[-_/.:@])(?=.)")


def percent(share: float, digits: int = 1) -> str:
    """12.3 %, with a space that does not break; less than a percent has one digit more."""
    return "–" if math.isnan(share) else f"{_hundred(share, digits)}\u00a0%"


def between(low: float, high: float) -> str:
    """1.2 – 12.3 %; a single share if both ends are the same."""
    ends = _hundred(low, 1), _hundred(high, 1)
    return percent(high) if ends[0] == ends[1] else f"{ends[0]} – {ends[1]}\u00a0%"


def _hundred(share: float, digits: int) -> str:
    more = 0.00005 <= share < 0.00995
    return f"{100 * share:.{digits + more}f}"


def points(share: float) -> str:
    """A difference of shares: +1.2, in points of a hundred."""
    rounded = round(100 * share, 1) if math.isfinite(share) else math.nan
    return "–" if math.isnan(rounded) else f"{rounded:+.1f}".replace("-", "\u2212") if rounded else "0.0"


def count(number: int) -> str:
    """12 345, with spaces that do not break."""
    return f"{number:,}".replace(",", "\u202f")


def number(value: float | None, beside: float = 0.0) -> str:
    """0.123, with at most three decimals; a small one beside a larger one is 0.000, without a sign."""
    if value is None or math.isnan(value):
        return "–"
    size = max(abs(value), beside)
    text = f"{value:.1e}" if size >= 1e6 or 0 < size < 1e-3 else f"{value:z.{3 if size < 10 else 1}f}"
    return text.replace("-", "\u2212")


def change(part: float | None) -> str:
    """+33 %, by which part of itself something was changed; from three times on ×3.1."""
    if part is None or math.isnan(part):
        return "–"
    if part >= MOST_TIMES:
        return f">\u00a0×{count(MOST_TIMES)}"
    if abs(part) < 0.0005:
        return "0\u00a0%"
    if part >= 2.0:
        return f"×{1.0 + part:.3g}"
    return f"{100 * part:+.{1 if abs(part) < 0.0995 else 0}f}\u00a0%".replace("-", "\u2212")


def others(each: FeatureExplained) -> str:
    """The mean of the other actions, or how many of them have the same level."""
    if each.others is None:
        return "–"
    return written(each.others, 3) if isinstance(each.value, float) else f"{percent(each.others, 0)} the same"


def together(names: Sequence[str]) -> str:
    """Names in a sentence: rating, price and distance."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def unbroken(text: object) -> str:
    """A text whose numbers do not go on in another line."""
    return _THOUSANDS.sub("\u202f", str(text))


def breaking(text: str) -> Markup:
    """A name that may go on in another line after a separator, such as a hyphen."""
    return Markup("<wbr>").join(_SEPARATOR.split(visible(text)))


def factor(log: float | None) -> str:
    """×1.35, by what a share is multiplied; ×10⁻⁴ where that is far from 1."""
    if log is None or math.isnan(log):
        return "–"
    if abs(log) < math.log(MOST_TIMES):
        return f"×{math.exp(log):.{2 if log > -3 else 4}f}"
    return f"×10{f'{log / math.log(10.0):.0f}'.translate(_RAISED)}"


def moment(seconds: float | None) -> str:
    """2026-03-01 14:05 UTC."""
    if seconds is None:
        return "–"
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M")


def precise(seconds: float) -> str:
    """A time with seconds, for lists of decisions."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(seconds: float) -> str:
    """A time in ISO 8601."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


def forecast(more: int, what: str, wait: float | None) -> str:
    """About 2 300 more decisions, 3 days; `wait` in seconds."""
    if wait is not None and wait > YEAR:
        return "not within a year at this rate"
    return f"about {count(more)} more {what}" + ("" if wait is None else f", {duration(wait)}")


def sentence(text: str) -> str:
    """An error's text, as a sentence."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def milliseconds(seconds: float) -> str:
    """1.25 ms, or 3.1 s."""
    return f"{1000 * seconds:.3g}\u00a0ms" if seconds < 0.9995 else f"{seconds:.3g}\u00a0s"


def size(number: int) -> str:
    """12.3 MB, in powers of a thousand."""
    value, units = float(number), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while value >= 999.5 and unit != "TB":
        value, unit = value / 1000, next(units)
    return f"{value:.3g}\u00a0{unit}"
