"""The private stream: records go into the open leaf; a release freezes it, adds noise, records and returns.

Solanki et al. 2024, Alg. 2 (privatizer). Differs from paper: the tree takes increments and returns the
noisy prefix sum; the regulariser never enters; records are clipped; the noise is keyed and the message
recorded before it is sent.

The ledger holds the durable position. The copy of it here, and the noise stream, are dropped before each step
and set again after it, so whatever interrupts a step (a full disk, a noise source that fails, Ctrl-C), the
next call reads the ledger and finishes what was begun.

A bound of k records of a person turns the claim for a record into one for a person: k records lie in at most
k leaves and change each by at most Δ, so the transcript is kμ-GDP for changing all of them. A record beyond
the k-th is blanked: it adds nothing and still counts, because the number of records is public and must not
tell whose they are. A record is counted before it enters, so a crash in between costs the person a record and
never adds one too many.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fedfairx.core.statistics import add_one, packed_size
from fedfairx.errors import (
    AlreadyObserved,
    BudgetExhausted,
    InvalidInput,
    LedgerMismatch,
    PrivacyError,
    ReplacementRefused,
    StateError,
    require,
)
from fedfairx.privacy.bounds import Bounding, Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.guarantee import DecideFrom, Guarantee, claim, require_decide_from
from fedfairx.privacy.ledger.ledger import Ledger, MemoryLedger, Position
from fedfairx.privacy.ledger.persons import MemoryPersons, Persons
from fedfairx.privacy.ledger.rollback import Confirm, message_digest
from fedfairx.privacy.mechanisms.gaussian import Gaussian, NoiseStream
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.release import Release, leaf_digest
from fedfairx.util.arrays import Array
from fedfairx.util.no_copy import NoCopy

# Releases are rounded to a grid of 2⁻²⁰ of the noise: far below what noise hides, far above the last bits
# of a float.
_GRID_BITS = 20


class StreamPrivatizer(NoCopy):
    """Privatizes with a mechanism, bounds, keyed noise and a ledger.

    bounds: clip each record before it is summed; with `centring`, they are its `inner_bounds`.
    centring: public point that records are clipped around; the statistics of the records themselves are
        released, which follow from those of the centred ones.
    public_schedule: False if the data decide when a release is made; nothing is guaranteed then.
    person_records: number of records of one person that enter; `persons` counts them, and is needed where
        the ledger is durable. `dropped` is the number of records beyond, for the owner only.
    confirm: asks the peers, once, whether the ledger is the latest.
    checkpoint: called with "frozen" and "recorded" when these steps are done.

    Guarantees:
    - A record enters exactly one leaf, after clipping; a record id given twice is refused.
    - `amend` changes the sums as if the record had had the other reward, up to rounding; once its leaf is
      frozen it is refused.
    - Release k is total_k + noise_k with the noise of `mechanism` for the entry scale of `bounds`, on a
      fixed grid. With `centring` it is a function of that, the public point and the number of records.
    - The mechanism's sensitivity is the bounds' own; anything smaller is refused.
    - Release τ+1 is refused with `BudgetExhausted`, and the leaf stays open.
    - A release number has one content; asking again gives the recorded bytes. Whatever interrupted a release,
      the next call makes that one, with the same noise.
    - `state` and `from_state`, or a durable ledger, go on where it stood; later leaves have fresh noise. The
      ledger remembers the public point: going on with another one is refused.
    - Of one person at most `person_records` records enter, over all leaves, crashes and restarts. A record
      beyond is taken, counts and adds nothing; `amend` leaves it so. A record without a person is refused;
      so are another limit and counts that miss records of the ledger.
    - It can't be copied, and it refuses to go on in a forked process. Threads may share it.
    - No error and no `repr` shows a context, a reward, a record id or a person.
    """

    def __init__(
        self,
        dimension: int,
        *,
        mechanism: Gaussian,
        bounds: Bounding | None = None,
        centring: Centring | None = None,
        noise: NoiseSource,
        decide_from: DecideFrom = "own+released",
        ledger: Ledger | None = None,
        public_schedule: bool = True,
        person_records: int | None = None,
        persons: Persons | None = None,
        confirm: Confirm | None = None,
        checkpoint: Callable[[str], None] | None = None,
        stream_state: Mapping[str, Any] | None = None,
    ) -> None:
        require(dimension >= 1, "dimension", "must be >= 1", dimension)
        require_decide_from(decide_from)
        self.dimension = dimension
        self.mechanism = replace(mechanism, public_point=centring)
        self.bounds: Bounding = Bounds() if bounds is None else bounds
        self.centring = centring
        if centring is not None:
            same = centring.dimension == dimension
            require(same, "centring", f"must have dimension {dimension}", centring.dimension)
            needed = centring.inner_bounds().context_norm
            norm = self.bounds.context_norm if isinstance(self.bounds, Bounds) else math.inf
            text = f"must have the centring's context_norm, {needed:.6g}"
            require(norm >= needed * (1 - 1e-12), "bounds", text, norm)
        require(
            mechanism.sensitivity >= self.bounds.sensitivity * (1 - 1e-12),
            "sensitivity",
            "must be at least that of the bounds",
            mechanism.sensitivity,
            "calibrate the mechanism with bounds.sensitivity",
        )
        self.noise = noise
        self.decide_from: DecideFrom = decide_from
        self.public_schedule = public_schedule
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._summed = dimension if centring is None else dimension + 1  # coordinates of what is summed
        self._checkpoint = checkpoint or (lambda _step: None)
        self._grid = math.frexp(mechanism.base_sd)[1] - _GRID_BITS
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._held: Position | None = None  # None: to be read from the ledger
        self._stream: NoiseStream | None = None  # None: to be drawn again from the ledger's places
        self.ledger.bind(self.parameters())
        self.person_records = person_records
        self.persons: Persons = MemoryPersons() if persons is None else persons
        self.dropped = 0
        if person_records is not None:
            self._bind_persons(person_records, given=persons is not None)
        if stream_state is not None:
            self._stream = self._new_stream(stream_state)
        self._finish()
        if confirm is not None:
            confirm(self.spent, message_digest(self.ledger.message(self.spent)))

    def _bind_persons(self, records: int, *, given: bool) -> None:
        require(records >= 1, "person_records", "must be >= 1", records)
        durable = not isinstance(self.ledger, MemoryLedger)
        text = "must be given with a durable ledger, such as SqlitePersons"
        require(given or not durable, "persons", text, None)
        self.persons.bind(records)
        here = self._position
        if self.persons.total() < here.total_count + here.leaf_count:
            raise LedgerMismatch(
                "the ledger holds records whose persons were not counted; start a new run with a new ledger"
            )

    def parameters(self) -> dict[str, Any]:
        """What a run is tied to; a ledger or a state with others is refused."""
        return {
            "schema": 2,
            "dimension": self._summed,
            "mechanism": self.mechanism.digest(),
            "bounds": self.bounds.to_dict(),
            "epsilon": float(self.mechanism.epsilon),
            "delta": float(self.mechanism.delta),
            "decide_from": self.decide_from,
            "public_schedule": self.public_schedule,
            "noise": self.noise.fingerprint,
            "public_point": None if self.centring is None else self.centring.to_dict(),
        }

    @property
    def stream(self) -> StreamPrivatizer:
        return self

    @property
    def owner(self) -> str | None:
        """Name of the agent that the noise was made for."""
        return self.noise.owner

    @property
    def spent(self) -> int:
        """Number of releases made."""
        return self.ledger.spent()

    @property
    def clipped(self) -> int:
        """Number of records that were clipped. For the owner only; it is never sent."""
        return self._position.clipped

    @property
    def waiting(self) -> int:
        """Number of records in the open leaf."""
        return self._position.leaf_count

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for this agent's messages, as configured."""
        return claim(
            self.mechanism,
            bounds=self.bounds,
            spent=self.spent,
            decide_from=self.decide_from,
            simulated=not self.noise.is_private,
            public_schedule=self.public_schedule,
            person_records=self.person_records,
        )

    def add(
        self, context: Array, reward: float, record: str | int | None = None, person: str | int | None = None
    ) -> None:
        """Take one record into the open leaf; blank if its person has brought `person_records` before."""
        shape = np.shape(context)
        require(shape == (self.dimension,), "context shape", f"must be ({self.dimension},)", shape)
        if self.person_records is None:
            refuse_person(person)
            self._enter(context, reward, record)
            return
        if person is None:
            raise InvalidInput(
                f"person must be given: at most {self.person_records} records of a person enter"
            )
        known = str(person)
        within = self.persons.count(known, 1) <= self.person_records
        if not within:
            context, reward = self._blank
        try:
            self._enter(context, reward, record)
        except (AlreadyObserved, InvalidInput):  # nothing has entered
            self.persons.count(known, -1)
            raise
        self.dropped += not within

    @property
    def _blank(self) -> tuple[Array, float]:
        """The record that says nothing."""
        return (np.zeros(self.dimension), 0.0) if self.centring is None else self.centring.blank

    def _enter(self, context: Array, reward: float, record: str | int | None) -> None:
        x, y, clipped = self._clip(context, reward)
        with self._one_at_a_time():
            here = self._position
            leaf = here.leaf.copy()
            add_one(leaf, np.ascontiguousarray(x, dtype=np.float64), float(y))
            after = replace(here, leaf=leaf, leaf_count=here.leaf_count + 1, clipped=here.clipped + clipped)
            self._held = None
            self.ledger.add(None if record is None else str(record), after)
            self._held = after

    def _clip(self, context: Array, reward: float) -> tuple[Array, float, bool]:
        """The record as it is summed, and whether it was clipped."""
        if self.centring is None:
            return self.bounds.clip(context, reward)
        x, y, moved = self.centring.enter(context, reward)
        x, y, clipped = self.bounds.clip(x, y)
        return x, y, moved or clipped

    def amend(
        self,
        context: Array,
        old: float,
        new: float,
        record: str | int,
        *,
        person: str | None = None,
        turn: tuple[int, int] = (1, 1),
    ) -> None:
        """Replace the reward `old` by `new` in a record of the open leaf. A blank record stays blank.

        person, turn: whose record it is, and which of how many in this run, where persons are bounded.
        """
        if self.person_records is not None and not self._has_entered(person, *turn):
            return
        x, before, was = self._clip(context, old)
        _, after, now = self._clip(context, new)
        with self._one_at_a_time():
            here = self._position
            if self.ledger.leaf_of(record) != here.frozen + 1:
                raise ReplacementRefused("this record is not in the open leaf, and what was released stays")
            leaf = here.leaf.copy()
            leaf[-self._summed :] += x * (after - before)
            self._held = None
            amended = replace(here, leaf=leaf, clipped=here.clipped + now - was)
            self.ledger.add(None, amended)
            self._held = amended

    def _has_entered(self, person: str | None, place: int, of: int) -> bool:
        """Whether the record that is number `place` of the `of` records of a person is not blank."""
        most = self.person_records or 0
        held = 0 if person is None else self.persons.of(person)
        if held > most and held != of:
            raise ReplacementRefused(
                f"this record's person has brought more than {most}, some of them without a decision "
                "(`learn`), and which of them have entered is not kept"
            )
        return held <= most or place <= most

    def acknowledge(self) -> None:
        """Note in the ledger that the latest release, and with it all before, has reached its transport."""
        for number in self.ledger.unsent():
            self.ledger.mark_sent(number)

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and return the cumulative statistics, or an earlier release by its number."""
        with self._one_at_a_time():
            begun = self._finish()
            if begun is not None and number in (None, begun.number):
                return begun
            if number is not None and 1 <= number <= self.spent:
                return self._recorded(number)
            here = self._position
            following = here.frozen + 1
            require(number in (None, following), "number", f"must be in 1..{following}", number)
            if following > self.mechanism.releases:
                raise BudgetExhausted(
                    f"all {self.mechanism.releases} releases of this budget have been made; "
                    "start a new run with a new budget, whose cost adds to this one's"
                )
            after = replace(
                here,
                frozen=following,
                total=here.total + here.leaf,
                total_count=here.total_count + here.leaf_count,
                leaf=np.zeros_like(here.leaf),
                leaf_count=0,
            )
            self._held = None
            self.ledger.freeze(following, leaf_digest(here.leaf), after)
            self._held = after
            self._checkpoint("frozen")
            return self._make()

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self.noise.is_private and os.getpid() != self._process:
            raise PrivacyError(
                "this privatizer was made in the process that this one was forked from; only one may go on"
            )
        with self._lock:
            yield

    @property
    def _position(self) -> Position:
        here = self._held or self.ledger.position()
        if here is None:
            size = packed_size(self._summed)
            here = Position(0, np.zeros(size), 0, np.zeros(size), 0, 0)
        self._held = here
        return here

    def _finish(self) -> Release | None:
        """Make what was frozen and, for whatever reason, not recorded."""
        frozen, spent = self._position.frozen, self.spent
        if not spent <= frozen <= spent + 1:
            raise PrivacyError("the ledger's position and its releases contradict each other")
        return self._make() if frozen == spent + 1 else None

    def _make(self) -> Release:
        """Make and record the release of the leaf frozen last: the same one, however often it is tried."""
        here = self._position
        noisy = here.total + self._noise_of(here.frozen)
        noisy = np.ldexp(np.rint(np.ldexp(noisy, -self._grid)), self._grid)
        if self.centring is not None:
            noisy = self.centring.leave(noisy, here.total_count)
        release = Release(here.frozen, noisy, here.total_count, self.mechanism.digest())
        self.ledger.record(release.number, release.to_bytes())
        self._checkpoint("recorded")
        return release

    def _noise_of(self, number: int) -> Array:
        """The noise of release `number`, which is the one after the last."""
        stream, self._stream = self._stream, None
        if stream is None or stream.number != number - 1:
            stream = self._new_stream()
            stream.advance(number - 1)
        noise = stream.next()
        self._stream = stream
        return noise

    def _new_stream(self, state: Mapping[str, Any] | None = None) -> NoiseStream:
        def draw(number: int, count: int) -> Array:
            return self.noise(number, count, self.ledger.place(number))

        return self.mechanism.stream(draw, entry_scale=self.bounds.entry_scale(self._summed), state=state)

    def _recorded(self, number: int) -> Release:
        message = self.ledger.message(number)
        if message is None:
            raise PrivacyError(f"release {number} was made, but its bytes are not kept in this ledger")
        return Release.from_bytes(message)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as plain values; as secret as the data: exact sums, noise, persons."""
        if not isinstance(self.ledger, MemoryLedger) or not isinstance(self.persons, MemoryPersons):
            raise StateError(
                "the state of a privatizer with a durable ledger or durable counts of persons is there; open "
                "it again instead"
            )
        records, counts = self.person_records, dict(self.persons.counts)
        with self._one_at_a_time():
            self._finish()
            here = self._position
            return {
                "schema": 3,
                "frozen": here.frozen,
                "total": here.total.tolist(),
                "total_count": here.total_count,
                "leaf": here.leaf.tolist(),
                "leaf_count": here.leaf_count,
                "clipped": here.clipped,
                "stream": None if self._stream is None else self._stream.state(),
                "ledger": self.ledger.state(),
                "persons": {"records": records, "dropped": self.dropped, "counts": counts},
            }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], *, dimension: int, **configuration: Any
    ) -> StreamPrivatizer:
        """Restore a privatizer from its `state`; the configuration must be the one that it was made with."""
        if state.get("schema") != 3:
            raise StateError(f"schema must be 3, got schema={state.get('schema')!r}")
        ledger = MemoryLedger.from_state(state["ledger"])
        total, leaf = (np.array(state[name], dtype=np.float64) for name in ("total", "leaf"))
        counts = {name: int(state[name]) for name in ("frozen", "total_count", "leaf_count", "clipped")}
        ledger.restore(Position(total=total, leaf=leaf, **counts))
        persons = state["persons"]
        configuration = {"person_records": persons["records"]} | configuration
        counted = MemoryPersons(persons["counts"], records=persons["records"])
        made = cls(dimension, ledger=ledger, persons=counted, stream_state=state["stream"], **configuration)
        made.dropped = int(persons["dropped"])
        return made


def refuse_person(person: str | int | None) -> None:
    """Refuse a person's id where nobody counts persons: it would be a false comfort."""
    if person is not None:
        raise InvalidInput("person must be left out: this agent's privatizer bounds no person's records")
