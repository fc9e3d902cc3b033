"""The configuration whose whole agents are compared with what they must send."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.audit.subject import AuditedConfig
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


class WholeConfig(AuditedConfig):
    """The configuration under audit, with its whole agents."""

    @property
    def rows(self) -> bool:
        """Whether releases are rows of secure aggregation, which only their total shows."""
        return self.mechanism.share is not None

    @property
    def honest(self) -> int:
        """Number of members among whom the noise is divided; 1 without secure aggregation."""
        return 1 if self.mechanism.share is None else self.mechanism.share.honest

    @property
    def own_sd(self) -> float:
        """Base sd of the noise that one agent must add."""
        return self.mechanism.base_sd / math.sqrt(self.honest)

    @cached_property
    def _digest_of_rows(self) -> str:
        """The digest that a row has; empty where releases are none."""
        return self.mechanism.digest() if self.rows else ""

    @property
    def grid(self) -> int:
        """Every number of a release is a multiple of 2 to the power of `grid`: 2⁻²⁰ of the noise, or less.

        With secure aggregation it is the largest such power that is at most 2⁻¹⁰ of a row's least noise.
        """
        if self.mechanism.share is None:
            return math.frexp(self.mechanism.base_sd)[1] - 20
        return math.floor(math.log2(self.own_sd * min(1.0, float(self.scale.min())))) - 10

    def agent(self, noise: NoiseSource, ledger: MemoryLedger) -> Agent:
        """Make a new agent of this configuration, as `Options` makes it."""
        privatizer = self.options.privatizer(
            self.dimension, releases=self.releases, noise=noise, ledger=ledger, agents=self.agents
        )
        return Agent(self.dimension, options=self.options, privatizer=privatizer, name=noise.owner, seed=0)

    def noisy_sums(self, sent: Release) -> tuple[Array, float]:
        """Return the noisy sums of the latest release, and its deviation from the public function of them."""
        if self.centring is None or sent.mechanism == self._digest_of_rows:  # a row is still centred
            return sent.packed, 0.0
        recorded, self.centring.recorded[:] = self.centring.recorded[-1:], []
        if not recorded:
            return np.full(self.size, math.nan), math.inf
        packed = recorded[0]
        return packed, float(np.abs(sent.packed - Centring.leave(self.centring, packed, sent.count)).max())

    @property
    def public_point(self) -> tuple[Array, float]:
        """The point around which contexts, without an intercept, and rewards are clipped."""
        if self.centring is None:
            return np.zeros(self.dimension), 0.0
        return np.array(self.centring.context), self.centring.reward

    @property
    def constant(self) -> float:
        """The intercept of contexts, or the constant of a centring."""
        return self.bounds.constant if self.centring is None else self.centring.constant

    def entered(self, contexts: Array) -> Array:
        """Contexts (n, d) as an agent gives them to its privatizer."""
        if self.columns == self.dimension:
            return contexts
        return np.hstack([contexts - self.public_point[0], np.full((len(contexts), 1), self.constant)])

    def given(self, context: Array) -> Array:
        """The context (d,) that an agent enters as this one."""
        return context if self.columns == self.dimension else context[:-1] + self.public_point[0]

    def truth(self, contexts: Array, rewards: Array) -> Array:
        """Return (n, q), what each record should add, clipped by the definition, not by the audited code."""
        (point, level), (radius, limit) = self.public_point, self.radii
        offsets, y = contexts - point, np.nan_to_num(rewards - level, nan=0.0)
        if self.bounds.nonnegative:
            offsets, y = np.maximum(offsets, 0.0), np.maximum(y, 0.0)
        norms = np.maximum(np.linalg.norm(offsets, axis=1, keepdims=True), 1e-300)
        x, y = offsets * np.minimum(1.0, radius / norms), np.clip(y, -limit, limit)
        whole = self.bounds.record_norm if self.centring is None else self.centring.record_radius
        if whole is not None:
            long = np.sqrt(np.square(x).sum(axis=1) + self.bounds.gram_share * np.square(y))
            shrunk = np.minimum(1.0, whole / np.maximum(long, 1e-300))
            x, y = x * shrunk[:, None], y * shrunk
        if self.inner_dimension > self.dimension:
            x = np.hstack([x, np.full((len(x), 1), self.constant)])
        rows, cols = np.triu_indices(self.inner_dimension)
        slots = np.array(self.bounds.slots)  # a decision shows the record in all of its slots
        gram, moment = x[:, rows] * x[:, cols], x * y[:, None]
        return np.concatenate([np.square(slots).sum() * gram, slots.sum() * moment], axis=1)

    def random_records(self, generator: np.random.Generator, count: int) -> tuple[Array, Array]:
        """Draw records beside the middle, so that all sums grow; about half are outside the limits."""
        (point, level), (radius, limit) = self.public_point, self.radii
        contexts = (1.0 + generator.standard_normal((count, self.dimension))) * radius
        rewards = (1.0 + generator.standard_normal(count)) * limit
        return point + 0.75 / math.sqrt(self.dimension) * contexts, level + 0.75 * rewards
