"""The privacy statement: one page for whoever signs for a configuration. `statement.txt` is its text."""

from __future__ import annotations

import textwrap
from importlib.resources import files

from fedfairx.privacy.guarantee import Guarantee

_WIDTH = 100
_ALARM = 0.05  # false alarm rate of the adversary that explains the claim


def statement(guarantee: Guarantee, *, rounds: int | None = None) -> str:
    """Write the page for a privatizer's `guarantee`; `rounds` is the horizon of its schedule.

    Guarantees:
    - What is not private gets one sentence that says so, and nothing to sign.
    - The first sentence is the guarantee's own.
    """
    if not guarantee.is_private:
        return f"{guarantee} There is nothing to sign."
    person_mu, decide_from = guarantee.person_mu, guarantee.decide_from
    fields = {
        "guarantee": guarantee,
        "record": _in_words("record", guarantee.mu),
        "person": "" if person_mu is None else _in_words("person", person_mu),
        "who": _who(guarantee),
        "against": _AGAINST if guarantee.share is None else _against(guarantee),
        "public": _PUBLIC if guarantee.share is None else _PUBLIC_TOTALS,
        "decisions": "" if decide_from == "released" else _DECISIONS.format(decide_from),
        "replacing": "" if guarantee.adjacency == "replace" else _REPLACING,
        "rounds": "" if rounds is None else f", over {rounds} rounds",
    }
    page = files("fedfairx.privacy").joinpath("statement.txt").read_text(encoding="utf-8")
    lines: list[str] = []
    for part in page.split("\n\n"):
        title, *items = part.format(**fields).splitlines()
        lines += ["", title]
        for item in filter(None, items):
            lines += textwrap.wrap(item, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines[1:])


def found_at_most(mu: float) -> float:
    """Bound how often an adversary who raises a false alarm in 5 % of cases detects a record."""
    from scipy.special import ndtr, ndtri

    return float(ndtr(ndtri(_ALARM) + mu))


def _in_words(what: str, mu: float) -> str:
    return (
        f"In words: whoever looks for one given {what} in the messages, and raises a false alarm in "
        f"{_ALARM:.0%} of the cases without it, finds it in at most {found_at_most(mu):.1%} of those with it."
    )


def _who(guarantee: Guarantee) -> str:
    if guarantee.person_records is None:
        return (
            "Each single record: the context of the action chosen, and its reward. For a person behind k "
            "records the cost is k times the μ, and nothing bounds k here."
        )
    return (
        f"Each single record, and each person: at most {guarantee.person_records} records of one "
        f"enter{guarantee.each_run}, by the id that the owner gives. A person with two ids is two persons."
    )


def _against(guarantee: Guarantee) -> str:
    first, *others = (
        f"Against {each.whom}: ε={each.epsilon:.6g}, μ={each.mu:.6g}" for each in guarantee.against
    )
    return "\n".join([f"{first}. {_KNOWING}", *(f"{other}." for other in others)])


_KNOWING = (
    "They read every message, know the code and all settings, hold all data of all other agents and all "
    "records of this one but one, and have any computing power short of breaking AES-256 and the encryption "
    "of rows."
)
_AGAINST = (
    "Against anyone who reads every message, knows the code and all settings, holds all data of all other "
    "agents and all records of this one but one, and has any computing power short of breaking AES-256."
)
_PUBLIC = "That an agent takes part, how many records it has, and when it sends: these are public."
_PUBLIC_TOTALS = (
    "That an agent takes part, how many records all members have, and when it sends: these are public."
)
_DECISIONS = (
    "What a record changes in the agent's later decisions, which use its own data without noise "
    '(decide_from="{}"): the claim compares two logs that differ in one record and are the same in all '
    'others. decide_from="released" is the strict mode that covers this too.'
)
_REPLACING = "Replacing a record: the claim is for blanking one, and replacing costs up to twice the μ."
