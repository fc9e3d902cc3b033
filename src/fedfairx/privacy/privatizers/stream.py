"""The agent's side: records go into the open leaf; a release freezes it, adds noise, records and returns.

Solanki et al. 2024, Alg. 2 (privatizer). Differs from paper: the tree takes increments and returns the
noisy prefix sum; the regulariser never enters; records are clipped; the noise is keyed and the message
recorded before it is sent.

The ledger knows where things stand. What is held here beside it, the position and the noise stream, is put
away before each step and taken up again after it, so that whatever interrupts a step (a full disk, a noise
source that fails, Ctrl-C), the next call reads the ledger and finishes what was begun.
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
from fedfairx.errors import BudgetExhausted, PrivacyError, ReplacementRefused, StateError, require
from fedfairx.privacy.bounds import Bounding, Bounds, PublicPoint
from fedfairx.privacy.guarantee import DecideFrom, Guarantee, claim, require_decide_from
from fedfairx.privacy.ledger.ledger import Ledger, MemoryLedger, Position
from fedfairx.privacy.ledger.rollback import Confirm, message_digest
from fedfairx.privacy.mechanisms.gaussian import Gaussian, NoiseStream
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.privatizers.protocol import Privatizer
from fedfairx.privacy.release import Release, leaf_digest
from fedfairx.util.arrays import Array
from fedfairx.util.no_copy import NoCopy

__all__ = ["Privatizer", "StreamPrivatizer"]

# Releases are rounded to a grid of 2⁻²⁰ of the noise: far below what noise hides, far above the last bits
# of a float.
_GRID_BITS = 20


class StreamPrivatizer(NoCopy):
    """Privatizes with a mechanism, bounds, keyed noise and a ledger.

    `public_schedule=False` says that when a release is made depends on data; the guarantee is then none.
    `public_point` is what records are centred at before they come here. `confirm` asks the peers, once,
    whether the ledger is the latest. `checkpoint` is called with "frozen" and "recorded" when these are done.

    Guarantees:
    - A record enters exactly one leaf, after clipping; a record id given twice is refused.
    - `amend` changes the sums as if the record had had the other reward, up to rounding; once its leaf is
      frozen it is refused.
    - Release k is total_k + noise_k with the noise of `mechanism` for the entry scale of `bounds`, on a
      fixed grid.
    - The mechanism's sensitivity is the bounds' own; anything smaller is refused.
    - Release τ+1 is refused with `BudgetExhausted`, and the leaf stays open.
    - A release number has one content; asking again gives the recorded bytes. Whatever interrupted a release,
      the next call makes that one, with the same noise.
    - `state` and `from_state`, or a durable ledger, go on where it stood; later leaves have fresh noise.
    - It can't be copied, and it refuses to go on in a forked process. Threads may share it.
    - No error shows a context, a reward or a record id.
    """

    def __init__(
        self,
        dimension: int,
        *,
        mechanism: Gaussian,
        bounds: Bounding | None = None,
        noise: NoiseSource,
        decide_from: DecideFrom = "own+released",
        ledger: Ledger | None = None,
        public_schedule: bool = True,
        public_point: PublicPoint | None = None,
        confirm: Confirm | None = None,
        checkpoint: Callable[[str], None] | None = None,
        stream_state: Mapping[str, Any] | None = None,
    ) -> None:
        require(dimension >= 1, "dimension", "must be >= 1", dimension)
        require_decide_from(decide_from)
        self.dimension = dimension
        self.mechanism = replace(mechanism, public_point=public_point)
        self.bounds: Bounding = Bounds() if bounds is None else bounds
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
        self.public_point = public_point
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._checkpoint = checkpoint or (lambda _step: None)
        self._grid = math.frexp(mechanism.base_sd)[1] - _GRID_BITS
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._held: Position | None = None  # None: to be read from the ledger
        self._stream: NoiseStream | None = None  # None: to be drawn again from the ledger's places
        self.ledger.bind(self.parameters())
        if stream_state is not None:
            self._stream = self._new_stream(stream_state)
        self._finish()
        if confirm is not None:
            confirm(self.spent, message_digest(self.ledger.message(self.spent)))

    def parameters(self) -> dict[str, Any]:
        """What a run is tied to; a ledger or a state with others is refused."""
        return {
            "schema": 2,
            "dimension": self.dimension,
            "mechanism": self.mechanism.digest(),
            "bounds": self.bounds.to_dict(),
            "epsilon": float(self.mechanism.epsilon),
            "delta": float(self.mechanism.delta),
            "decide_from": self.decide_from,
            "public_schedule": self.public_schedule,
            "noise": self.noise.fingerprint,
            "public_point": None if self.public_point is None else self.public_point.to_dict(),
        }

    @property
    def owner(self) -> str | None:
        """The agent that its noise is for."""
        return self.noise.owner

    @property
    def spent(self) -> int:
        """Releases made."""
        return self.ledger.spent()

    @property
    def clipped(self) -> int:
        """Records that had to be moved inside the bounds: for the owner only, never sent."""
        return self._position.clipped

    @property
    def waiting(self) -> int:
        """Records in the open leaf."""
        return self._position.leaf_count

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for this agent's messages, as configured."""
        reasons = []
        if not self.bounds.is_private:
            reasons.append("records are not bounded")
        if not self.public_schedule:
            reasons.append("when it releases depends on data")
        return claim(
            self.mechanism,
            bounds=self.bounds,
            spent=self.spent,
            decide_from=self.decide_from,
            simulated=not self.noise.is_private,
            reasons=tuple(reasons),
        )

    def add(
        self, context: Array, reward: float, record: str | int | None = None, *, moved: bool = False
    ) -> None:
        """Take one record into the open leaf; `moved` says that it was clipped on its way here."""
        shape = np.shape(context)
        require(shape == (self.dimension,), "context shape", f"must be ({self.dimension},)", shape)
        x, y, clipped = self.bounds.clip(context, reward)
        with self._one_at_a_time():
            here = self._position
            leaf = here.leaf.copy()
            add_one(leaf, np.ascontiguousarray(x, dtype=np.float64), float(y))
            after = replace(
                here, leaf=leaf, leaf_count=here.leaf_count + 1, clipped=here.clipped + (moved or clipped)
            )
            self._held = None
            self.ledger.add(None if record is None else str(record), after)
            self._held = after

    def amend(
        self,
        context: Array,
        old: float,
        new: float,
        record: str | int,
        *,
        person: str | None = None,  # noqa: ARG002
        turn: tuple[int, int] = (1, 1),  # noqa: ARG002
        moved: tuple[bool, bool] = (False, False),
    ) -> None:
        """Put the reward `new` into the place of `old`, in a record of the open leaf.

        `moved` says of each whether it was clipped on its way here.
        """
        x, before, was = self.bounds.clip(context, old)
        _, after, now = self.bounds.clip(context, new)
        with self._one_at_a_time():
            here = self._position
            if self.ledger.leaf_of(record) != here.frozen + 1:
                raise ReplacementRefused("this record is not in the open leaf, and what was released stays")
            leaf = here.leaf.copy()
            leaf[-self.dimension :] += x * (after - before)
            clipped = here.clipped + (moved[1] or now) - (moved[0] or was)
            self._held = None
            amended = replace(here, leaf=leaf, clipped=clipped)
            self.ledger.add(None, amended)
            self._held = amended

    def release(self, number: int | None = None) -> Release:
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
            size = packed_size(self.dimension)
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
        if self.public_point is not None:
            noisy = self.public_point.leave(noisy, here.total_count)
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

        return self.mechanism.stream(draw, entry_scale=self.bounds.entry_scale(self.dimension), state=state)

    def _recorded(self, number: int) -> Release:
        message = self.ledger.message(number)
        if message is None:
            raise PrivacyError(f"release {number} was made, but its bytes are not kept in this ledger")
        return Release.from_bytes(message)

    def state(self) -> dict[str, Any]:
        """All it needs to go on, as plain values. As secret as the data: it holds exact sums and noise."""
        if not isinstance(self.ledger, MemoryLedger):
            raise StateError(
                "the state of a privatizer with a durable ledger is there; open it again instead"
            )
        with self._one_at_a_time():
            self._finish()
            here = self._position
            return {
                "schema": 2,
                "frozen": here.frozen,
                "total": here.total.tolist(),
                "total_count": here.total_count,
                "leaf": here.leaf.tolist(),
                "leaf_count": here.leaf_count,
                "clipped": here.clipped,
                "stream": None if self._stream is None else self._stream.state(),
                "ledger": self.ledger.state(),
            }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], *, dimension: int, **configuration: Any
    ) -> StreamPrivatizer:
        """The privatizer that `state` described; the configuration must be the one that it was made with."""
        if state.get("schema") != 2:
            raise StateError(f"schema must be 2, got schema={state.get('schema')!r}")
        ledger = MemoryLedger.from_state(state["ledger"])
        total, leaf = (np.array(state[name], dtype=np.float64) for name in ("total", "leaf"))
        counts = {name: int(state[name]) for name in ("frozen", "total_count", "leaf_count", "clipped")}
        ledger.restore(Position(total=total, leaf=leaf, **counts))
        return cls(dimension, ledger=ledger, stream_state=state["stream"], **configuration)
