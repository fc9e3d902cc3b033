"""What an agent sends and takes in: its own releases, those of its peers, and what they add up to."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace

from fedfairx.agent.input_warnings import ClippingWatch
from fedfairx.agent.model import Model
from fedfairx.agent.partners import ALIKE_TOLD, NOT_ABLE, Partners, partners_alike, partners_judged
from fedfairx.agent.pooling import Known, PosteriorPool, pool_for
from fedfairx.agent.validation import Check, accept, check_next_run
from fedfairx.core.partners import DIFFER
from fedfairx.privacy import ContinuedPrivatizer, NonPrivateSums, Privatizer, Release, carry_over
from fedfairx.util.arrays import Array


class Exchange:
    """The latest release of every agent by name, its own too, and how the model follows from them."""

    def __init__(self, name: str, model: Model, privatizer: Privatizer) -> None:
        self.name = name
        self.model = model
        self.latest: dict[str, Release] = {}
        self.weights: dict[str, Array] = {}  # of partners who may differ: see `core.partners`
        self.powers: dict[str, float] = {}
        self.set_privatizer(privatizer)

    def set_privatizer(self, privatizer: Privatizer) -> None:
        """Release through this one from now on."""
        options = self.model.options
        self.privatizer = privatizer
        self.watch = ClippingWatch(privatizer)
        self.model.sums = privatizer if isinstance(privatizer, NonPrivateSums) else None
        self.pool = pool_for(
            privatizer.mechanism,
            private=self.model.sums is None,
            region=options.confidence,
            shift=options.shift,
        )

    @property
    def released(self) -> int:
        own = self.latest.get(self.name)
        return 0 if own is None else own.number

    # --- sending -------------------------------------------------------------------------------------

    def release(self, number: int | None = None) -> tuple[Release, bool]:
        """The release of that number, or the next one, and whether it is new."""
        self.model.mark_local(self._held())
        release = self.made(number)
        new = release.number > self.released
        if new:
            self.latest[self.name] = release
            self.model.fold_local(self._held())
        return release, new

    def release_again(self, number: int) -> None:
        """Replay a release, which the privatizer has already and which held all records until then."""
        self.model.mark_local(self._held())
        self.latest[self.name] = self.made(number)
        self.model.fold_local(self.model.local_count)

    def made(self, number: int | None) -> Release:
        """The privatizer's release; of actions without features it says which they are."""
        release = self.privatizer.release(number)
        return release if self.model.actions is None else replace(release, mechanism=self.digest())

    def _held(self) -> int:
        """Local records that an interrupted release holds already."""
        return self.model.local_count - self.privatizer.waiting

    def digest(self) -> str:
        """What a peer's release must have: the mechanism and, of actions without features, their names.

        A coordinate means the same to both only if it is the same action's.
        """
        mechanism = self.privatizer.mechanism.digest()
        if self.model.actions is None:
            return mechanism
        return hashlib.sha256(json.dumps([mechanism, *self.model.actions.names]).encode()).hexdigest()

    def next_run(self, privatizer: Privatizer) -> bool:
        """Check the privatizer of a new run and move unreleased records into it.

        False when the old run must make a last release of them first.
        """
        old, dimension = self.privatizer, self.model.dimension
        check_next_run(privatizer, before=old.guarantee, dimension=dimension, name=self.name)
        left = old.waiting
        if carry_over(old, privatizer) or not left:
            return True
        if old.guarantee.remaining > 0:
            return False
        warnings.warn(
            f"{left} records since the last release get into no message: the old run has no release left for "
            "them, and the new one clips differently or counts persons from zero",
            stacklevel=3,
        )
        return True

    def begin_run(self, privatizer: Privatizer) -> None:
        """Release through this one, after what the old one has sent."""
        old = self.privatizer
        sent = old.spent > 0
        self.set_privatizer(ContinuedPrivatizer(privatizer, before=old) if sent else privatizer)

    # --- taking in -----------------------------------------------------------------------------------

    def absorb(self, releases: Mapping[str, Release]) -> None:
        """Take the latest releases of peers; all or none."""
        self._share(self.latest | self.accepted(releases))

    def accepted(
        self,
        releases: Mapping[str, Release],
        *,
        limits: Check | None = None,
        seen: Mapping[str, tuple[int, str]] | None = None,
    ) -> dict[str, Release]:
        """Those of these releases that are new, by sender, as `validation.accept` decides."""
        return accept(
            self.latest,
            releases,
            own=self.name,
            dimension=self.model.dimension,
            mechanism=self.digest(),
            limits=limits,
            seen=seen,
        )

    def drop(self, names: Collection[str]) -> None:
        """Forget what these peers have sent."""
        rest = {name: release for name, release in self.latest.items() if name not in names}
        # Noise is weighed by what was learnt from all of them: that too is forgotten.
        self._share({name: release for name, release in rest.items() if name == self.name})
        self._share(rest)

    def _share(self, latest: dict[str, Release]) -> None:
        """Derive the model from the latest releases (Alg. 1 lines 22 and 27)."""
        before = self.latest
        known = {
            name: weights
            for name, weights in self.weights.items()
            if name in latest and latest[name].number == before[name].number
        }
        self._pool(latest, known)

    def judge_again(self) -> None:
        """Own records have doubled: judge partners by them."""
        if self.weights:
            self._pool(self.latest, {})

    def _pool(self, latest: dict[str, Release], weights: dict[str, Array]) -> None:
        """Statistics from these releases; of partners who may differ, these `weights` are known already."""
        model, pool = self.model, self.pool
        learner, own = model.learner, model.own_sums()
        known = Known(learner.noise_variance, learner.size_of_parameter(), learner.ridge, learner.mean)
        others, judged = self._others(latest), None
        differ = model.options.partners == DIFFER
        if own is not None and others and differ and isinstance(pool, PosteriorPool):
            judged = pool.judged(own, others, known, weights)
            theirs = sum(each.count for each in others.values())
            shared, count = own + judged.told, float(model.observed + theirs)
        elif own is not None and model.decide_from == "own+released":
            shared, count = pool.beside_own(own, model.observed, list(others.values()), known)
        else:
            releases = [latest[name] for name in sorted(latest)]
            shared, count = pool.all_alike(releases, model.dimension, known)
            if model.decide_from != "released":
                shared, count = shared + learner.fresh, count + model.local_count
        model.adopt(shared, count)
        self.latest = latest
        self.weights, self.powers = ({}, {}) if judged is None else (judged.weights, judged.powers)

    def _others(self, latest: Mapping[str, Release]) -> dict[str, Release]:
        return {name: latest[name] for name in sorted(latest) if name != self.name}

    @property
    def partners(self) -> Partners:
        others, model = self._others(self.latest), self.model
        if model.options.partners != DIFFER:
            return partners_alike(others, ALIKE_TOLD)
        if model.decide_from == "released":
            return partners_alike(others, NOT_ABLE)
        return partners_judged(others, self.weights, self.powers)
