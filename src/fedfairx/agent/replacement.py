"""Rewards that were booked wrongly: others take their place, as if they had come in the first place.

The log has every step, so the agent is made from it anew, as after a restart. What is out can't be taken
back: a reward that is in a release stays. A private agent's open leaf is in its ledger and not in the log,
so there the difference of the two clipped records is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from fedfairx.agent.decision import Decision, known
from fedfairx.errors import AlreadyObserved, FedFairXError, InvalidInput, ReplacementRefused, require
from fedfairx.storage import replacement
from fedfairx.storage.replacement import Booked

if TYPE_CHECKING:
    from fedfairx.agent.deciding import Deciding
    from fedfairx.privacy.privatizers.protocol import Amending
    from fedfairx.storage.journal import Journal

Given = tuple[Decision | str, float, str | int | None]  # decision, reward, person


def require_log(agent: Deciding) -> Journal:
    """The journal of an agent that has one."""
    if agent._journal is None:
        raise InvalidInput(
            "replace must be left out: an agent in memory keeps no log to learn anew from; use Agent.open"
        )
    return agent._journal


def take_or_replace(agent: Deciding, given: Sequence[Given]) -> None:
    """Inside a step: take these rewards, all or none, each in the place of another if there is one."""
    journal = require_log(agent)
    journal.log.settle()
    waiting: list[Given] = []
    wrong: list[tuple[Booked, float]] = []
    for decision, reward, person in given:
        found = _booked(agent, journal, decision)
        value = agent._reward(reward)
        if found is None:
            waiting.append((decision, value, person))
            continue
        whose = person is None or str(person) == found.person
        require(whose, "person", "must be the one whose record it is", "another")
        if not _same(found.outcome.reward, value):
            _refuse_released(agent, journal, found)
            wrong.append((found, value))
    for each in waiting:
        agent._take(*each)
    if not wrong:
        return
    for found, value in wrong:
        if agent.private:
            _amend(agent, journal, found, value)
        replacement.replace(journal, found.outcome, value)
    journal.log.settle()
    agent._keeper.restore()


def _booked(agent: Deciding, journal: Journal, decision: Decision | str) -> Booked | None:
    """What is booked for a decision; None if it waits for its reward. Others are refused."""
    found: list[Booked] = []

    def gone(identity: str) -> FedFairXError:
        number = journal.origins.number_in(identity)
        there = None if number is None else replacement.booked(journal, number)
        if there is not None:
            found.append(there)
        return agent._gone(identity)

    try:
        known(decision, agent._pending, gone)
    except AlreadyObserved:
        if not found:
            raise
        return found[0]
    return None


def _same(one: float | None, other: float) -> bool:
    return one == other or (one != one and other != other)


def _refuse_released(agent: Deciding, journal: Journal, found: Booked) -> None:
    event = replacement.sealed_by(journal, found.outcome)
    if event is None:
        return
    identity = journal.id_of(found.outcome.decision)
    federated = agent.bound is not None or any(name != agent.name for name in agent._latest)
    remedy = (
        "found a new run of the federation, in which a new agent learns the right rewards"
        if federated
        else "let a new agent learn the right rewards"
    )
    if event.kind == "run":
        why = f"decision {identity} was rewarded under an earlier budget"
    else:
        why = f"the reward of decision {identity} is in release {event.body.decode()} already"
    raise ReplacementRefused(f"{why} and can't be replaced; to be without it, {remedy}")


def _amend(agent: Deciding, journal: Journal, found: Booked, value: float) -> None:
    """Change the record in the open leaf."""
    identity = journal.id_of(found.outcome.decision)
    more: dict[str, Any] = {}
    if found.person is not None:
        more = {"person": found.person, "turn": replacement.turn_of(journal, found.outcome, found.person)}
    privatizer = cast("Amending", agent.privatizer)
    assert found.outcome.reward is not None
    privatizer.amend(found.made.context, found.outcome.reward, value, identity, **more)
