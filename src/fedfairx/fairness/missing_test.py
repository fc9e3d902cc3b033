"""A test for missing rewards: whether more of them are missing for one action or group than for the others.

It rests on the draw alone. If it does not depend on the action whether a reward comes, then the action of a
decision without a reward was drawn from the policy π, like that of any other. So for λ fixed before the draw

    exp(λ 1[drawn: a]) / (1 + π(a)(exp(λ) - 1))

has mean 1, with one λ > 0 for decisions without a reward and another λ < 0 for those with one, and products
over decisions are martingales. It does not matter how many rewards are missing in all, nor whether that
changes with time or from one context to another, nor whether an action is new. The evidence is a weighted sum
of such products, over several pairs of λ and over the batch at which the difference begins. It is bounded,
which leaves it a supermartingale, so that it soon falls once rewards come again. By Ville's inequality it
ever reaches 1/error with probability at most `error`.

Of several slots only the expected weight e(a) of each action is known. An action that gets the weight X, at
most u, multiplies by exp(λX/u), whose mean is at most 1 + (e/u)(exp(λ) - 1). Where some slots of a decision
have a reward and others have none, X counts the latter only, which makes the mean less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fedfairx.fairness.confidence_sequences import spending
from fedfairx.fairness.decision_log import Block, Codes, Labels, Logged, gather
from fedfairx.fairness.totals import Sets
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import counted, number

ERROR = 0.01  # the probability, at most, of any alarm if rewards are missing for all actions alike
BATCH = 32  # decisions after which a difference may begin
#: Parts without a reward, of the others and of the action. A difference of some percent only is no evidence.
PARTS: Array = np.array(
    [
        *((0.02, 0.2), (0.02, 0.5), (0.02, 0.98)),
        *((0.1, 0.3), (0.1, 0.6), (0.1, 0.99)),
        *((0.3, 0.5), (0.3, 0.75), (0.3, 0.99)),
        *((0.6, 0.8), (0.6, 0.99), (0.85, 0.99)),
    ]
)
_WITHOUT: Array = np.log(PARTS[:, 1] / PARTS[:, 0])  # λ of decisions without a reward
_WITH: Array = np.log((1.0 - PARTS[:, 1]) / (1.0 - PARTS[:, 0]))  # λ of those with one
_BOUND = 2.0 * len(PARTS)  # of a product, in units of what is needed: one large one is enough


@dataclass(frozen=True)
class Missing:
    """An action or group whose rewards are missing more often than those of the others.

    kind: "action" or "group".
    shown: how often it was shown, since the evidence began.
    came: how many of these were answered, by a reward or a withdrawal, in time.
    others: the part of the others that was; None if there were none.
    """

    kind: str
    name: str
    shown: int
    came: int
    others: float | None

    def __str__(self) -> str:
        came = "none" if self.came == 0 else number(self.came)
        others = "" if self.others is None else f"; others {100 * self.others:.0f} %"
        return f"{self.name}: {counted(self.shown, 'decision')}, {came} with a reward{others}"


class _Evidence:
    """The evidence of all actions, or of all groups; each is looked at in the batches that it is in."""

    def __init__(self, error: float) -> None:
        self._error = error
        self._labels = Labels()
        self._logs = np.zeros((0, len(PARTS)))  # ln of the products, summed over beginnings
        self._batches = np.zeros(0)
        self._counts = np.zeros((0, 2))  # shown and came, since the evidence began
        self._before = np.zeros((0, 2))  # those of all, when it began
        self._total = np.zeros(2)
        self._needed = np.zeros(0)
        self._evidence = np.zeros(0)

    def take(self, batch: Iterable[tuple[Block, Codes]], names: Iterable[str]) -> None:
        """Take the blocks of a batch, with the codes of their actions or groups among `names`."""
        numbers = self._labels.row(tuple(names))
        if not numbers.size:
            return
        self._grow()
        products, counts = np.ones((len(numbers), len(PARTS))), np.zeros((len(numbers), 2))
        tilts, there = np.zeros((len(numbers), len(PARTS))), np.zeros(len(numbers), dtype=np.bool_)
        for block, codes in batch:
            came = np.isfinite(block.rewards)
            whole = np.asarray(came.all(axis=1))
            sets = Sets.of(codes)
            most = sets.most(block.weights)
            chance = (sets.of_sets(block.policy) / most)[sets.first]
            code = codes[sets.first]
            row = np.broadcast_to(np.arange(len(codes))[:, None], codes.shape)
            order = np.argsort(code, kind="stable")
            ordered, chance, answered = code[order], chance[order], whole[row[sets.first]][order]
            if ordered.size:
                starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
                there[ordered[starts]] = True
                for k, (rise, fall) in enumerate(zip(np.expm1(_WITHOUT), np.expm1(_WITH), strict=True)):
                    factors = 1.0 + chance * np.where(answered, fall, rise)
                    products[ordered[starts], k] *= np.multiply.reduceat(factors, starts)
            rows = np.broadcast_to(np.arange(len(codes))[:, None], block.taken.shape)
            taken = codes[rows, block.taken]
            shown = taken >= 0
            size = len(numbers)
            counts[:, 0] += np.bincount(taken[shown], minlength=size)
            counts[:, 1] += np.bincount(taken[shown & came], minlength=size)
            self._total += shown.size, came.sum()
            got = block.weights / most[rows, block.taken]
            for which, tilt in ((shown & whole[:, None], _WITH), (shown & ~came, _WITHOUT)):
                tilts += np.bincount(taken[which], got[which], size)[:, None] * tilt
        self._add(numbers[there], (tilts - np.log(products))[there], counts[there])

    def _grow(self) -> None:
        more = len(self._labels.numbers) - len(self._batches)
        if more:
            self._logs = np.pad(self._logs, ((0, more), (0, 0)), constant_values=-np.inf)
            self._batches = np.pad(self._batches, (0, more))
            self._evidence = np.pad(self._evidence, (0, more))
            self._counts = np.pad(self._counts, ((0, more), (0, 0)))
            self._before = np.vstack([self._before, np.tile(self._total, (more, 1))])
            self._needed = 1.0 / (self._error * spending(len(self._batches)))

    def _add(self, at: Codes, growth: Array, counts: Array) -> None:
        self._batches[at] += 1.0
        n = self._batches[at][:, None]
        bound = np.log(_BOUND * self._needed[at])[:, None]
        begun = np.logaddexp(self._logs[at], -np.log(n * (n + 1.0)))  # weights of beginnings sum to 1
        self._logs[at] = np.minimum(begun + growth, bound)
        self._evidence[at] = np.exp(self._logs[at]).mean(axis=1) + 1.0 / (n[:, 0] + 1.0)
        self._counts[at] += counts
        none = at[self._evidence[at] <= 1.0]
        self._counts[none], self._before[none] = 0.0, self._total

    def found(self, kind: str) -> Iterator[Missing]:
        names = list(self._labels.numbers)
        for k in np.flatnonzero(self._evidence >= self._needed):
            shown, came = self._counts[k]
            others, of_others = self._total - self._before[k] - self._counts[k]
            part = float(of_others / others) if others else None
            yield Missing(kind, names[k], int(shown), int(came), part)


class MissingTest:
    """The test, batch by batch, for all actions and groups together."""

    def __init__(self) -> None:
        self._of = {kind: _Evidence(0.5 * ERROR) for kind in ("action", "group")}

    def add(self, log: Iterable[Logged]) -> None:
        """Take a batch of at most `BATCH` decisions; a `reward` is any number if it came in time, else None.

        A decision that was withdrawn counts as one whose reward came: nothing is waited for.
        """
        blocks = gather(log)
        both = [(block, block.names) for block in blocks.blocks], [(b, b.groups) for b in blocks.blocks]
        labels = blocks.names.numbers, blocks.groups.numbers
        for evidence, batch, names in zip(self._of.values(), both, labels, strict=True):
            evidence.take(batch, names)

    def found(self) -> list[Missing]:
        """Those whose rewards are missing, at an error of at most `ERROR` for all of them at all times."""
        return [each for kind, evidence in self._of.items() for each in evidence.found(kind)]
