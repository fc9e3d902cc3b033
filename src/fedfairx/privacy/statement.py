"""The privacy statement: one page for whoever signs for a configuration."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from fedfairx.privacy.guarantee import Guarantee

_WIDTH = 100
_ALARM = 0.05  # false alarm rate of the adversary that the claim is explained with

_AGAINST = (
    "Against whoever reads every message, knows the code and all settings, holds all data of all other "
    "agents and of this one all records but one, and computes without limit but for breaking AES-256.",
    "Not against whoever reads this agent's key, ledger, saved state, counts of persons, logs or memory.",
)
_NOT_PROTECTED = (
    "Decisions shown to people, and their probabilities: they depend on the contexts at hand, in the clear.",
    "That an agent takes part, how many records it has, and when it sends: these are public.",
    "What is true of everybody: that a reward can be predicted from a context once θ is known.",
    "The owner's own systems: ledger, saved agents, logs, metrics, numbers of clipped and dropped records.",
)
_KEEP = (
    "Secret: the noise key; the ledger, which holds exact sums; saved agents; the file of persons, if there "
    "is one. Count whoever has the key as able to take the noise off every message of the run.",
    "Store: the key in a secret store; ledger and file of persons where only their owner reads. Keep none of "
    "them in a backup that something could be restored from, and never go on from a copy.",
    "Rotate: by a new run, with a new key, a new run name, a new ledger and a budget of its own. Within a "
    "run the key is never changed; another one is refused.",
    "Delete: the key and the ledger when the run is over and its last message has been sent. What was sent "
    "can't be called back. Deleting a record later changes no message; the claim goes on covering it.",
)


def statement(guarantee: Guarantee, *, rounds: int | None = None) -> str:
    """The page, for a privatizer's own `guarantee`; `rounds` is the horizon of its schedule.

    Guarantees:
    - What is not private gets one sentence that says so, and nothing to sign.
    - The first sentence is the guarantee's own.
    """
    if not guarantee.is_private:
        return f"{guarantee} There is nothing to sign."
    parts = {
        "The claim": [str(guarantee), *_in_words(guarantee)],
        "Who is protected, and against whom": [_who(guarantee), *_AGAINST],
        "What is not protected": [*_NOT_PROTECTED, *_gaps(guarantee)],
        "For how long": _how_long(guarantee, rounds),
        "What to keep, rotate and delete": list(_KEEP),
    }
    lines: list[str] = []
    for title, items in parts.items():
        lines += ["", title.upper()]
        for item in items:
            lines += textwrap.wrap(item, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return "\n".join(lines[1:])


def found_at_most(mu: float) -> float:
    """How often an adversary who raises a false alarm in 5 % of cases finds what is there, at most."""
    from scipy.special import ndtr, ndtri

    return float(ndtr(ndtri(_ALARM) + mu))


def _in_words(guarantee: Guarantee) -> Iterator[str]:
    kinds = [("one certain record", guarantee.mu)]
    if guarantee.person_mu is not None:
        kinds.append(("one certain person", guarantee.person_mu))
    for what, mu in kinds:
        yield (
            f"In words: whoever looks for {what} in the messages, and raises a false alarm in {_ALARM:.0%} "
            f"of the cases without it, finds it in at most {found_at_most(mu):.1%} of the cases with it."
        )


def _who(guarantee: Guarantee) -> str:
    if guarantee.person_records is None:
        return (
            "Each single record: the context of the action chosen, and its reward. For a person behind k "
            "records it is k times the μ, and nothing bounds k here."
        )
    return (
        f"Each single record, and each person: at most {guarantee.person_records} records of one "
        f"enter{guarantee.each_run}, by the id that the owner gives. A person with two ids is two persons."
    )


def _gaps(guarantee: Guarantee) -> Iterator[str]:
    if guarantee.decide_from != "released":
        yield (
            "What a record changes in the agent's later decisions, which use its own data without noise "
            f'(decide_from="{guarantee.decide_from}"): the claim compares two logs that differ in one record '
            'and are the same in all others. decide_from="released" is the strict mode that covers this too.'
        )
    if guarantee.adjacency == "add-remove":
        yield "Replacing a record: the claim is for blanking one, and replacing costs up to twice the μ."


def _how_long(guarantee: Guarantee, rounds: int | None) -> list[str]:
    over = "" if rounds is None else f", over {rounds} rounds"
    return [
        f"For {guarantee.releases} messages of each agent{over}; the next one is refused.",
        "What was sent can be studied without end, and the claim does not weaken with time.",
        "A second run over the same records adds to the first, as μ = √(μ₁² + μ₂²). New records have a cost "
        "of their own.",
    ]
