"""Compute the policy for some contexts and draw an action from it, without recording a decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.agent.actions import unit_vectors
from fedfairx.agent.exchange import Sharing
from fedfairx.agent.validation import as_contexts, as_names, not_finite
from fedfairx.core.agent_kernels import (
    decide_among_arms,
    decide_by_posterior,
    decide_one,
    draw_parameter,
    room_for,
)
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import require
from fedfairx.util.arrays import Array, Coordinates

DRAWN_AHEAD = 64  # uniforms at a time
DRAWS = 1  # the stream of a seed that actions are drawn from


class Answering(Sharing):
    """`Agent`: the policy and the draw."""

    def __init__(
        self, dimension: int | None, *, seed: int | np.random.SeedSequence | None, **knowing: Any
    ) -> None:
        super().__init__(dimension, **knowing)
        if isinstance(
            seed, int | np.integer
        ):  # a caller's own default_rng(seed) must not draw the same numbers
            seed = np.random.SeedSequence(int(seed), spawn_key=(DRAWS,))
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._uniforms: list[float] = []  # drawn ahead; the last is the next: a refused call takes none
        self._rooms: dict[int, Array] = {}
        self._fit_dimension()
        self._draw_ahead()

    def policy(self, contexts: ArrayLike | Sequence[str] | None = None) -> Array:
        """(K,) the probability of every arm if `decide` were called now; nothing is drawn or changed.

        By Thompson's rule it is the policy of the parameter that the next decision will draw.
        """
        with self._lock:
            rows, _ = self._arms(contexts)
            arms = len(rows)
            values = np.empty(arms + 2 * self.dimension)
            self._answer(rows, self._learner.memory.copy(), values)
        return values[:arms]

    def _arms(
        self, contexts: ArrayLike | Sequence[str] | None, names: Sequence[str] | None = None
    ) -> tuple[Array | Coordinates, list[str] | None]:
        """What is chosen from, and its names: contexts (K, d), or coordinates (K,) of actions without any."""
        if self._actions is not None:
            require(names is None, "names", "must be left out: this agent's actions have names", names)
            return self._actions.offered(contexts)
        rows = as_contexts(contexts, self.dimension)  # type: ignore[arg-type]
        return rows, None if names is None else as_names(names, rows.shape[0])

    def _answer(self, rows: Any, memory: Array, values: Array) -> int:
        """The action for the next uniforms, which stay; `values` gets what a `Decision` holds."""
        arms, dimension, uniform = len(rows), self.dimension, self._uniforms[-1]
        if self.rule == OPTIMISM:
            contexts = rows if rows.ndim == 2 else unit_vectors(rows, dimension)
            action: int = decide_one(
                contexts, memory, self._room(arms), values, uniform, *self._learner.variant
            )
        else:
            if self._uniforms_each > 1:
                draw_parameter(memory, self._normals(), np.empty(dimension * dimension + 1))
            if rows.ndim == 2:
                action = decide_by_posterior(rows, memory, values, uniform, self._learner.quadrature)
            else:
                action = decide_among_arms(rows, dimension, memory, values, uniform, self._learner.quadrature)
        if action < 0:
            raise not_finite(rows)
        return action

    def _room(self, arms: int) -> Array:
        room = self._rooms.get(arms)
        if room is None:
            if len(self._rooms) > 64:  # a caller whose K never repeats must not fill the memory
                self._rooms.clear()
            room = self._rooms[arms] = room_for(arms, self.dimension)
        return room

    def _draw_ahead(self) -> None:  # one call costs as much as all
        self._uniforms = self._generator.random(DRAWN_AHEAD * self._uniforms_each)[::-1].tolist()

    def _fit_dimension(self) -> None:
        """What a decision takes, of which there is more with more actions."""
        self._uniforms_each = 1 + self.dimension if self.rule == "thompson" else 1
        self._rooms.clear()

    def _begin_actions(self, names: Sequence[str], retired: Sequence[str]) -> None:
        super()._begin_actions(names, retired)
        self._fit_dimension()

    def _add_actions(self, names: Sequence[str]) -> None:
        super()._add_actions(names)
        self._generator.bit_generator.advance(-len(self._uniforms))  # type: ignore[attr-defined]
        self._fit_dimension()
        self._draw_ahead()

    def _normals(self) -> Array:
        """Standard normals (d, 1) for Thompson's draw, from the uniforms after the one that draws the
        action.
        """
        from scipy.special import ndtri

        ahead = self._uniforms[-self._uniforms_each : -1][::-1]
        return np.asarray(ndtri(np.array(ahead)))[:, None]
