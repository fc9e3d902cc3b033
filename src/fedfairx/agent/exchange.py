"""The sharing half of an agent: what it sends, what it takes in, and under which budget."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from fedfairx.agent.input_warnings import ClippingWatch
from fedfairx.agent.model import Knowledge
from fedfairx.agent.validation import check_next_run, latest_of
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Budget, ContinuedPrivatizer, NonPrivateSums, Privatizer, Release, carry_over
from fedfairx.storage.journal import Journal


class Keeping(Protocol):
    """What holds a durable agent and its log together (`federation.durable`)."""

    def new_run(self, budget: Budget) -> tuple[Privatizer, int]:
        """Keep one more budget; its privatizer, and its number."""
        ...

    def restore(self) -> None:
        """Make the agent anew from the log."""
        ...

    def verify(self) -> None:
        """`StateError` unless the log, done again from the beginning, ends in the agent's state."""
        ...


class Sharing(Knowledge):
    """An agent as the others see it. `Agent` decides and observes beside it."""

    _journal: Journal | None = None  # where a durable agent keeps each step
    _keeper: Keeping  # a durable agent's
    _watch: ClippingWatch
    bound: str | None = None  # the federation whose terms its budget is; see `Member`

    def _step(self) -> AbstractContextManager[Any]:
        """One step: kept, whole or not at all, where the agent is durable."""
        return nullcontext() if self._journal is None else self._journal.log.step()

    @property
    def released(self) -> int:
        """The number of its own latest release; 0 before the first."""
        own = self._latest.get(self.name)
        return 0 if own is None else own.number

    @property
    def unreleased(self) -> int:
        """Rewards that it has taken since its latest release."""
        return self._local_count

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and give what may leave this agent: its cumulative statistics, privatized.

        What was observed until now is in the release, exactly once; what comes next is in the next one. After
        a release that was interrupted the next call gives that one, which lacks what came since. A past
        `number` is given again, and costs nothing.
        """
        with self._lock, self._step():
            self._mark_local()
            release = self._marked(self.privatizer.release(number))
            if release.number > self.released:
                self._latest[self.name] = release
                self._fold_local(self._held_local())
                if self._journal is not None:
                    self._journal.happened("release", str(release.number).encode())
            return release

    def _marked(self, release: Release) -> Release:
        """A release of this agent's privatizer; of actions without features it says which they are."""
        return release if self._actions is None else replace(release, mechanism=self._digest())

    def _digest(self) -> str:
        """What another's release must have: its mechanism and, of actions without features, their names.

        A coordinate means the same to both only if it is the same action's.
        """
        mechanism = self.privatizer.mechanism.digest()
        if self._actions is None:
            return mechanism
        return hashlib.sha256(json.dumps([mechanism, *self._actions.names]).encode()).hexdigest()

    def begin_run(self, privatizer: Privatizer | Budget) -> None:
        """Go on under a new budget when the old one is spent; all that was learnt and shared stays.

        A durable agent takes a `Budget` and makes the privatizer in its own database.

        Records since the last release go into the first of the new run, if it clips as the old one did. If
        not, or where a person's records are bounded (`PersonBound`), the old run makes a last release of
        them; if it has none left, they get into no message, and a warning says how many.

        Not for a member of a federation with a roster: members who begin new runs at different moments would
        have different mechanisms, and refuse each other.
        """
        if self.bound is not None:
            raise InvalidInput(
                f"the budget of {self.name!r} must stay: it shares under the terms of federation "
                f"{self.bound}, which are of one run; found another federation to share for longer"
            )
        with self._lock, self._step():
            if not self.private:
                raise InvalidInput("privatizer must be left out: this agent is not private and has no budget")
            run, old = 0, self.privatizer
            if isinstance(privatizer, Budget):
                if self._journal is None:
                    raise InvalidInput("privatizer must be a privatizer: a Budget is for a durable agent")
                privatizer, run = self._keeper.new_run(privatizer)
            elif self._journal is not None:
                raise InvalidInput("privatizer must be a Budget: this agent's ledger is in its database")
            check_next_run(privatizer, before=old.guarantee, dimension=self.dimension, name=self.name)
            left = int(getattr(old, "waiting", 0))
            if not carry_over(old, privatizer) and left:
                if old.guarantee.remaining > 0:
                    self.release()
                else:
                    warnings.warn(
                        f"{left} records since the last release get into no message: the old run has no "
                        "release left for them, and the new one clips otherwise or counts persons anew",
                        stacklevel=2,
                    )
            # If nothing was sent yet, there is nothing to go on from.
            sent = old.guarantee.spent > 0
            self._go_on_with(ContinuedPrivatizer(privatizer, before=old) if sent else privatizer)
            if self._journal is not None:
                self._journal.happened("run", str(run).encode())

    def _go_on_with(self, privatizer: Privatizer) -> None:
        self.privatizer = privatizer
        self._plain = privatizer if type(privatizer) is NonPrivateSums else None
        self._pool = self._new_pool()
        self._watch = ClippingWatch(privatizer)

    def absorb(self, releases: Mapping[str, Release]) -> None:
        """Take the latest releases of other agents (by name); what is older than what is held is ignored.

        A release is cumulative: it replaces its sender's earlier one and is never added to it. Under its own
        name an agent takes its own latest release alone. When one is refused, none has been taken.
        """
        with self._lock, self._step():
            latest = latest_of(
                self._latest, releases, own=self.name, dimension=self.dimension, mechanism=self._digest()
            )
            self._share(latest)
            if self._journal is not None:
                told = {name: release.to_bytes().hex() for name, release in releases.items()}
                self._journal.happened("absorb", json.dumps(told).encode())

    def part_from(self, names: Collection[str]) -> None:
        """Drop what is held of these agents, as if they had never sent anything. Its own release stays."""
        with self._lock, self._step():
            gone = sorted(self._latest.keys() & set(names) - {self.name})
            if gone:
                self._part_from(gone)
                if self._journal is not None:
                    self._journal.happened("part", json.dumps(gone).encode())

    def _part_from(self, gone: Collection[str]) -> None:
        rest = {name: release for name, release in self._latest.items() if name not in gone}
        # Others' noise is weighed by what was learnt from all of them: that too is forgotten.
        self._share({name: release for name, release in rest.items() if name == self.name})
        self._share(rest)
