"""One agent behind the endpoints: it puts tasks into the write queue, and reads the journal."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import msgspec

from fedfairx.agent.agent import Agent
from fedfairx.agent.persistence import CHUNK
from fedfairx.core.slates import as_weights
from fedfairx.errors import AlreadyObserved, InvalidInput, KeyTaken, UnknownDecision
from fedfairx.features import Encoded
from fedfairx.service import decisions, schemas
from fedfairx.service.counters import DecisionCounters
from fedfairx.service.decisions import AmongAll, DecisionInput, PlainDecisions
from fedfairx.service.exposure_cache import ExposureCache
from fedfairx.service.fast_path import decode
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.federation import Membership
from fedfairx.service.logs import AgentLog
from fedfairx.service.metrics import AgentMetrics
from fedfairx.service.problems import ProblemError
from fedfairx.service.settings import OF_RUNNING, Settings
from fedfairx.service.write_queue import Task, WriteQueue
from fedfairx.storage.erasure import Deletion, Rollback
from fedfairx.storage.journal import Journal
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.transaction_log import Log

Found = TypeVar("Found")
WIDE = 64  # features above which a decision or a reward may take longer than a commit: σ takes O(d³)
LONG = 65_536  # bytes of a body, above which reading it takes longer than a commit
PAUSES = 4  # times as long as it takes to drop some contexts


class Wish(msgspec.Struct, frozen=True):
    """A request's idempotency key, and the digest of its body."""

    key: str
    digest: str

    def key_of(self, place: int) -> str:
        """The key of one decision of a batch; keys of callers have no space in them."""
        return self.key if place == 0 else f"{self.key} {place}"


class ServedAgent:
    """One agent with its features, caches, counters and membership."""

    def __init__(
        self,
        settings: Settings,
        agent: Agent,
        features: FeatureTable,
        membership: Membership | None,
        *,
        write_queue: WriteQueue,
        metrics: AgentMetrics,
    ) -> None:
        self.settings = settings
        self.agent = agent
        self.write_queue = write_queue
        self.metrics = metrics
        self._features = features
        self.membership = membership
        self.exposures = ExposureCache(agent, settings)
        self.counters = DecisionCounters()
        self.featureless = not agent.dimension  # whether actions have names alone
        self.slots = as_weights(agent.options.slots)  # the weights of those that a decision has by default
        self.half_life = cast("float | str | None", agent.options.half_life)
        self.fixed_slots = agent.private or membership is not None
        self.archived = False
        self.closed = False
        self.users = 0  # requests and tasks that use it now
        self.used = time.monotonic()  # when one last did
        self._logger, self._logged = AgentLog(agent.name), set[str]()  # warnings that were logged
        self._last = None if membership is None else membership.release_if_due

    @property
    def journal(self) -> Journal:
        return self.agent.journal

    @property
    def features(self) -> FeatureTable:
        """What a request says of actions, by the schema that the agent has now."""
        if self._features.schema is not self.agent.schema:
            self._features = FeatureTable.of(self.agent)
        return self._features

    async def read(self, question: Callable[[Journal], Found]) -> Found:
        """Query the journal, which sees only what is committed, in a thread."""
        return await asyncio.to_thread(question, self.journal)

    async def write(self, task: Task[Found], *, short: bool = False) -> Found:
        """Run a task in the service's write queue, and return its outcome once it is on disk."""
        self.users += 1
        try:
            return await self.write_queue.do(self.agent, task, last=self._last, short=short)
        finally:
            self.users -= 1

    async def ready(self) -> bool:
        """Whether the storage takes a write."""
        return await self.write_queue.ready()

    def check_batch(self, count: int) -> None:
        """Refuse a batch that is too large."""
        most = self.settings.max_batch
        if count > most:
            raise ProblemError("too-large", f"A batch must be at most {most} (max_batch), got {count}.")

    def check_work(self, count: int) -> None:
        """Refuse a batch of decisions or rewards that is too large, or would keep other agents waiting.

        Actions without features are exempt: they take as long as they are many, and not as their square.
        """
        self.check_batch(count)
        most, d = self.settings.max_batch_work, self.agent.columns
        if count > 1 and count * d**2 > most and not self.featureless:
            rule = f"The size of a batch × d² must be at most {most} (max_batch_work)"
            raise ProblemError("too-large", f"{rule}, got {count} × {d}² = {count * d**2}.")

    # --- deciding ------------------------------------------------------------------------------------

    async def decide(
        self, body: bytes, wish: Wish | None, *, batch: bool = False
    ) -> list[schemas.DecisionMade]:
        """Make a decision for each request of a body, all or none.

        A key that was used returns its decisions again.
        """
        if self.archived and (
            wish is None or await self.read(lambda journal: journal.by_key(wish.key)) is None
        ):
            self._refuse_archived()
        together = wish is None
        if len(body) > LONG:
            inputs = await asyncio.to_thread(self._parse, body, batch=batch, together=together)
        else:
            inputs = self._parse(body, batch=batch, together=together)
        short = not batch and self.agent.columns <= WIDE
        if not isinstance(inputs, PlainDecisions):
            return await self._decide(inputs, wish, batch=batch, short=short)
        answers = await self.write(inputs, short=short)
        self._count((), answers)
        return answers

    def _parse(
        self, body: bytes, *, batch: bool, together: bool
    ) -> PlainDecisions | list[DecisionInput | AmongAll]:
        """Read the decisions that a body asks for; those with contexts only as one task, if `together`."""
        settings, table, slots = self.settings, None if self.featureless else self.features, self.slots
        if batch:
            requests = decode(body, schemas.DecisionBatch).decisions
            self.check_work(len(requests))
        else:
            requests = [decode(body, schemas.DecisionRequest)]
        contexts = decisions.plain_contexts(requests, table, settings, slots)
        if contexts is not None:
            return PlainDecisions(contexts) if together else [decisions.unnamed(each) for each in contexts]
        fixed = self.fixed_slots
        return decisions.of_each(
            requests,
            lambda one: decisions.parse_request(one, table, settings, slots, fixed=fixed),
            batch=batch,
        )

    async def _decide(
        self, inputs: Sequence[DecisionInput | AmongAll], wish: Wish | None, *, batch: bool, short: bool
    ) -> list[schemas.DecisionMade]:
        """Make these decisions, or return those that were made under their key."""
        keys = [None] * len(inputs) if wish is None else [wish.key_of(place) for place in range(len(inputs))]
        digest, settings = None if wish is None else wish.digest, self.settings
        try:
            answers = await self.write(
                lambda agent: decisions.decide(agent, inputs, keys, digest, settings, batch=batch),
                short=short,
            )
        except KeyTaken:
            assert wish is not None
            return await self.read(lambda journal: _again(journal, inputs, wish))
        except InvalidInput:
            if wish is None or await self.read(lambda journal: journal.by_key(wish.key)) is None:
                raise
            return await self.read(lambda journal: _again(journal, inputs, wish))  # with a retired action
        self._count([one.encoded for one in inputs if isinstance(one, DecisionInput)], answers)
        return answers

    def _count(self, features: Iterable[Encoded | None], answers: Iterable[schemas.DecisionMade]) -> None:
        for encoded in features:
            if encoded is not None and (encoded.clipped or encoded.unknown):
                self.agent.count_values(encoded)
                self.metrics.clipped += sum(encoded.clipped.values())
                self.metrics.unknown += sum(encoded.unknown.values())
        for answer in answers:
            self.metrics.decisions[answer.mode] += 1

    # --- declared actions --------------------------------------------------------------------

    async def add_action(self, name: str) -> None:
        """Offer this action from now on."""
        await self._change_actions(lambda agent: decisions.add_action(agent, name, self.settings.max_actions))

    async def retire_action(self, name: str) -> None:
        """No longer offer this action."""
        if not await self._change_actions(lambda agent: decisions.retire_action(agent, name)):
            raise ProblemError("unknown-action", "This service has no action of that name.")

    def _refuse_archived(self) -> None:
        if self.archived:
            raise ProblemError("archived", "This agent is archived: it can be read, and takes late rewards.")

    async def _change_actions(self, task: Task[Found]) -> Found:
        self._refuse_archived()
        if not self.agent.all_actions:
            raise ProblemError("features", "The actions of this service come with each request.")
        try:
            return await self.write(task)
        except InvalidInput as error:
            raise ProblemError("conflict", f"{error}.") from None

    # --- rewards and withdrawals --------------------------------------------------------------------

    async def reward(self, rewards: Sequence[schemas.RewardOf]) -> None:
        """Take all rewards, or none. A reward that is sent again unchanged counts as taken."""
        inputs = {one.decision_id: decisions.rewards_in(one) for one in rewards}
        persons = {one.decision_id: one.person for one in rewards}

        def observe(left: Sequence[str]) -> Task[None]:
            wanted = {identity: inputs[identity] for identity in left}
            return lambda agent: decisions.observe(agent, wanted, persons)

        def lack(decision: StoredDecision) -> int:
            rest = decisions.lacking(inputs[decision.id], decision)
            if rest is None:
                return 0
            inputs[decision.id] = rest
            return len(_outcomes(rest))

        left = await self._end([one.decision_id for one in rewards], observe, lack)
        outcomes = (reward for identity in left for reward in _outcomes(inputs[identity]))
        self.metrics.rewards += sum(reward is not None for reward in outcomes)

    async def replace(self, rewards: Sequence[schemas.RewardOf]) -> None:
        """Take all rewards, or none, and replace earlier ones."""
        _refuse_twice([one.decision_id for one in rewards])
        inputs = {one.decision_id: decisions.rewards_in(one) for one in rewards}
        persons = {one.decision_id: one.person for one in rewards}
        self.metrics.rewards += await self.write(lambda agent: decisions.replace(agent, inputs, persons))

    async def withdraw(self, identities: Sequence[str]) -> None:
        """Withdraw all of these decisions, or none; one that is withdrawn already is left as it is.

        Of several slots, those that wait are withdrawn.
        """

        def lack(decision: StoredDecision) -> int:
            if decision.status == "pending":
                return 1
            if "withdrawn" not in (decision.status, *(slot.status for slot in decision.slots)):
                raise ProblemError("conflict", f"The decision is {decision.status} already.")
            return 0

        left = await self._end(identities, lambda left: lambda agent: agent.forget_many(left), lack)
        self.metrics.withdrawn += len(left)

    async def _end(
        self,
        identities: Sequence[str],
        task: Callable[[Sequence[str]], Task[None]],
        lack: Callable[[StoredDecision], int],
    ) -> Sequence[str]:
        """End decisions or slots of theirs, all or none; return the decisions that this was new to.

        task: ends some of them.
        lack: how many outcomes a decision still lacks; it refuses one that has ended otherwise.
        """
        _refuse_twice(identities)
        left, before = identities, math.inf
        while left:
            try:
                await self.write(task(left), short=len(left) == 1 and self.agent.columns <= WIDE)
                break
            except (AlreadyObserved, UnknownDecision):
                lacks = {decision.id: lack(decision) for decision in await self.stored(left)}
            left = [identity for identity in left if lacks[identity]]
            if sum(lacks.values()) >= before:
                raise ProblemError("conflict", "Another request has just ended the decision.")
            before = sum(lacks.values())
        return left

    async def stored(self, identities: Sequence[str]) -> list[StoredDecision]:
        """Read decisions by their ids; refuse an unknown one, and one whose content is gone."""
        rows = await self.read(lambda journal: [journal.decision(identity) for identity in identities])
        if None in rows:
            raise ProblemError("unknown-decision", "This service made no such decision.")
        if any(row.gone for row in rows if row is not None):
            raise ProblemError("gone", "The content of the decision was dropped or deleted.")
        return [row for row in rows if row is not None]

    # --- what leaves the log -------------------------------------------------------------------------

    async def delete_person(self, person: str, identities: Sequence[str]) -> Deletion:
        """Delete the records of a person, and these decisions of theirs."""
        deleted = await self.write(lambda agent: agent.delete_person(person, decisions=identities))
        self._start_over()
        return deleted

    async def roll_back(self, to: float) -> Rollback:
        """Return to what the agent knew at a time."""
        undone = await self.write(lambda agent: agent.roll_back(to=to))
        self._start_over()
        return undone

    def _start_over(self) -> None:
        """Forget what was counted and computed from rows that mean something else now."""
        self.counters = DecisionCounters()
        self.exposures.start_over()

    async def drop_contexts(self, before: float) -> None:
        """Drop contexts from before a time, in small transactions with pauses, so that decisions go on."""
        some = 1
        while some:
            began = time.monotonic()
            some = await asyncio.to_thread(
                self.agent.drop_contexts, before=before, rule=self.settings.keep, limit=CHUNK
            )
            await asyncio.sleep(PAUSES * (time.monotonic() - began))

    # --- running -------------------------------------------------------------------------------------

    async def run_with(self, settings: Settings, store: Callable[[Log], None]) -> None:
        """Take `OF_RUNNING` from these settings, which `store` stores."""
        before = self.agent.window, self.agent.default_reward

        def task(agent: Agent) -> None:
            agent.set_window(settings.window, settings.default_reward)
            store(agent.journal.log)

        try:
            await self.write(task)
        except BaseException:
            self.agent.set_window(*before)
            raise
        self.settings = replace(self.settings, **{name: getattr(settings, name) for name in OF_RUNNING})
        self.exposures = ExposureCache(self.agent, self.settings)

    async def expire(self) -> None:
        """Expire decisions whose window is past."""
        if self.settings.window is not None and not self.closed:
            now = time.time()
            await self.write(lambda agent: agent.expire(now))

    def log_warnings(self) -> None:
        """Log the agent's new warnings, each with its name."""
        for text in self.agent.warnings:
            if text not in self._logged:
                self._logged.add(text)
                self._logger.warning("%s", text)

    def leave_federation(self) -> None:
        """End the membership, if there is one."""
        membership, self.membership, self._last = self.membership, None, None
        if membership is not None:
            membership.end()

    def close(self) -> None:
        """End the membership, and close the agent."""
        self.closed = True
        self.leave_federation()
        self.agent.close()


def _outcomes(reward: decisions.RewardInput) -> Collection[float | None]:
    """The outcomes that have come; None for an action that is withdrawn."""
    return reward.values() if isinstance(reward, dict) else [reward]


def _refuse_twice(identities: Sequence[str]) -> None:
    if len(set(identities)) != len(identities):
        raise ProblemError("invalid", "A decision occurs twice in the batch.")


def _again(
    journal: Journal, inputs: Sequence[DecisionInput | AmongAll], wish: Wish
) -> list[schemas.DecisionMade]:
    """The decisions made under a key, if they were for the same request."""
    answers = []
    for place, one in enumerate(inputs):
        decision = journal.by_key(wish.key_of(place))
        if decision is None or decision.digest != wish.digest:
            raise ProblemError("key-reused", "Another request was made under this Idempotency-Key.")
        answers.append(decisions.answer_of_stored(one, decision))
    return answers
