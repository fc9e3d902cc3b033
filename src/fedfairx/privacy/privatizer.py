"""The agent's side: records go into the open leaf; a release freezes it, adds noise, records and returns.

Solanki et al. 2024, Alg. 2 (privatizer). Differs from paper: the tree takes increments and returns the
noisy prefix sum; the regulariser never enters; records are clipped; the noise is keyed and the message
recorded before it is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from fedfairx.core.statistics import Array, packed_size
from fedfairx.errors import BudgetExhausted, PrivacyError, StateError, require
from fedfairx.privacy.bounding import Bounding, Bounds
from fedfairx.privacy.guarantee import DecideFrom, Guarantee, claim, require_decide_from
from fedfairx.privacy.ledger import Ledger, MemoryLedger, Position
from fedfairx.privacy.mechanisms import Gaussian, Mechanism
from fedfairx.privacy.noise import NoiseSource
from fedfairx.privacy.release import Release, leaf_digest

__all__ = ["Privatizer", "StreamPrivatizer"]

# Releases are rounded to a grid of 2⁻²⁰ of the noise: far below what noise hides, far above the last bits
# of a float.
_GRID_BITS = 20


class Privatizer(Protocol):
    """Takes an agent's records and gives what may leave it."""

    @property
    def dimension(self) -> int: ...

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def guarantee(self) -> Guarantee: ...

    def add(self, context: Array, reward: float, record: str | int | None = None) -> None:
        """Take one record into the open leaf."""
        ...

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and give the cumulative statistics; a past `number` is given again."""
        ...

    def state(self) -> dict[str, Any]: ...


class StreamPrivatizer:
    """Privatizes with a mechanism, bounds, keyed noise and a ledger.

    `clipped` counts the records that had to be moved inside the bounds: for the owner only, never sent.
    `public_schedule=False` says that when a release is made depends on data; the guarantee is then none.
    `public_point` describes what records are centred at before they come here, for the ledger to hold on to.
    `checkpoint` is called with "frozen" and "recorded" as those steps become durable.

    Guarantees:
    - A record enters exactly one leaf, after clipping; a record id given twice is refused.
    - Release k is total_k + noise_k with the noise of `mechanism` for the entry scale of `bounds`, on a
      fixed grid.
    - The mechanism's sensitivity is the bounds' own; anything smaller is refused.
    - Release τ+1 is refused with `BudgetExhausted`, and the leaf stays open.
    - A release number has one content; asking again gives the recorded bytes.
    - `state` and `from_state`, or a durable ledger, go on with the same bits.
    - No error shows a context, a reward or a record id.
    """

    def __init__(
        self,
        dimension: int,
        *,
        mechanism: Gaussian,
        bounds: Bounding | None = None,
        noise: NoiseSource,
        decide_from: DecideFrom = "released",
        ledger: Ledger | None = None,
        public_schedule: bool = True,
        public_point: Mapping[str, Any] | None = None,
        checkpoint: Callable[[str], None] | None = None,
        stream_state: Mapping[str, Any] | None = None,
    ) -> None:
        require(dimension >= 1, "dimension", "must be >= 1", dimension)
        require_decide_from(decide_from)
        self.dimension = dimension
        self.mechanism = mechanism
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
        self.public_point = None if public_point is None else dict(public_point)
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._digest = mechanism.digest()
        self._checkpoint = checkpoint or (lambda _step: None)
        self._rows, self._cols = np.triu_indices(dimension)
        self._grid = math.frexp(mechanism.base_sd)[1] - _GRID_BITS
        self.ledger.bind(self.parameters())
        size = packed_size(dimension)
        self._position = self.ledger.position() or Position(0, np.zeros(size), 0, np.zeros(size), 0, 0)
        self._stream = mechanism.stream(
            noise, entry_scale=self.bounds.entry_scale(dimension), state=stream_state
        )
        self._pending: Release | None = None
        self._catch_up()

    def _catch_up(self) -> None:
        """Bring the noise to the ledger's position, and make again what was frozen but not recorded."""
        frozen, spent = self._position.frozen, self.ledger.spent()
        if not spent <= frozen <= spent + 1 or self._stream.number > spent:
            raise PrivacyError("the ledger's position and its releases contradict each other")
        self._stream.advance(spent - self._stream.number)
        if frozen == spent + 1:
            self._make_pending()
            self._finish()

    def parameters(self) -> dict[str, Any]:
        """What a run is tied to; a ledger or a state with others is refused."""
        return {
            "schema": 1,
            "dimension": self.dimension,
            "mechanism": self._digest,
            "bounds": self.bounds.to_dict(),
            "epsilon": float(self.mechanism.epsilon),
            "delta": float(self.mechanism.delta),
            "decide_from": self.decide_from,
            "public_schedule": self.public_schedule,
            "noise": self.noise.fingerprint,
            "public_point": self.public_point,
        }

    @property
    def spent(self) -> int:
        """Releases made."""
        return self.ledger.spent()

    @property
    def clipped(self) -> int:
        """Records that had to be clipped: for the owner only."""
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

    def add(self, context: Array, reward: float, record: str | int | None = None) -> None:
        shape = np.shape(context)
        require(shape == (self.dimension,), "context shape", f"must be ({self.dimension},)", shape)
        x, y, moved = self.bounds.clip(context, reward)
        here = self._position
        leaf = here.leaf.copy()
        leaf[: self._rows.size] += x[self._rows] * x[self._cols]
        leaf[self._rows.size :] += x * y
        # The ledger refuses a record that comes twice, so it goes first and nothing has changed if it does.
        after = Position(
            here.frozen, here.total, here.total_count, leaf, here.leaf_count + 1, here.clipped + moved
        )
        self.ledger.add(None if record is None else str(record), after)
        self._position = after

    def release(self, number: int | None = None) -> Release:
        if self._pending is not None:
            self._finish()
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
        zero = np.zeros_like(here.leaf)
        after = Position(
            following, here.total + here.leaf, here.total_count + here.leaf_count, zero, 0, here.clipped
        )
        self.ledger.freeze(following, leaf_digest(here.leaf), after)
        self._position = after
        self._checkpoint("frozen")
        self._make_pending()
        return self._finish()

    def _make_pending(self) -> None:
        """The release of the leaf frozen last."""
        here = self._position
        noisy = here.total + self._stream.next()
        noisy = np.ldexp(np.rint(np.ldexp(noisy, -self._grid)), self._grid)
        self._pending = Release(here.frozen, noisy, here.total_count, self._digest)

    def _finish(self) -> Release:
        pending = self._pending
        assert pending is not None
        self.ledger.record(pending.number, pending.to_bytes())
        self._pending = None
        self._checkpoint("recorded")
        return pending

    def _recorded(self, number: int) -> Release:
        message = self.ledger.message(number)
        if message is None:
            raise PrivacyError(f"release {number} was made, but its bytes are not kept in this ledger")
        return Release.from_bytes(message)

    def state(self) -> dict[str, Any]:
        """All it needs to go on, as plain values. As secret as the data: it holds exact sums and noise."""
        if not isinstance(self.ledger, MemoryLedger):
            raise StateError(
                "a privatizer with a durable ledger keeps its state there; open it again instead"
            )
        if self._pending is not None:
            self._finish()
        here = self._position
        return {
            "schema": 1,
            "frozen": here.frozen,
            "total": here.total.tolist(),
            "total_count": here.total_count,
            "leaf": here.leaf.tolist(),
            "leaf_count": here.leaf_count,
            "clipped": here.clipped,
            "stream": self._stream.state(),
            "ledger": self.ledger.state(),
        }

    @classmethod
    def from_state(
        cls,
        state: Mapping[str, Any],
        *,
        dimension: int,
        mechanism: Gaussian,
        bounds: Bounding | None = None,
        noise: NoiseSource,
        decide_from: DecideFrom = "released",
        public_schedule: bool = True,
        public_point: Mapping[str, Any] | None = None,
    ) -> StreamPrivatizer:
        """The privatizer that `state` described; the configuration must be the one that it was made with."""
        if state.get("schema") != 1:
            raise StateError(f"schema must be 1, got schema={state.get('schema')!r}")
        ledger = MemoryLedger.from_state(state["ledger"])
        total, leaf = (np.array(state[name], dtype=np.float64) for name in ("total", "leaf"))
        ledger.restore(
            Position(
                int(state["frozen"]),
                total,
                int(state["total_count"]),
                leaf,
                int(state["leaf_count"]),
                int(state["clipped"]),
            )
        )
        return cls(
            dimension,
            mechanism=mechanism,
            bounds=bounds,
            noise=noise,
            decide_from=decide_from,
            ledger=ledger,
            public_schedule=public_schedule,
            public_point=public_point,
            stream_state=state["stream"],
        )
