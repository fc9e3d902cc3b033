"""What an agent exchanges: its own releases, those of its peers, and the statistics that they add up to."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from fedfairx.agent.input_warnings import ClippingWatch
from fedfairx.agent.model import AgentModel
from fedfairx.agent.own_record import OwnRecords
from fedfairx.agent.partners import ASSUMED_ALIKE, NOT_ABLE, Partner, Partners, reason
from fedfairx.agent.pooling import Beliefs, Pool, sds
from fedfairx.agent.validation import Check, Releases, Seen, accept, check_next_run
from fedfairx.core.own_record import subtract
from fedfairx.core.partners import DIFFER
from fedfairx.core.statistics import packed_size
from fedfairx.errors import MessageRefused, require
from fedfairx.privacy import ContinuedPrivatizer, Guarantee, NonPrivateSums, Privatizer, Release, carry_over
from fedfairx.util.arrays import Array

#: Under these names an agent holds what secure aggregation opens: the sum of all members' rows, or of the
#: others', if it decides from its own exact data.
TOTAL, OTHERS = "all members together", "other members together"


@dataclass(frozen=True)
class Base:
    """What an agent knows from closed epochs: the sum of their last totals, or of the others' part of them.

    noise_sd: of an off-diagonal entry.
    run: number of the first run after them.
    """

    release: Release
    noise_sd: float
    run: int


class Exchange:
    """The latest release of every agent by name, its own included, and how the model follows from them.

    With secure aggregation these are its own row and `TOTAL` or `OTHERS`, which also holds what is known
    from closed epochs (`base`). Its number is that of the epoch's last total, 0 before the first.
    """

    def __init__(self, name: str, model: AgentModel, privatizer: Privatizer) -> None:
        self.name = name
        self.model = model
        self.latest: dict[str, Release] = {}
        self.arrived: dict[str, int] = {}  # `Aging.at` when each of them came, if there is a half-life
        self.weights: dict[str, Array] = {}  # of the powers of partners who may differ: see `core.partners`
        self.trust: dict[str, float] = {}
        self.powers: dict[str, float] = {}
        self.base: Base | None = None  # None in the first epoch
        self.set_privatizer(privatizer)

    def set_privatizer(self, privatizer: Privatizer) -> None:
        """Release through this privatizer from now on."""
        options = self.model.options
        self.privatizer = privatizer
        self.watch = ClippingWatch(privatizer)
        self.model.sums = privatizer if isinstance(privatizer, NonPrivateSums) else None
        if self.model.sums is not None:
            self.model.sums.content = self._content
        share = None if privatizer.stream is None else privatizer.stream.mechanism.share
        rows = 1
        if share is not None:
            require(self.name not in (TOTAL, OTHERS), "name", "must not be that of a total", self.name)
            rows = share.members - (self.model.decide_from == "own+released")
        self.secure = share is not None
        private = self.model.sums is None
        self.pool = Pool(privatizer.mechanism, private, options.confidence, options.shift, rows)
        self.set_base(self.base)

    def set_base(self, base: Base | None) -> None:
        """Hold this from closed epochs."""
        self.base = base
        self.pool = replace(self.pool, closed=0.0 if base is None else base.noise_sd)

    @property
    def released(self) -> int:
        own = self.latest.get(self.name)
        return 0 if own is None else own.number

    # --- sending -------------------------------------------------------------------------------------

    def make(self, number: int | None = None) -> tuple[Release, int]:
        """The privatizer's release of that number, or the next; and how many local records are in releases.

        If it is interrupted, a later one knows by `AgentModel.marks` which records were in it.
        """
        self.model.mark_local(self._in_releases())
        return self.release(number), self._in_releases()

    def hold_own(self, number: int, release: Release | None, records: int | None) -> None:
        """Hold a release that the privatizer has made, of its first `records` local records, or of all."""
        model = self.model
        if records is None:
            records = model.local_count
            model.mark_local(self._in_releases())
        self.latest[self.name] = self.release(number) if release is None else release
        self.arrived = self._arriving([self.name])
        model.fold_local(records)

    def release(self, number: int | None) -> Release:
        """The privatizer's release of that number, or the next."""
        release = self.privatizer.release(number)
        return replace(release, mechanism=self.digest()) if self._of_coordinates else release

    def _content(self, total: Array) -> tuple[Array, dict[str, Array]]:
        """What an exact release holds of own records: their tallies by name or, if partners may differ, sums
        with them integrated out, so that ten records of one name do not count as of ten."""
        records = self.model.records
        if records is None:
            return total.copy(), {}
        if self.model.options.partners == DIFFER:
            return records.whitened(total), {}
        return total.copy(), records.by_name()

    @property
    def _of_coordinates(self) -> bool:
        """Whether each coordinate is of an action without features."""
        return self.model.featureless and self.model.optimism

    def _in_releases(self) -> int:
        """Number of local records that a release of the privatizer already holds."""
        return self.model.local_count - self.privatizer.waiting

    def digest(self) -> str:
        """The digest that a peer's release must have: of the mechanism and, if any, the names of actions.

        A coordinate means the same to both agents only if it belongs to the same action.
        """
        mechanism = self.privatizer.mechanism.digest()
        if not self._of_coordinates:
            return mechanism
        assert self.model.actions is not None
        return hashlib.sha256(json.dumps([mechanism, *self.model.actions.names]).encode()).hexdigest()

    def next_run(self, privatizer: Privatizer) -> bool:
        """Check the privatizer of a new run and move unreleased records into it.

        Returns False if the old run must first make a last release of them.
        """
        old, dimension = self.privatizer, self.model.dimension
        intercept = bool(self.model.constant)
        check_next_run(
            privatizer, before=old.guarantee, dimension=dimension, intercept=intercept, name=self.name
        )
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
        """Release through this privatizer, on top of what the old one has sent."""
        old = self.privatizer
        self.set_privatizer(ContinuedPrivatizer(privatizer, before=old) if old.spent > 0 else privatizer)

    @property
    def run(self) -> int:
        """The number of the run that makes the rows of this epoch."""
        return 1 if self.base is None else self.base.run

    @property
    def _held_name(self) -> str:
        """The name under which totals are held."""
        return TOTAL if self.model.decide_from == "released" else OTHERS

    def begin_epoch(self, privatizer: Privatizer, run: int) -> None:
        """Make rows of a new epoch by this privatizer, and hold what is known from closed ones beside it.

        The noise of epochs is independent, so its variances add. See `Agent.begin_epoch`.
        """
        latest = self.latest.get(self._held_name)
        packed, count, noise_sd = np.zeros(packed_size(self.model.dimension)), 0, 0.0
        if latest is not None:
            packed, count, (noise_sd,) = latest.packed, latest.count, self.pool.sds([latest])
        before = Release(0, packed, count, self.digest())
        with self._whole():
            self.base = Base(before, noise_sd, run)
            self.set_privatizer(privatizer)
            self._pool({self._held_name: before} if noise_sd > 0 else {}, {}, {})

    def add_total(self, total: Release, members: int) -> None:
        """Add the last total of an epoch of others to what is known from closed epochs."""
        name, stream, latest = self._held_name, self.privatizer.stream, self.latest.get(self._held_name)
        assert stream is not None
        packed = stream.opened(total.packed, total.count)
        zero = Release(0, np.zeros_like(packed), 0, self.digest())
        base = self.base or Base(zero, 0.0, self.run)
        noise_sd = math.hypot(base.noise_sd, *sds(stream.mechanism, [total], members))
        added, latest = (
            replace(each, packed=each.packed + packed, count=each.count + total.count)
            for each in (base.release, latest or base.release)
        )
        with self._whole():
            self.set_base(Base(added, noise_sd, base.run))
            self._pool(self.latest | {name: latest}, self._arriving([name]), {})

    # --- taking in -----------------------------------------------------------------------------------

    def absorb(self, releases: Releases) -> None:
        """Take the latest releases of peers, all or none; with secure aggregation, the `TOTAL` of rows."""
        if self.secure:
            releases = self._opened(releases)
        new = self.accepted(releases)
        self._share(self.latest | new, self._arriving(new))

    def _opened(self, releases: Releases) -> Releases:
        """The statistics of all members' records, or the others', from the total of a round's rows."""
        stream, total = self.privatizer.stream, releases.get(TOTAL)
        if total is None or len(releases) > 1:
            text = f"with secure aggregation only {TOTAL!r} is taken, never a member's row"
            raise MessageRefused(text, reason="malformed")
        if not 1 <= total.number <= self.released:
            text = f"total {total.number} can't hold this agent's row: it has made {self.released}"
            raise MessageRefused(text, reason="malformed")
        row, name = self.latest[self.name], TOTAL
        row = row if row.number == total.number else self.release(total.number)
        packed, count = total.packed, total.count
        assert stream is not None
        if packed.shape != row.packed.shape or count < row.count:
            text = f"total {total.number} must have the size of this agent's row, and as many records or more"
            raise MessageRefused(text, reason="malformed")
        if self.model.decide_from == "own+released":
            packed, count, name = packed - row.packed, count - row.count, OTHERS
        packed = stream.opened(packed, count)
        if self.base is not None:
            packed, count = self.base.release.packed + packed, self.base.release.count + count
        return {name: replace(total, packed=packed, count=count)}

    def _arriving(self, names: Iterable[str]) -> dict[str, int]:
        """`arrived`, if the releases of these agents are as of now."""
        aging = self.model.aging
        return self.arrived if aging is None else self.arrived | dict.fromkeys(names, aging.at)

    def accepted(
        self, releases: Releases, limits: Check | None = None, seen: Seen | None = None
    ) -> dict[str, Release]:
        """The releases that are new to this agent, by sender: see `validation.accept`."""
        return accept(
            self.latest,
            releases,
            own=self.name,
            dimension=self.model.dimension,
            mechanism=self.digest(),
            exact=self.model.sums is not None,
            limits=limits,
            seen=seen,
        )

    def drop(self, names: Collection[str]) -> None:
        """Forget what these peers have sent."""
        rest = {name: release for name, release in self.latest.items() if name not in names}
        arrived = {name: since for name, since in self.arrived.items() if name not in names}
        with self._whole():
            # Noise is weighed by what was learnt from all of them, which must be forgotten too.
            self._share({name: release for name, release in rest.items() if name == self.name}, arrived)
            self._share(rest, arrived)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Change all or, if V would not be positive definite, nothing."""
        model, base, privatizer, watch = self.model, self.base, self.privatizer, self.watch
        held, before = (self.latest, self.arrived, self.weights, self.trust, self.powers), model.hold()
        try:
            yield
        except MessageRefused:
            self.set_privatizer(privatizer)
            self.set_base(base)
            self.watch = watch
            self.latest, self.arrived, self.weights, self.trust, self.powers = held
            model.take_back(before)
            raise

    def _share(self, latest: dict[str, Release], arrived: dict[str, int]) -> None:
        """Derive the model from the latest releases (Alg. 1 lines 22 and 27)."""
        before = self.latest
        judged_before = {
            name: weights
            for name, weights in self.weights.items()
            if name in latest and latest[name].number == before[name].number
        }
        self._pool(latest, arrived, judged_before)  # only partners whose release is new are judged

    def judge_again(self) -> None:
        """Judge partners again, after the agent's own records have doubled.

        They stay as judged before if V would not be definite: a reward is not refused for what a peer sent.
        """
        if self.weights:
            with suppress(MessageRefused):
                self._pool(self.latest, self.arrived, {})

    def _pool(self, latest: dict[str, Release], arrived: dict[str, int], weights: dict[str, Array]) -> None:
        """Derive the model from these releases; `weights` are those of partners judged before."""
        model, pool, records = self.model, self.pool, self.model.records
        current = {name: self._aged(release, arrived.get(name)) for name, release in latest.items()}
        learner, own = model.learner, model.own_sums()
        beliefs = Beliefs(
            learner.noise_variance,
            learner.size_of_parameter(),
            learner.ridge,
            learner.mean,
            learner.observed,
            model.own_variance,
        )
        partners, judged, others = self._others(current), None, None
        differ = model.options.partners == DIFFER
        before = None if records is None else records.hold()
        if records is not None:
            assert own is not None
            alike = [] if differ or self.secure else list(partners.values())
            records.share((each.tallies, 1.0) for each in alike)
            own = records.whitened(own, used=True)
        if own is not None and partners and differ:
            if records is not None:
                partners = {name: _integrated(each, records) for name, each in partners.items()}
            judged = pool.judged(own, partners, beliefs, weights)
            theirs = sum(each.count for each in partners.values())
            others = judged.statistics
            shared, count = own + others, float(model.observed + theirs)
        elif own is not None and (model.decide_from == "own+released" or records is not None):
            shared, count = pool.beside_own(own, model.observed, list(partners.values()), beliefs)
            others = shared - own if partners else None
        else:
            releases = [current[name] for name in sorted(current) if not (self.secure and name == self.name)]
            shared, count = pool.all_alike(releases, model.dimension, beliefs)
            if model.decide_from != "released":
                shared, count = shared + learner.fresh, count + model.local_count
        try:
            model.adopt(shared, count, others if records is not None else None)
        except MessageRefused:
            if records is not None and before is not None:
                records.take_back(before)
            raise
        self.latest, self.arrived = latest, arrived
        self.weights, self.trust, self.powers = ({}, {}, {}) if judged is None else judged[1:]

    def _aged(self, release: Release, arrived: int | None) -> Release:
        """The release with its sums as they count now."""
        aging = self.model.aging
        weight = 1.0 if aging is None or arrived is None else aging.weight(arrived)
        if weight == 1.0:
            return release
        tallies = {name: weight * tally for name, tally in release.tallies.items()}
        return replace(release, packed=weight * release.packed, tallies=tallies)

    def _others(self, latest: Releases) -> dict[str, Release]:
        return {name: latest[name] for name in sorted(latest) if name != self.name}

    @property
    def partners(self) -> Partners:
        """The partners, how far each is believed, and why."""
        differ, able = self.model.options.partners == DIFFER, self.model.decide_from != "released"
        partners = Partners()
        for name, release in self._others(self.latest).items():
            why = NOT_ABLE if differ else ASSUMED_ALIKE
            if differ and able:
                why = reason(self.weights[name], self.trust[name], self.model.learner.observed)
            partners[name] = Partner(name, release.number, release.count, self.powers.get(name, 1.0), why)
        return partners


def _integrated(release: Release, records: OwnRecords) -> Release:
    """A release without tallies, whose sums have own records integrated out."""
    if not release.tallies:
        return release
    packed = release.packed.copy()
    subtract(packed, np.array(list(release.tallies.values())), records.ratio)
    return replace(release, packed=packed, tallies={})


def privacy_in_short(guarantee: Guarantee) -> str:
    """One line on what is claimed for all messages and how much of it is spent, or why nothing is claimed."""
    if guarantee.reasons:
        return f"NOT PRIVATE: {'; '.join(guarantee.reasons)}"
    noise = ", simulated noise: NOT PRIVATE" if guarantee.simulated else ""
    used = f"{guarantee.spent} of {guarantee.releases} messages sent"
    return f"ε={guarantee.epsilon:.6g}, δ={guarantee.delta:g} for all messages; {used}{noise}"
