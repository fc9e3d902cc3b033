"""One sentence on why an action has its share, as one would read it to whom it is about."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fedfairx.agent.knowledge import Knowledge
from fedfairx.service.schemas import FeatureExplained

LEAST = 0.02  # a part that changes a share by less is not mentioned
NAMED = 3  # features in a sentence
UNKNOWN = 2  # features of which little is known
MOST_TIMES = 1_000  # a larger change is only said to be larger
ABOUT = 0.1  # a share this near to the average is about average
EXPECTED = "expected reward"  # what actions without features differ in
OWN_RECORD = "own record"  # what actions differ in beside their features
_WORDS = {10: "a tenth", 20: "a fifth", 25: "a quarter", 33: "a third", 50: "a half"}
_SPACE = "\u00a0"  # does not break


def share_sentence(
    share: float,
    average: float,
    features: Sequence[FeatureExplained],
    *,
    whole: float,
    arms: int,
    unit: str,
    uncertainty: float | None,
    of: str = "this decision",
    its: str = "its",
    little: Knowledge | None = None,
) -> str:
    """The sentence.

    share, average: the expected weight of the action, and of the average one, of a `whole`.
    uncertainty: by what part of itself the share is changed by what is not known yet, where that is not
        split by feature.
    of: what it is a share of.
    its: whose features they are.
    little: what it rested on, if that is so little that no feature should be named as the reason.
    """
    begin, whom = f"{_capital(percent(share / whole))} of {of}: ", "you" if its == "your" else "it"
    if arms == 1:
        return f"{begin}there was no other action."
    begin += f"{_against(share / average)}."
    says = _reward_change if unit == "reward" else _share_change
    largest = max((abs(each.contribution) for each in features), default=0.0)
    least = 0.05 * largest if unit == "reward" else math.log1p(LEAST)
    most = _leading(features, lambda each: _size(each, unit), least)[:NAMED]
    parts = ", ".join(f"{_described(each, its)} {says(each)}" for each in most)
    unsure = _leading(features, lambda each: _logarithm(each.uncertainty_change), math.log1p(LEAST))[:UNKNOWN]
    unknown = [
        (whom if each.feature == EXPECTED else f"{its} {_value(each)}", each.uncertainty_change or 0.0)
        for each in unsure
    ]
    if uncertainty is not None and abs(uncertainty) >= LEAST:
        unknown = [(whom, uncertainty)]
    if features and not largest:
        parts = "nothing learnt so far tells the actions apart"
    elif little is not None:
        rewards = f"{written(float(little.rewards))} reward{'' if little.rewards == 1 else 's'}"
        parts = f"after {rewards} this follows luck as much as merit"
    text = "; ".join(filter(None, [parts, *_unknown(unknown)]))
    if not features:
        text = f"{whom} {'do' if its == 'your' else 'does'} not differ from the others"
    text = text or f"none of {its} features changed it by {round(100 * LEAST)}{_SPACE}%"
    return f"{begin} {_capital(text)}."


def percent(share: float) -> str:
    """12 %; less than ten have one digit more."""
    if 0.0 < share < 0.0005:
        return f"less than 0.1{_SPACE}%"
    return f"{100 * share:.{1 if 0 < abs(share) < 0.0995 else 0}f}{_SPACE}%"


def changed(change: float, what: str = "it") -> str:
    """In words, such as: raised it by a third."""
    if change >= 0.95:
        if change >= MOST_TIMES:
            return f"made {what} more than {written(float(MOST_TIMES), 3)} times as large"
        times = f"{1 + change:.2g}" if change < 9 else f"{1 + change:.0f}"
        return f"doubled {what}" if times == "2" else f"made {what} {times} times as large"
    if change <= -0.995:
        return f"lowered {what} by more than {percent(0.99)}"
    size = round(100 * abs(change))
    part = _WORDS.get(size, f"{size}{_SPACE}%")
    return f"{'raised' if change > 0 else 'lowered'} {what} by {part}"


def written(value: float | str | bool | None, digits: int = 4) -> str:
    """A value of a feature, a number with at most these digits."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or value is None:
        return value or "–"
    long = abs(value) >= 10**digits
    text = f"{value:,.0f}".replace(",", _SPACE) if long else f"{value:.{digits}g}"
    return text.replace("-", "\u2212")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _against(ratio: float) -> str:
    if abs(ratio - 1.0) <= ABOUT:
        return "about average"
    if ratio >= 1.95:
        times = f"{ratio:.2g}"
        return "twice the average" if times == "2" else f"{times} times the average"
    if ratio < 0.01:
        return f"less than 1{_SPACE}% of the average"
    return f"{percent(abs(ratio - 1.0))} {'above' if ratio > 1.0 else 'below'} the average"


def _leading(
    features: Sequence[FeatureExplained], size: Callable[[FeatureExplained], float], least: float
) -> list[FeatureExplained]:
    """The features of a size from `least` on, the largest first."""
    worth = [each for each in features if size(each) >= least and size(each) > 0.0]
    return sorted(worth, key=size, reverse=True)


def _logarithm(change: float | None) -> float:
    return 0.0 if change is None else abs(math.log(max(1.0 + change, 1e-300)))


def _size(each: FeatureExplained, unit: str) -> float:
    """How much a feature changes: a share, merit, or the expected reward."""
    has_change = unit == "log merit" and each.change is not None
    return _logarithm(each.change) if has_change else abs(each.contribution)


def _value(each: FeatureExplained) -> str:
    """rating of 4.8, vehicle (van) or fragile (no)."""
    if isinstance(each.value, float) and each.feature == OWN_RECORD:
        return record_of(each.value)
    if isinstance(each.value, float) and each.feature == EXPECTED:
        return f"{each.feature}, {written(each.value, 3)}"
    if each.value is None:
        return each.feature
    if isinstance(each.value, float):
        return f"{each.feature} of {written(each.value)}"
    return f"{each.feature} ({written(each.value)})"


def record_of(rewards: float) -> str:
    """Own record of 57 rewards; where they count less by age, their weights."""
    if not rewards:
        return "missing own record"
    many = written(float(f"{rewards:.3g}") if rewards % 1 else rewards)
    return f"{OWN_RECORD} of {many} reward{'' if rewards == 1 else 's'}"


def _described(each: FeatureExplained, its: str) -> str:
    text = f"{its} {_value(each)}"
    if not isinstance(each.value, float) or each.others is None:
        return text
    more = each.value - each.others
    if abs(more) <= 1e-9 * max(abs(each.value), abs(each.others)):
        return text
    return f"{text} ({written(abs(more), 2)} {'more' if more > 0 else 'less'} than the others)"


def _share_change(each: FeatureExplained) -> str:
    if each.change is None:  # slots or a minimum share hide it, and merit is known
        return changed(math.expm1(min(each.contribution, 700.0)), "merit")
    return changed(each.change)


def _reward_change(each: FeatureExplained) -> str:
    how = "raised" if each.contribution > 0 else "lowered"
    return f"{how} the expected reward by {written(abs(each.contribution), 2)}"


def _unknown(parts: Sequence[tuple[str, float]]) -> Iterator[str]:
    """What little or more is known about, each with the change of the share that comes from it."""
    little = [f"about {what}, which {changed(change)}" for what, change in parts if change > 0]
    more = [f"about {what}, which {changed(change)}" for what, change in parts if change < 0]
    if little:
        yield f"little is known yet {', and '.join(little)}"
    if more:
        yield f"compared with the others, the model is surer {', and '.join(more)}"
