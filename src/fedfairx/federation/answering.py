"""The policy for some contexts, and the draw from it: what a decision is before anybody has made it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.arrays import Array
from fedfairx.core.believing import decide_by_posterior, draw_parameter
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.single import decide_one, room_for
from fedfairx.federation.checks import as_contexts, not_finite
from fedfairx.federation.sharing import Sharing

DRAWN_AHEAD = 64  # uniforms at a time
DRAWS = 1  # the stream of a seed that actions are drawn from


class Answering(Sharing):
    """`Agent` as far as it answers, and remembers nothing of it."""

    def __init__(self, dimension: int, *, seed: int | np.random.SeedSequence | None, **knowing: Any) -> None:
        super().__init__(dimension, **knowing)
        if isinstance(
            seed, int | np.integer
        ):  # a caller's own default_rng(seed) must not draw the same numbers
            seed = np.random.SeedSequence(int(seed), spawn_key=(DRAWS,))
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._uniforms: list[float] = []  # drawn ahead; the last is the next: a refused call takes none
        self._uniforms_each = 1 + self.dimension if self.rule == "thompson" else 1  # that a decision takes
        self._draw_ahead()
        self._rooms: dict[int, Array] = {}

    def policy(self, contexts: ArrayLike) -> Array:
        """(K,) the probability of every arm if `decide` were called now; nothing is drawn or changed.

        By Thompson's rule it is the policy of the parameter that the next decision will draw.
        """
        rows = as_contexts(contexts, self.dimension)
        arms, dimension = rows.shape
        values = np.empty(arms + 2 * dimension)
        with self._lock:
            self._answer(rows, self._learner.memory.copy(), values)
        return values[:arms]

    def _answer(self, rows: Array, memory: Array, values: Array) -> int:
        """The action for the next uniforms, which stay; `values` gets what a `Decision` holds."""
        arms, dimension = rows.shape
        uniform = self._uniforms[-1]
        if self.rule == OPTIMISM:
            action: int = decide_one(rows, memory, self._room(arms), values, uniform)
        else:
            if self._uniforms_each > 1:
                draw_parameter(memory, self._normals(), np.empty(dimension * dimension + 1))
            action = decide_by_posterior(rows, memory, values, uniform, self._learner.quadrature)
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

    def _normals(self) -> Array:
        """Standard normals (d, 1) for Thompson's draw, from the uniforms after the one that draws the
        action.
        """
        from scipy.special import ndtri

        ahead = self._uniforms[-self._uniforms_each : -1][::-1]
        return np.asarray(ndtri(np.array(ahead)))[:, None]
