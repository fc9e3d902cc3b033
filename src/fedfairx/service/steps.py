"""What is done at the desk: each is one step on the agent, whole or refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from fedfairx.agent.agent import Agent
from fedfairx.errors import require
from fedfairx.service import schemas
from fedfairx.service.asking import AmongAll, Asked, named
from fedfairx.service.modes import Remark, Taking, propensity
from fedfairx.storage.records import DecisionNote, StoredDecision

__all__ = [
    "AddAction",
    "Decide",
    "Replace",
    "RetireAction",
    "Reward",
    "Withdraw",
    "answer_of_stored",
    "probe",
]


class Decide(msgspec.Struct, frozen=True):
    """Decisions for one request; if the first one's key is taken, nothing has happened."""

    asked: Sequence[Asked | AmongAll]
    taking: Taking
    keys: Sequence[str | None]
    digest: str | None

    def __call__(self, agent: Agent) -> list[schemas.DecisionMade]:
        version = agent.model_version
        return [self._one(agent, one, key, version) for one, key in zip(self.asked, self.keys, strict=True)]

    def _one(
        self, agent: Agent, asked: Asked | AmongAll, key: str | None, version: int
    ) -> schemas.DecisionMade:
        taking = self.taking
        if isinstance(asked, AmongAll):
            asked = asked.among(agent.actions, agent.all_actions)
        mode = taking.draw()
        remark = Remark(version, asked.baseline, taking.control_share)
        note = DecisionNote(
            key=key,
            digest=self.digest,
            groups=asked.groups,
            mode=mode,
            baseline=None if mode == "live" else asked.baseline,
            extra=remark.text(),
        )
        if asked.contexts is None:
            made = agent.decide(asked.names, note=note)
        else:
            made = agent.decide(asked.contexts, names=asked.names, note=note)
        return _answer(asked, str(made.id), made.action, made.policy.tolist(), mode, remark)


def answer_of_stored(asked: Asked | AmongAll, stored: StoredDecision) -> schemas.DecisionMade:
    """The answer that was given then, to the same request."""
    if isinstance(asked, AmongAll):
        asked = named(stored.names or [])  # there may be others now
    remark = Remark.read(stored.extra)
    return _answer(asked, stored.id, stored.action, stored.policy.tolist(), stored.mode, remark)


def _answer(
    asked: Asked, identity: str, action: int, shares: list[float], mode: str, remark: Remark
) -> schemas.DecisionMade:
    """In the request's terms: places among all of its actions, the excluded ones too."""
    policy = shares
    if len(asked.rows) < asked.actions:
        policy = [0.0] * asked.actions
        for row, share in zip(asked.rows, shares, strict=True):
            policy[row] = share
    place = asked.rows[action]
    return schemas.DecisionMade(
        decision_id=identity,
        action=place,
        action_id=None if asked.ids is None else asked.ids[place],
        probability=propensity(mode, action, shares[action], remark),
        policy=policy,
        model_version=remark.model_version,
        mode=mode,
        action_ids=asked.ids if asked.contexts is None and asked.ids is not None else UNSET,
    )


class Reward(msgspec.Struct, frozen=True):
    """Rewards of one request: all of them, or none."""

    rewards: Sequence[schemas.RewardOf]

    def __call__(self, agent: Agent) -> None:
        rewards = self.rewards
        if len(rewards) == 1:
            (one,) = rewards
            agent.observe(one.decision_id, reward=one.reward, person=one.person)
            return
        named = any(one.person is not None for one in rewards)
        agent.observe_many(
            [one.decision_id for one in rewards],
            [one.reward for one in rewards],
            [one.person for one in rewards] if named else None,  # type: ignore[misc]
        )


class Replace(msgspec.Struct, frozen=True):
    """Rewards of one request, each in the place of another if there is one: all of them, or none.

    Gives how many decisions had none before.
    """

    rewards: Sequence[schemas.RewardOf]

    def __call__(self, agent: Agent) -> int:
        before = agent.pending
        named = any(one.person is not None for one in self.rewards)
        agent.observe_many(
            [one.decision_id for one in self.rewards],
            [one.reward for one in self.rewards],
            [one.person for one in self.rewards] if named else None,  # type: ignore[misc]
            replace=True,
        )
        return before - agent.pending


class Withdraw(msgspec.Struct, frozen=True):
    """Decisions of one request that were never shown: all of them, or none."""

    identities: Sequence[str]

    def __call__(self, agent: Agent) -> None:
        agent.forget_many(self.identities)


class AddAction(msgspec.Struct, frozen=True):
    """An action without features that is offered from now on; one that is already changes nothing."""

    name: str
    most: int

    def __call__(self, agent: Agent) -> None:
        active = agent.actions
        if self.name not in active:
            fits = len(active) < self.most
            require(fits, "actions", f"must be at most {self.most} (max_actions)", len(active) + 1)
            agent.add_actions(self.name)


class RetireAction(msgspec.Struct, frozen=True):
    """One that is no longer offered; one that was retired before changes nothing.

    False: there is none of that name.
    """

    name: str

    def __call__(self, agent: Agent) -> bool:
        if self.name in agent.actions:
            agent.retire_actions(self.name)
        return self.name in agent.all_actions


def probe(agent: Agent) -> None:
    """A write that needs room and reaches the disk as any other does, and leaves everything as it was."""
    for change in ("+ 1", "- 1"):  # SQLite writes nothing for `version = version`
        agent.journal.log.write(f"UPDATE fedfairx SET version = version {change}")
