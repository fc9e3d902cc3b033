"""Mistakes that must be detected: wrong versions of the agents' code, inserted one at a time.

    python tests/support/mistakes.py

prints which checks detect each, and counts those that are detected: by the audit, and by `whole.py`, which
compares whole agents with what they must send. A mistake replaces an attribute of a class or of a module, in
this process and for as long as that takes, so it reaches every agent, whoever makes it.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

import protocol_checks
import whole
from fedfairx.agent import agent as agent_module
from fedfairx.agent import persistence
from fedfairx.agent.agent import Agent
from fedfairx.agent.options import Options
from fedfairx.audit.audit import AuditReport, audit
from fedfairx.federation.aggregation import rows, shares
from fedfairx.federation.aggregation.machine import RowMade
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.privacy.accounting import mu_for
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.budget import Budget
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.ledger import ledger
from fedfairx.privacy.mechanisms import noise
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from fedfairx.storage.privacy_ledger import StoredLedger

DIMENSION = 3
RELEASES = 24
Wrong = Callable[[Any], Any]  # from the right version to the wrong one

AGENTS, COUNTS = "agents: numbers other than grid(truth + noise)", "agents: counts other than"
AGAIN, STORED = "agents: releases that differ when requested again", "agents: stored keys"
ALIKE, TAILS, KEYS = "draws: alike", "draws: largest of", "keys: too short or made twice"
SENSITIVITY, ASKED = "data path: sensitivity", "calibration: δ at the requested ε"
TOTALS, ROWS = "totals: numbers other than the sum of all rows", "totals: rows other than"
EPOCHS = "epochs: records that are not"
BY_AUDIT = "calibration", "data path", "draws", "schedule"
HIDING, SEEDS, ONCE = "shares: χ²", "shares: numbers that occur twice", "openers: answers"


@dataclass(frozen=True)
class Mistake:
    """A mistake: what is replaced, by what, and the check that must fail, in agents of these options."""

    name: str
    owner: Any
    attribute: str
    wrong: Wrong
    check: str
    releases: int = RELEASES
    options: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def inserted(self) -> Iterator[None]:
        """Insert the mistake into the code."""
        right = vars(self.owner)[self.attribute]
        setattr(self.owner, self.attribute, self.wrong(right))
        try:
            yield
        finally:
            setattr(self.owner, self.attribute, right)

    def caught_by(self, failed: tuple[str, ...]) -> bool:
        """Tell whether its check is among those that failed."""
        return any(name.startswith(self.check) for name in failed)

    @property
    def by_audit(self) -> bool:
        """Whether its check is one of the audit, and not of whole agents."""
        return self.check.startswith(BY_AUDIT) and self.check != ALIKE

    def audit(self, *, runs: int = 100, seed: int = 0, **changes: Any) -> AuditReport:
        """Audit agents that have it; `changes` are other options, or another number of releases."""
        with self.inserted():
            return audit(**self._asked(changes), runs=runs, seed=seed)

    def whole(self, *, seed: int = 0, **changes: Any) -> tuple[str, ...]:
        """The checks of whole agents that fail."""
        with self.inserted():
            return whole.failed(whole.compare(**self._asked(changes), seed=seed))

    def _asked(self, changes: dict[str, Any]) -> dict[str, Any]:
        claim = {"algorithm": "priv-fairx-bayes", "epsilon": 2.0, "delta": 0.1}
        given: dict[str, Any] = {"releases": self.releases, **claim, **self.options, **changes}
        return {"releases": given.pop("releases"), "options": Options(**given), "dimension": DIMENSION}


# --- the mechanism ----------------------------------------------------------------------------------------


def _weaker(share: Callable[[Gaussian], float]) -> Wrong:
    """Claim what is claimed, and add a share of the noise."""

    def wrong(right: Any) -> Any:
        def stream(self: Gaussian, draw: Any, *, entry_scale: Any) -> Any:
            return right(self, draw, entry_scale=entry_scale * share(self))

        return stream

    return wrong


class _OwnStream:
    """A stream that makes its noise by `rule(number)`; enough of a `NoiseStream` for a privatizer."""

    def __init__(self, rule: Callable[[int], Any]) -> None:
        self.number = 0
        self._rule = rule

    def next(self) -> Any:
        self.number += 1
        return self._rule(self.number)

    def advance(self, count: int) -> None:
        self.number += count


def _own_stream(rule: Callable[[Gaussian, Any, int, int], Any]) -> Wrong:
    """Make the noise, in units of the stated one, by `rule(mechanism, draw, size, number)`."""

    def stream(self: Gaussian, draw: Any, *, entry_scale: Any) -> Any:
        def noise_of(number: int) -> Any:
            return rule(self, draw, entry_scale.size, number) * entry_scale * self.base_sd

        return _OwnStream(noise_of)

    return lambda _right: stream


def _fresh(mechanism: Gaussian, draw: Any, size: int, number: int) -> Any:
    """Noise of the right sd at each release, drawn anew: it averages out."""
    return draw(number, size) * mechanism.factor.row_norm(np.array([number]))


def _reused(_mechanism: Gaussian, draw: Any, size: int, number: int) -> Any:
    """The same noise until the tree grows a level: two releases in between differ by the data alone."""
    level = number.bit_length()
    return math.sqrt(level) * draw(1 << (level - 1), size)


def _one_a_level(_mechanism: Gaussian, draw: Any, size: int, number: int) -> Any:
    """One noise for each level of the tree, whichever node of it: neighbouring nodes cancel."""
    total = np.zeros(size)
    for level in range(number.bit_length()):
        if number >> level & 1:
            total += draw(min(level + 1, number), size)
    return total


def _shared_by_agents(right: Any) -> Any:
    """Right in every way but one: all agents draw the same noise."""

    def stream(self: Gaussian, draw: Any, *, entry_scale: Any) -> Any:
        def same(number: int, count: int) -> Any:
            return np.random.default_rng(number).standard_normal(count)

        columns = entry_scale.size > 100  # those of the black box are runs, not agents
        return right(self, draw if columns else same, entry_scale=entry_scale)

    return stream


def _calibrated(change: Callable[[Gaussian, Budget], Gaussian]) -> Wrong:
    def wrong(right: Any) -> Any:
        return lambda self: change(right(self), self)

    return wrong


def _ten_delta(made: Gaussian, budget: Budget) -> Gaussian:
    generous = min(0.99, 10 * budget.delta)
    times = mu_for(budget.epsilon, generous) / mu_for(budget.epsilon, budget.delta)
    return replace(made, base_sd=made.base_sd / times, delta=generous)


# --- clipping ---------------------------------------------------------------------------------------------


def _context_unclipped(_right: Any) -> Any:
    def clip(self: Bounds, context: Any, reward: float) -> Any:
        return np.asarray(context), max(-self.reward, min(self.reward, reward)), False

    return clip


def _unclipped_below(right: Any) -> Any:
    def clip(self: Bounds, context: Any, reward: float) -> Any:
        x, y, moved = right(self, context, reward)
        return x, min(float(reward), y) if reward == reward else y, moved

    return clip


def _clipping_stops(right: Any) -> Any:
    def clip(self: StreamPrivatizer, context: Any, reward: float) -> Any:
        x, y, moved = right(self, context, reward)
        here = self._position
        return (x, y, moved) if here.total_count + here.leaf_count < 100 else (context, reward, False)

    return clip


# --- records and leaves -----------------------------------------------------------------------------------


def _in_two_leaves(right: Any) -> Any:
    def release(self: Any, number: int | None = None) -> Any:
        again = self._position.leaf.copy()
        made = right(self, number)
        if again.any() and not getattr(self, "_done", False):
            self._position.leaf[:] += again
            self._done = True
        return made

    return release


def _last_again(right: Any) -> Any:
    """As a loop with <= for < would."""

    def enter(self: Any, context: Any, reward: float, record: Any, weight: float) -> None:
        frozen, last = getattr(self, "_last_record", (0, None))
        self._last_record = self._position.frozen, (context, reward)
        if last is not None and frozen < self._position.frozen:
            right(self, *last, None, 1.0)
        right(self, context, reward, record, weight)

    return enter


def _centred_at_the_mean(right: Any) -> Any:
    """Centre at the mean of the contexts so far, in place of a public point."""

    def enter(self: Any, context: Any, reward: float, record: Any, weight: float) -> None:
        seen = self.__dict__.setdefault("_seen", [])
        if np.isfinite(context).all() and np.abs(context).max() < 1e3:
            seen.append(context)
            self.centring = replace(self.centring, context=tuple(np.mean(seen, axis=0).tolist()))
        right(self, context, reward, record, weight)

    return enter


def _mean_taken_off(right: Any) -> Any:
    def enter(self: Any, context: Any, reward: float, record: Any, weight: float) -> None:
        seen = self.__dict__.setdefault("_seen", [np.zeros(self.dimension)])
        moved = context - np.mean(seen, axis=0)
        seen.append(self.bounds.clip(context, reward)[0])
        right(self, moved, reward, record, weight)

    return enter


def _entered_twice(right: Any) -> Any:
    def enter(self: Any, decision: Any, rewards: dict[int, float], person: Any) -> None:
        right(self, decision, rewards, person)
        self.privatizer.add(decision.chosen(), rewards[0])

    return enter


def _positive_counted(right: Any) -> Any:
    def enter(self: Any, context: Any, reward: float, record: Any, weight: float) -> None:
        right(self, context, reward, record, weight)
        if not reward > 0:
            self._position_copy = replace(self._position_copy, leaf_count=self._position_copy.leaf_count - 1)
            self.ledger.add(None, self._position_copy)

    return enter


def _leaf_read_twice(right: Any) -> Any:
    def position(self: Any) -> Any:
        here = right(self)
        return here and replace(here, total=here.total + here.leaf)

    return position


# --- releases ---------------------------------------------------------------------------------------------


def _noise_changed(change: Callable[[Any, int, Any], Any]) -> Wrong:
    """Change the noise of a release by `change(privatizer, number, noise)`."""

    def wrong(right: Any) -> Any:
        return lambda self, number: change(self, number, right(self, number))

    return wrong


def _by_count(privatizer: Any, _number: int, right: Any) -> Any:
    """Divide the noise by the number of records of the leaf, beyond 2."""
    total = privatizer._position.total_count
    count = total - getattr(privatizer, "_before", 0)
    privatizer._before = total
    return right * min(1.0, 2.0 / max(count, 1))


def _silent_end(privatizer: Any, number: int, right: Any) -> Any:
    return 0.0 * right if number == privatizer.mechanism.releases > 2_048 else right


def _without_grid(right: Any) -> Any:
    def init(self: Any, *given: Any, **named: Any) -> None:
        right(self, *given, **named)
        self._grid -= 40

    return init


def _leak_below_the_grid(right: Any) -> Any:
    """Add a billionth of the exact sums after rounding."""

    def make(self: Any) -> Any:
        record = self.ledger.record
        total = self._position.total

        def leaking(number: int, message: bytes) -> None:
            made = Release.from_bytes(message)
            if self.centring is None:
                message = replace(made, packed=made.packed + 1e-9 * total).to_bytes()
            record(number, message)

        self.ledger.record = leaking
        try:
            right(self)
        finally:
            del self.ledger.record
        return self._recorded(self._position.frozen)

    return make


def _fresh_when_repeated(right: Any) -> Any:
    def release(self: Any, number: int | None = None) -> Any:
        repeated = number is not None and number <= self.spent
        made = right(self, number)
        if not repeated:
            return made
        fresh = np.random.default_rng().standard_normal(made.packed.size)
        return replace(made, packed=made.packed + self.mechanism.base_sd * fresh)

    return release


def _late_records(right: Any) -> Any:
    """Put records into a release that was interrupted before they came."""

    def finish(self: Any) -> Any:
        here = self._position
        if here.frozen == self.spent + 1:
            self._position_copy = replace(here, total=here.total + here.leaf, leaf=np.zeros_like(here.leaf))
        return right(self)

    return finish


def _begun_again(right: Any) -> Any:
    """Forget the noise of earlier releases when an agent is opened again."""

    def noise_of(self: Any, number: int) -> Any:
        if self._stream is None and number > 1:
            self._stream = self._new_stream()
            self._stream.number = number - 1
        return right(self, number)

    return noise_of


# --- keyed noise ------------------------------------------------------------------------------------------


def _number(change: Callable[[int], int]) -> Wrong:
    def wrong(right: Any) -> Any:
        return lambda self, number, count, place: right(self, change(number), count, place)

    return wrong


def _place(change: Callable[[bytes], bytes]) -> Wrong:
    def wrong(right: Any) -> Any:
        return lambda self, number, count, place: right(self, number, count, change(place))

    return wrong


def _draws(change: Callable[[Any], Any]) -> Wrong:
    def wrong(right: Any) -> Any:
        return lambda self, number, count, place: change(right(self, number, count, place))

    return wrong


def _correlated(right: Any) -> Any:
    """Draws that have a fifth in common with those of the last release but one, whatever their place."""

    def call(self: Any, number: int, count: int, _place: bytes, /) -> Any:
        return 0.98 * right(self, number, count, b"") + 0.199 * right(self, number + 2, count, b"")

    return call


def _made_for(**changes: Callable[[Any], Any]) -> Wrong:
    """Change what keyed noise is made for."""

    def wrong(right: Any) -> Any:
        def init(self: Any, key: bytes, **named: str) -> None:
            given = {"key": key, **named}
            right(self, **{name: changes.get(name, _same)(value) for name, value in given.items()})
            self.agent = self.owner = named["agent"]

        return init

    return wrong


def _same(value: Any) -> Any:
    return value


def _sixteen_bits(right: Any) -> Any:
    return lambda: hashlib.sha256(right()[:2]).digest()


# --- secure aggregation -----------------------------------------------------------------------------------


def _row_without_noise(privatizer: Any, _number: int, right: Any) -> Any:
    return 0.0 * right if privatizer.mechanism.share is not None else right


def _missed_round_left_out(_right: Any) -> Any:
    """Send the next release in the round that is due, also if rounds were missed."""

    def make_row(self: Any, number: int) -> RowMade:
        release = self.agent.release()
        place = self._stream.ledger.place(release.number)
        return RowMade(number, self._integers(release), place, secrets.token_bytes(32))

    return make_row


def _opened_again(right: Any) -> Any:
    """Open a round without a look at what was opened."""
    return lambda *given: right(*given[:-1], None)


def _frozen_leaves_too(right: Any) -> Any:
    """Move the leaves of all rows into the new run, too."""

    def carry_over(before: Any, after: Any) -> bool:
        here, moved = before.stream._position, right(before, after)
        there, after.stream._position_copy = after.stream._position, None
        leaf, count = there.leaf + here.total, there.leaf_count + here.total_count
        after.stream.ledger.add(None, replace(there, leaf=leaf, leaf_count=count))
        return bool(moved)

    return carry_over


def _leaves_twice(right: Any) -> Any:
    """Add a row to the one before, as if rows were not cumulative."""

    def integers(self: Any, release: Release) -> Any:
        row = right(self, release)
        return row if release.number == 1 else row + right(self, self.agent.past_release(release.number - 1))

    return integers


BOX = Centring.unit_box(DIMENSION)
_SECURE = {"aggregation": "secure"}
_ADD = {"bounds": Bounds(adjacency="add-remove")}
_LAG = {1: 0, 2: 0, 3: 2, 0: 2}  # by the release number mod 4

MISTAKES: tuple[Mistake, ...] = (
    Mistake("noise halved", Gaussian, "stream", _weaker(lambda _m: 0.5), AGENTS),
    Mistake("a tenth too little noise", Gaussian, "stream", _weaker(lambda _m: 0.9), AGENTS),
    Mistake("(N+Nᵀ)/2", Gaussian, "stream", _weaker(lambda _m: math.sqrt(0.5)), AGENTS),
    Mistake(
        "no composition over levels",
        Gaussian,
        "stream",
        _weaker(lambda mechanism: 1.0 / mechanism.factor.column_norm),
        AGENTS,
    ),
    Mistake("fresh noise at each release", Gaussian, "stream", _own_stream(_fresh), AGENTS),
    Mistake("noise reused when the tree does not grow", Gaussian, "stream", _own_stream(_reused), AGENTS),
    Mistake("one noise a level", Gaussian, "stream", _own_stream(_one_a_level), AGENTS),
    Mistake("a stream that all agents share", Gaussian, "stream", _shared_by_agents, AGENTS),
    Mistake(
        "a claim that does not follow",
        Gaussian,
        "mu",
        lambda right: property(lambda self: 0.9 * right.fget(self)),
        "calibration: μ of the matrices",
    ),
    Mistake("calibrated to 10 δ", Budget, "calibrate", _calibrated(_ten_delta), ASKED),
    Mistake(
        "calibrated to 2 μ",
        Budget,
        "calibrate",
        _calibrated(lambda made, _budget: replace(made, base_sd=made.base_sd / 2)),
        ASKED,
    ),
    Mistake("contexts unclipped", Bounds, "clip", _context_unclipped, SENSITIVITY),
    Mistake("rewards unclipped below", Bounds, "clip", _unclipped_below, SENSITIVITY),
    Mistake("clipping that stops after 100 records", StreamPrivatizer, "_clip", _clipping_stops, AGENTS),
    Mistake(
        "a flat diagonal",
        Bounds,
        "entry_scale",
        lambda _right: lambda _self, dimension: np.ones(dimension * (dimension + 3) // 2),
        SENSITIVITY,
        options=_ADD,
    ),
    Mistake("a record in two leaves", StreamPrivatizer, "release", _in_two_leaves, AGENTS),
    Mistake("the last record again in the next leaf", StreamPrivatizer, "_enter", _last_again, AGENTS),
    Mistake("the mean of the data taken off", StreamPrivatizer, "_enter", _mean_taken_off, AGENTS),
    Mistake(
        "a centre that depends on data",
        StreamPrivatizer,
        "_enter",
        _centred_at_the_mean,
        AGENTS,
        options={"centring": BOX, "intercept": False},
    ),
    Mistake("a reward that enters twice", Agent, "_enter", _entered_twice, AGENTS),
    Mistake("a count of positive rewards only", StreamPrivatizer, "_enter", _positive_counted, COUNTS),
    Mistake("a stored leaf that enters twice", StoredLedger, "position", _leaf_read_twice, AGENTS),
    Mistake(
        "noise scaled by the leaf's count beyond 2 records",
        StreamPrivatizer,
        "_noise_of",
        _noise_changed(_by_count),
        AGENTS,
    ),
    Mistake(
        "exact sums that leak at 1e-9, before the grid",
        StreamPrivatizer,
        "_noise_of",
        _noise_changed(lambda privatizer, _number, right: right + 1e-9 * privatizer._position.total),
        AGENTS,
    ),
    Mistake(
        "exact sums that leak at 1e-9, after the grid",
        StreamPrivatizer,
        "_make",
        _leak_below_the_grid,
        AGENTS,
    ),
    Mistake("no grid", StreamPrivatizer, "__init__", _without_grid, AGENTS),
    Mistake(
        "a last release without noise beyond 2 048",
        StreamPrivatizer,
        "_noise_of",
        _noise_changed(_silent_end),
        AGENTS,
        releases=2_100,
        options={"mechanism": "tree"},
    ),
    Mistake("fresh noise for a repeated release", StreamPrivatizer, "release", _fresh_when_repeated, AGAIN),
    Mistake("records that enter an interrupted release", StreamPrivatizer, "_finish", _late_records, AGENTS),
    Mistake("noise that begins again when opened", StreamPrivatizer, "_noise_of", _begun_again, AGENTS),
    Mistake("noise reused at lag 2", KeyedNoise, "__call__", _number(lambda n: n - _LAG[n % 4]), ALIKE),
    Mistake("release number mod 16", KeyedNoise, "__call__", _number(lambda n: n % 16), ALIKE),
    Mistake("noise that ignores its place", KeyedNoise, "__call__", _place(lambda _place: b""), ALIKE),
    Mistake("a place of 8 bytes", KeyedNoise, "__call__", _place(lambda place: place[:8]), ALIKE),
    Mistake(
        "places without salt",
        ledger,
        "next_place",
        lambda right: lambda before, _salt, content: right(before, b"", content),
        ALIKE,
    ),
    Mistake(
        "places without their data",
        ledger,
        "next_place",
        lambda right: lambda before, salt, _content: right(before, salt, b""),
        ALIKE,
    ),
    Mistake("one constant key", KeyedNoise, "__init__", _made_for(key=lambda _key: bytes(32)), ALIKE),
    Mistake("keys of 16 bits", noise, "new_key", _sixteen_bits, KEYS),
    Mistake(
        "16 bits of the key", KeyedNoise, "__init__", _made_for(key=lambda key: key[:2] + bytes(30)), ALIKE
    ),
    Mistake(
        "one key for all stored agents", persistence, "new_key", lambda _right: lambda: bytes(32), STORED
    ),
    Mistake("one noise for all runs", KeyedNoise, "__init__", _made_for(run=lambda _run: ""), ALIKE),
    Mistake("one noise for all agents", KeyedNoise, "__init__", _made_for(agent=lambda _name: ""), ALIKE),
    Mistake("names cut to 8 letters", KeyedNoise, "__init__", _made_for(agent=lambda name: name[:8]), ALIKE),
    Mistake(
        "names cut to 64 letters", KeyedNoise, "__init__", _made_for(agent=lambda name: name[:64]), ALIKE
    ),
    Mistake("names lower-cased", KeyedNoise, "__init__", _made_for(agent=str.lower), ALIKE),
    Mistake("runs lower-cased", KeyedNoise, "__init__", _made_for(run=str.lower), ALIKE),
    Mistake("draws of sd 0.9", KeyedNoise, "__call__", _draws(lambda z: 0.9 * z), "draws: sd"),
    Mistake(
        "uniform draws",
        KeyedNoise,
        "__call__",
        _draws(lambda z: (2 * ndtr(z) - 1) * math.sqrt(3)),
        "draws: distance to the normal",
    ),
    Mistake("tails cut at 2.5 sd", KeyedNoise, "__call__", _draws(lambda z: np.clip(z, -2.5, 2.5)), TAILS),
    Mistake("tails cut at 3 sd", KeyedNoise, "__call__", _draws(lambda z: np.clip(z, -3, 3)), TAILS),
    Mistake(
        "tails folded at 3 sd",
        KeyedNoise,
        "__call__",
        _draws(lambda z: np.where(np.abs(z) > 3, z / 2, z)),
        TAILS,
    ),
    Mistake("draws correlated at lag 2", KeyedNoise, "__call__", _correlated, "draws: correlation in time"),
    Mistake(
        "a schedule that looks at the data",
        Options,
        "private",
        _same,
        "schedule: fixed before the first record",
        options={"algorithm": "b1"},
    ),
    Mistake(
        "a row without noise",
        StreamPrivatizer,
        "_noise_of",
        _noise_changed(_row_without_noise),
        ROWS,
        options=_SECURE,
    ),
    Mistake(
        "1/h of the noise in the place of 1/h of its variance",
        NoiseShare,
        "noise",
        lambda _right: property(lambda self: 1.0 / self.honest),
        ROWS,
        options=_SECURE,
    ),
    Mistake(
        "shares that hide 32 bits",
        shares,
        "expand",
        lambda right: lambda seed, entries: right(seed, entries) & np.uint64(0xFFFFFFFF),
        HIDING,
        options=_SECURE,
    ),
    Mistake(
        "seeds of shares that are not random",
        rows,
        "derive",
        lambda right: lambda _secret, label: right(bytes(32), label),
        SEEDS,
        options=_SECURE,
    ),
    Mistake(
        "a round that is opened twice",
        protocol_checks,
        "open_round",
        _opened_again,
        ONCE,
        options=_SECURE,
    ),
    Mistake(
        "rows that are misaligned after a missed round",
        SecureMember,
        "_make_row",
        _missed_round_left_out,
        TOTALS,
        options=_SECURE,
    ),
    Mistake(
        "rows that count a leaf twice", SecureMember, "_integers", _leaves_twice, TOTALS, options=_SECURE
    ),
    Mistake(
        "a frozen leaf that moves into the next epoch",
        agent_module,
        "carry_over",
        _frozen_leaves_too,
        EPOCHS,
        options=_SECURE,
    ),
)


@dataclass(frozen=True)
class Score:
    """How many mistakes are detected. `failed` has the checks that failed for each of them, by name."""

    failed: dict[str, tuple[str, ...]]

    @property
    def caught(self) -> int:
        """Number of mistakes that it detects by the check that is made for them."""
        return sum(each.caught_by(self.failed[each.name]) for each in MISTAKES)

    @property
    def ok(self) -> bool:
        """Whether it detects all."""
        return self.caught == len(self.failed)

    def __str__(self) -> str:
        lines = []
        for each in MISTAKES:
            failed = self.failed[each.name]
            verdict = "caught" if each.caught_by(failed) else "MISSED"
            lines.append(f"{verdict}  {each.name}  ({'; '.join(failed) or 'nothing failed'})")
        total = len(self.failed)
        share = self.caught / total
        return "\n".join(
            [*lines, f"mutation score: {self.caught} of {total} mistakes detected ({share:.0%})"]
        )


def self_test(*, seed: int = 0) -> Score:
    """Insert each mistake in turn, and look for it."""
    return Score(
        {
            mistake.name: mistake.audit(seed=seed).failed if mistake.by_audit else mistake.whole(seed=seed)
            for mistake in MISTAKES
        }
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count the known mistakes that are detected.")
    parser.add_argument("--seed", type=int, default=0, help="seed of the audits")
    score = self_test(seed=parser.parse_args(arguments).seed)
    print(score)
    return 0 if score.ok else 1


if __name__ == "__main__":
    sys.exit(main())
