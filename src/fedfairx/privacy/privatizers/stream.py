"""The protocol of a privatizer, and the private stream.

Records enter the open leaf; a release freezes the leaf, adds noise and is recorded before it is returned.

Solanki et al. 2024, Alg. 2 (privatizer). Differs from paper: the tree takes increments and returns the
noisy prefix sum; the regulariser never enters; records are clipped; the noise is keyed and the message
recorded before it is sent.

The ledger holds the durable position. The privatizer drops its copy of it, and the noise stream, before each
change and sets them again afterwards. So whatever interrupts a change (a full disk, a failing noise source,
Ctrl-C), the next call reads the ledger and finishes it. Only a change sets the copy: a reader in another
thread might have read the ledger before a change and set it after one.

A bound of k records of a person turns the claim for a record into one for a person: k records lie in at most
k leaves and change each by at most Δ, so the transcript is kμ-GDP for changing all of them. A record beyond
the k-th is blanked: it adds nothing and still counts, because the number of records is public and must not
tell whose they are. A record is counted before it enters, so a crash in between loses one record of the
person and never admits one too many.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedfairx.core.statistics import add_one, packed_size
from fedfairx.errors import (
    AlreadyObserved,
    BudgetExhausted,
    InvalidInput,
    LedgerMismatch,
    PrivacyError,
    ReplacementRefused,
    require,
)
from fedfairx.privacy.bounds import Bounding, Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.guarantee import DecideFrom, Guarantee, claim, require_decide_from
from fedfairx.privacy.ledger.ledger import Ledger, MemoryLedger, MemoryPersons, Persons, Position
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.mechanisms.gaussian import Gaussian, Mechanism, NoiseStream
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.privacy.release import NoCopy, Release, leaf_digest
from fedfairx.util.arrays import Array

# Releases are rounded to a grid of 2⁻²⁰ of the noise: far finer than the noise, far coarser than the last
# bits of a float.
_GRID_BITS = 20


@runtime_checkable
class Privatizer(Protocol):
    """A privatizer takes an agent's records and makes the releases that leave the agent.

    >>> from fedfairx.privacy import NonPrivateSums
    >>> privatizer: Privatizer = NonPrivateSums(2)
    >>> privatizer.guarantee.is_private
    False
    """

    @property
    def dimension(self) -> int: ...

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the messages. Computing it is slow; `spent` is not."""

    @property
    def owner(self) -> str | None:
        """Name of the agent that the noise was made for; None if any agent may use it."""

    @property
    def spent(self) -> int:
        """Number of releases made."""

    @property
    def clipped(self) -> int:
        """Number of records that were clipped. For the owner only; it is never sent."""

    @property
    def waiting(self) -> int:
        """Number of records that are in no release yet."""

    @property
    def stream(self) -> StreamPrivatizer | None:
        """The private stream that records enter now; None if sums are exact."""

    def add(
        self,
        context: Array,
        reward: float,
        record: str | int | None = None,
        person: str | int | None = None,
        weight: float = 1.0,
    ) -> None:
        """Add one record to the open leaf. A private one accepts any number: a refusal would reveal it.

        person: id of the record's person; required if the records of a person are bounded, refused if not.
        weight: of the slot that the action was shown in; the clipped context is multiplied by it.
        """

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and return the cumulative statistics, or an earlier release by its number."""


class StreamPrivatizer(NoCopy):
    """Private releases from a mechanism, bounds, keyed noise and a ledger.

    bounds: clip each record before it is summed; with `centring`, they are its `inner_bounds`.
    centring: public point that records are clipped around. Releases still hold the statistics of the records
        themselves, which follow from those of the centred ones.
    public_schedule: False if the data decide when a release is made; nothing is guaranteed then.
    person_records: largest number of records of one person that enter; `persons` counts them, and is required
        where the ledger is durable. `dropped` is the number of further records, for the owner only.
    confirm: asks the peers, once, whether the ledger is the latest.
    checkpoint: called with "frozen" and "recorded" after these steps.

    >>> import fedfairx as ffx
    >>> from fedfairx.privacy import KeyedNoise, new_key
    >>> noise = KeyedNoise(new_key(), agent="clinic", run="first")
    >>> privatizer = ffx.Budget(epsilon=2.0, releases=9).privatizer(2, noise=noise)
    >>> privatizer.add([0.5, 0.5], 1.0)
    >>> isinstance(privatizer, StreamPrivatizer), privatizer.waiting, privatizer.release().count
    (True, 1, 1)

    Guarantees:
    - A record enters exactly one leaf, after clipping; a record id given twice is refused.
    - `amend` changes the sums as if the record had come with the new reward, up to rounding; once the leaf of
      the record is frozen, `amend` is refused.
    - `blank` changes the sums as if the record had come blank, up to rounding; once the leaf of the record is
      frozen, nothing changes.
    - Release k is total_k + noise_k with the noise of `mechanism` for the entry scale of `bounds`, on a
      fixed grid. With `centring` it is a function of that, the public point and the number of records.
    - If the mechanism has a `share`, release k is a row: it stays on the grid, and centred, so that rows add
      up exactly; `opened` turns their sum into statistics. Records beyond the share's number enter no leaf.
    - The mechanism's sensitivity is the bounds' own; anything smaller is refused.
    - Release τ+1 is refused with `BudgetExhausted`, and the leaf stays open.
    - A release number has one content; a repeated request returns the recorded bytes. Whatever interrupted a
      release, the next call makes that release, with the same noise.
    - A durable ledger continues where it stopped; later leaves have fresh noise. The ledger stores the public
      point, and continuing with another one is refused.
    - At most `person_records` records of one person enter, over all leaves, crashes and restarts. A further
      record is accepted, counts and adds nothing, also after `amend`. A record without a person is refused;
      so are another limit, and counts that miss records of the ledger.
    - It can't be copied, and it refuses to continue in a forked process. Threads may share it.
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
        enough = mechanism.sensitivity >= self.bounds.sensitivity * (1 - 1e-12)
        text = "must be at least that of the bounds"
        require(enough, "sensitivity", text, mechanism.sensitivity, "calibrate with bounds.sensitivity")
        self.noise = noise
        self.owner = noise.owner
        self.decide_from: DecideFrom = decide_from
        self.public_schedule = public_schedule
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        plain = centring is None or centring.intercept
        self._summed = dimension if plain else dimension + 1  # coordinates that are summed
        self._checkpoint = checkpoint or (lambda _stage: None)
        self._grid = math.frexp(mechanism.base_sd)[1] - _GRID_BITS
        self._most_records = math.inf
        if mechanism.share is not None:
            self._grid, self._most_records = required_grid(mechanism.share)
        self._beyond = 0  # records of the open leaf that are beyond these
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._position_copy: Position | None = None  # None: read it from the ledger; set by changes alone
        self._stream: NoiseStream | None = None  # None: draw it again from the ledger's places
        self.ledger.bind(self.parameters())
        self.person_records = person_records
        self.persons: Persons = MemoryPersons() if persons is None else persons
        self.dropped = 0
        if person_records is not None:
            self._bind_persons(person_records, passed=persons is not None)
        self._finish()
        if confirm is not None:
            confirm(self.spent, self._recorded(self.spent).digest if self.spent else "")

    def _bind_persons(self, records: int, *, passed: bool) -> None:
        require(records >= 1, "person_records", "must be >= 1", records)
        text = "must be given with a durable ledger"
        require(passed or isinstance(self.ledger, MemoryLedger), "persons", text, None)
        self.persons.bind(records)
        here = self._position
        if self.persons.total() < here.total_count + here.leaf_count:
            raise LedgerMismatch(
                "the ledger holds records whose persons were not counted; start a new run with a new ledger"
            )

    def parameters(self) -> dict[str, Any]:
        """Return what the run is bound to; a ledger with other parameters is refused."""
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
    def constant(self) -> float:
        """What contexts end with, of an agent that has an intercept; 0 if it has none."""
        if self.centring is not None:
            return self.centring.constant if self.centring.intercept else 0.0
        return self.bounds.constant if isinstance(self.bounds, Bounds) else 0.0

    @property
    def stream(self) -> StreamPrivatizer:
        return self

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
        """Number of records in the open leaf, or beyond it."""
        return self._position.leaf_count + self._beyond

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of this agent's messages, as configured."""
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
        self,
        context: Array,
        reward: float,
        record: str | int | None = None,
        person: str | int | None = None,
        weight: float = 1.0,
    ) -> None:
        """Add one record to the open leaf, blanked if its person already has `person_records` records."""
        shape = np.shape(context)
        require(shape == (self.dimension,), "context shape", f"must be ({self.dimension},)", shape)
        if isinstance(self.bounds, Bounds) and weight not in self.bounds.slots:
            slots = self.bounds.slots
            raise InvalidInput(f"weight must be that of a slot of the bounds, {slots}, got {weight=}")
        most = self.person_records
        if most is None:
            refuse_person(person)
            self._enter(context, reward, record, weight)
            return
        if person is None:
            raise InvalidInput(f"person must be given: at most {most} records of a person enter")
        name = str(person)
        within = self.persons.count(name, 1) <= most
        if not within:
            context, reward = self.centring.blank if self.centring else (np.zeros(self.dimension), 0.0)
        try:
            self._enter(context, reward, record, weight)
        except (AlreadyObserved, InvalidInput):  # nothing has entered
            self.persons.count(name, -1)
            raise
        self.dropped += not within

    def _enter(self, context: Array, reward: float, record: str | int | None, weight: float) -> None:
        x, y, clipped = self._clip(context, reward)
        if weight != 1.0:
            x = weight * x
        with self._one_at_a_time():
            here = self._position
            if here.total_count + here.leaf_count >= self._most_records:
                self._beyond += 1
                return
            leaf = here.leaf.copy()
            add_one(leaf, np.ascontiguousarray(x, dtype=np.float64), float(y))
            after = replace(here, leaf=leaf, leaf_count=here.leaf_count + 1, clipped=here.clipped + clipped)
            self._position_copy = None
            self.ledger.add(None if record is None else str(record), after)
            self._position_copy = after

    def _clip(self, context: Array, reward: float) -> tuple[Array, float, bool]:
        """Return the record as it is summed, and whether it was clipped."""
        if self.centring is None:
            return self.bounds.clip(context, reward)
        share = self.bounds.gram_share if isinstance(self.bounds, Bounds) else 1.0
        x, y, moved = self.centring.enter(context, reward, share)
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
        weight: float = 1.0,
    ) -> None:
        """Replace the reward `old` by `new` in a record of the open leaf. A blank record stays blank.

        person, turn: id of the record's person, and which of how many records of that person in this run it
            is, where persons are bounded.
        weight: of the slot, as in `add`.
        """
        if self.person_records is not None and not self._has_entered(person, *turn):
            return
        x, before, was = self._clip(context, old)
        _, after, now = self._clip(context, new)
        with self._one_at_a_time():
            here = self._position
            if not self.is_open(record):
                raise ReplacementRefused("this record is not in the open leaf; a release can't be changed")
            leaf = here.leaf.copy()
            leaf[-self._summed :] += weight * x * (after - before)
            self._position_copy = None
            amended = replace(here, leaf=leaf, clipped=here.clipped + now - was)
            self.ledger.add(None, amended)
            self._position_copy = amended

    def blank(
        self,
        context: Array,
        reward: float,
        record: str | int,
        *,
        person: str | None = None,
        turn: tuple[int, int] = (1, 1),
        weight: float = 1.0,
    ) -> bool:
        """Blank a record of the open leaf: it counts, and adds an intercept at most. False if it must stay.

        It must if its leaf is frozen, or if it is not known whether it has entered (see `amend`).
        """
        try:
            entered = self.person_records is None or self._has_entered(person, *turn)
        except ReplacementRefused:
            return False
        with self._one_at_a_time():
            here = self._position
            if not self.is_open(record):
                return False
            if not entered:
                return True
            leaf, clipped, blank = here.leaf.copy(), here.clipped, (np.zeros(self.dimension), 0.0)
            if self.centring is not None:
                blank = self.centring.blank
            for sign, entry in ((-1, (context, reward)), (1, blank)):
                x, y, moved = self._clip(*entry)
                part = np.zeros_like(leaf)
                add_one(part, np.ascontiguousarray(weight * x, dtype=np.float64), float(y))
                leaf += sign * part
                clipped += sign * moved
            self._position_copy = None
            after = replace(here, leaf=leaf, clipped=clipped)
            self.ledger.add(None, after)
            self._position_copy = after
            return True

    def is_open(self, record: str | int) -> bool:
        """Tell whether a record is in the open leaf, and so in no release. For the owner only."""
        return self.ledger.leaf_of(record) == self._position.frozen + 1

    def _has_entered(self, person: str | None, place: int, of: int) -> bool:
        """Tell whether record number `place` of the `of` records of a person is not blank."""
        most = self.person_records or 0
        count = 0 if person is None else self.persons.of(person)
        if count > most and count != of:
            raise ReplacementRefused(
                f"this record's person has more than {most} records, some of them without a decision "
                "(`learn`), and which of them have entered is not kept"
            )
        return count <= most or place <= most

    def acknowledge(self) -> None:
        """Note in the ledger that the latest release, and with it all earlier ones, reached its transport."""
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
            self._position_copy = None
            self.ledger.freeze(following, leaf_digest(here.leaf), after)
            self._position_copy, self._beyond = after, 0
            self._checkpoint("frozen")
            return self._make()

    def opened(self, total: Array, count: int) -> Array:
        """Return the packed statistics of a sum of rows with `count` records, some or all members'."""
        size = packed_size(self._summed)
        require(total.shape == (size,), "total", f"must be {size} numbers", total.shape)
        return total if self.centring is None else self.centring.leave(total, count)

    @property
    def open_leaf(self) -> tuple[Array, int]:
        """Exact sums and number of the records that are in no release yet: secret, for the owner only."""
        here = self._position
        return here.leaf, here.leaf_count

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self.noise.is_private and os.getpid() != self._process:
            raise PrivacyError(
                "this privatizer belongs to the process that this one was forked from; only one may continue"
            )
        with self._lock:
            yield

    @property
    def _position(self) -> Position:
        here = self._position_copy or self.ledger.position()
        if here is None:
            size = packed_size(self._summed)
            here = Position(0, np.zeros(size), 0, np.zeros(size), 0, 0)
        return here

    def _finish(self) -> Release | None:
        """Make the release of a leaf that was frozen and not recorded, if there is one."""
        frozen, spent = self._position.frozen, self.spent
        if not spent <= frozen <= spent + 1:
            raise PrivacyError("the ledger's position and its releases contradict each other")
        return self._make() if frozen == spent + 1 else None

    def _make(self) -> Release:
        """Make and record the release of the last frozen leaf; every attempt makes the same one."""
        here = self._position
        noisy = here.total + self._noise_of(here.frozen)
        noisy = np.ldexp(np.rint(np.ldexp(noisy, -self._grid)), self._grid)
        if self.centring is not None and self.mechanism.share is None:
            noisy = self.centring.leave(noisy, here.total_count)
        release = Release(here.frozen, noisy, here.total_count, self.mechanism.digest())
        self.ledger.record(release.number, release.to_bytes())
        self._checkpoint("recorded")
        return release

    def _noise_of(self, number: int) -> Array:
        """Return the noise of release `number`, the next one."""
        stream, self._stream = self._stream, None
        if stream is None or stream.number != number - 1:
            stream = self._new_stream()
            stream.advance(number - 1)
        noise = stream.next()
        self._stream = stream
        return noise

    def _new_stream(self) -> NoiseStream:
        def draw(number: int, count: int) -> Array:
            return self.noise(number, count, self.ledger.place(number))

        return self.mechanism.stream(draw, entry_scale=self.bounds.entry_scale(self._summed))

    def _recorded(self, number: int) -> Release:
        message = self.ledger.message(number)
        if message is None:
            raise PrivacyError(f"release {number} was made, but its bytes are not kept in this ledger")
        return Release.from_bytes(message)


def required_grid(share: NoiseShare) -> tuple[int, int]:
    """Return the exponent of the grid's step and the number of records of a calibrated share."""
    calibrated = share.step_exponent is not None and share.records is not None
    require(calibrated, "mechanism", "must be calibrated by a Budget, which sets the grid of a share", share)
    return int(share.step_exponent or 0), int(share.records or 0)


def refuse_person(person: str | int | None) -> None:
    """Refuse a person's id where persons are not counted: it would protect nobody."""
    if person is not None:
        raise InvalidInput("person must be left out: this agent's privatizer bounds no person's records")
