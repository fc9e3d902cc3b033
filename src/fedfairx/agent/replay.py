"""An agent as it was before a step of its log: the log is replayed into another one, in memory."""

from __future__ import annotations

from collections.abc import Iterator

from fedfairx.agent.agent import Agent
from fedfairx.agent.persistence import AgentStore
from fedfairx.errors import FedFairXError
from fedfairx.privacy import NonPrivateSums
from fedfairx.storage.journal import Entry

MOST_STEPS = 50_000  # that are replayed


class Replay:
    """Replays the log of a durable agent from its last snapshot before number `first` on."""

    def __init__(self, agent: Agent, first: int) -> None:
        self._left = MOST_STEPS
        self._time = 0
        self._again: Agent | None = None
        self._ahead: Entry | None = None
        self._entries: Iterator[Entry] = iter(())
        try:
            self._begin(agent, first)
        except _IMPOSSIBLE:
            self._again = None

    def _begin(self, agent: Agent, first: int) -> None:
        store = agent._log
        if not isinstance(store, AgentStore) or agent.private:  # whose ledger can't be copied
            return
        settings, ask = store.settings, store.log.database.read
        sums = NonPrivateSums(settings.columns, store.bounds)
        again = Agent(**settings.arms(), options=agent.options, privatizer=sums, name=settings.name)
        if again._model.aging is not None:
            again._model.aging.clock = lambda: self._time
        at = store.restore_into(again._core, before=first, ask=ask)
        if at is not None:
            self._again, self._amended = again, store.journal.amendments()
            self._entries = store.journal.entries(at, ask=ask)
            self._ahead = next(self._entries, None)

    def before(self, number: int) -> Agent | None:
        """The agent as it was before this step, one of those after the last one that was asked for.

        None if too many steps lead there, or if they can't be repeated: what was sent, deleted or replaced
        since is no longer what it was. The next call changes the agent.
        """
        try:
            while self._again is not None and self._ahead is not None and self._ahead.number < number:
                self._take(self._again, self._ahead)
        except _IMPOSSIBLE:
            self._again = None
        return self._again

    def _take(self, again: Agent, entry: Entry) -> None:
        self._left -= 1
        if self._left < 0:
            self._again = None
            return
        self._time = entry.time
        if self._amended.is_undone(entry.number):
            again._core.apply_undone(entry.step)
        else:
            again._core.apply(entry.step)
        self._ahead = next(self._entries, None)


_IMPOSSIBLE = (FedFairXError, LookupError, ValueError)
