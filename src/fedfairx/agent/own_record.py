"""Which names of actions have an own record, and their tallies (`core.own_record`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import NamedTuple

import numpy as np

from fedfairx.agent.state import NamesState
from fedfairx.core.own_record import CONTEXTS, RECORDS, REWARDS, subtract
from fedfairx.errors import StateError
from fedfairx.util.arrays import Array, Coordinates

#: Names that come with decisions and have a record, at most, and those that were shown once.
MOST_NAMES = 10_000
#: So many of them are forgotten at once: those not shown for longest.
FORGOTTEN = 1_000
MANY = 100  # names whose places are kept for the next time
_FEWEST = 8  # rows that are made at first


class OwnRecord(NamedTuple):
    """What an agent knows of a name beside features.

    rewards: how many it got, where they count less by age their weights.
    effect: by how much its expected reward differs from that of others with the same features.
    sd: standard deviation of `effect`.
    weight: from 0 to 1, how far its own record counts, and not the features alone.
    """

    rewards: float
    effect: float
    sd: float
    weight: float


class OwnRecords:
    """The tallies of names.

    declared: whether names are those of `Agent(actions=…)`; else a name has a record from the second time
        that it is shown on.
    ratio: ρ, the variance of rewards over that of what names differ by.

    mine: tallies (n, d + 2) of the agent's own records, by place; rows beyond the last place are zeros.
    used: tallies that decisions come from: `mine`, or these and those of partners who are alike.
    sent: tallies of what is in the agent's releases: `mine`, unless these clip records.
    known: whether decisions use own records: if names were declared, or one has a record.
    """

    def __init__(self, dimension: int, *, declared: bool, ratio: float, clips: bool = False) -> None:
        self.declared = declared
        self.ratio = ratio
        self.places: dict[str, int] = {}
        self.once: dict[str, None] = {}  # names shown once, the oldest first
        self.shown_at: list[int] = []  # by place: the number of the decision that showed it last
        self.mine = self.used = self.sent = np.zeros((_FEWEST, dimension + CONTEXTS))
        if clips:
            self.sent = self.mine.copy()
        self.known = declared
        self._looked_up: tuple[Sequence[str], Coordinates] | None = None
        self._integers: dict[int, tuple[Coordinates, Callable[..., None]]] = {}  # by their number

    # --- names ---------------------------------------------------------------------------------------

    def add(self, names: Iterable[str]) -> None:
        """Give names a record, of which nothing is known."""
        for name in names:
            if name not in self.places:
                self.places[name] = len(self.places)
                self.shown_at.append(-1)
        self._looked_up = None
        missing = len(self.places) - len(self.mine)
        if missing > 0:
            self._replace(lambda rows: np.pad(rows, ((0, max(missing, len(rows))), (0, 0))))

    def show(self, names: Iterable[str], number: int) -> bool:
        """Note that a decision of this number shows these names; whether some must be forgotten now."""
        for name in () if self.declared else names:  # declared ones are never forgotten
            place = self.places.get(name)
            if place is not None:
                self.shown_at[place] = number
            elif name in self.once:
                del self.once[name]
                self.add([name])
                self.shown_at[-1] = number
            else:
                self.once[name] = None
                if len(self.once) > MOST_NAMES:
                    del self.once[next(iter(self.once))]
        return self.too_many

    @property
    def too_many(self) -> bool:
        """Whether names must be forgotten."""
        return not self.declared and len(self.places) > MOST_NAMES

    def oldest(self) -> list[str]:
        """The names that were not shown for longest."""
        names = list(self.places)
        return [names[place] for place in sorted(np.argsort(self.shown_at, kind="stable")[:FORGOTTEN])]

    def forget(self, names: Iterable[str]) -> None:
        """Forget these names; their records stay among those of features."""
        gone = set(names)
        kept = [(name, place) for name, place in self.places.items() if name not in gone]
        rows = [place for _, place in kept]
        self.shown_at = [self.shown_at[place] for place in rows]
        self.places = {name: place for place, (name, _) in enumerate(kept)}
        self._looked_up = None
        self._replace(lambda tallies: np.pad(tallies[rows], ((0, _FEWEST), (0, 0))))

    def places_of(self, names: Sequence[str]) -> Coordinates:
        """Places (K,) of names; below 0, and the same for the same name, where there is no record.

        The next call may overwrite the array.
        """
        if self._looked_up is not None and self._looked_up[0] is names:  # all declared ones, as last time
            return self._looked_up[1]
        places = self.places
        try:
            numbers = [places[name] for name in names]
        except KeyError:
            new: dict[str, int] = {}
            numbers = [
                places[name] if name in places else -1 - new.setdefault(name, len(new)) for name in names
            ]
        if len(numbers) > MANY:
            self._looked_up = names, np.array(numbers, dtype=np.int64)
            return self._looked_up[1]
        rows, write = self._integers.get(len(numbers)) or self._make_integers(len(numbers))
        write(*numbers)
        return rows

    def _make_integers(self, count: int) -> tuple[Coordinates, Callable[..., None]]:
        """An array of so many integers, and what writes them in half of the time that NumPy takes."""
        rows = np.empty(count, dtype=np.int64)
        self._integers[count] = rows, partial(Struct(f"={count}q").pack_into, rows.data.cast("B"), 0)
        return self._integers[count]

    # --- tallies -------------------------------------------------------------------------------------

    def _replace(self, change: Callable[[Array], Array]) -> None:
        same, all_sent = self.used is self.mine, self.sent is self.mine
        self.mine = change(self.mine)
        self.used = self.mine if same else change(self.used)
        self.sent = self.mine if all_sent else change(self.sent)
        self._look()

    def _look(self) -> None:
        self.known = self.declared or bool(self.used[:, RECORDS].any())

    def grow(self, dimension: int) -> None:
        """Add columns of contexts, which were 0 before."""
        self._replace(lambda rows: np.pad(rows, ((0, 0), (0, dimension + CONTEXTS - rows.shape[1]))))

    def decay(self, factor: float) -> None:
        """Let all records so far count less by this factor."""
        self._replace(lambda rows: rows * factor)

    @staticmethod
    def add_record(row: Array, weight: float, context: Array, reward: float) -> None:
        """Add a record to the tally of a name; learning adds it to the one that is used."""
        row[RECORDS] += weight * weight
        row[REWARDS] += weight * reward
        row[CONTEXTS:] += weight * weight * context

    def share(self, theirs: Iterable[tuple[Mapping[str, Array], float]]) -> None:
        """Use partners' tallies by name, each times a weight, beside the agent's own."""
        used, copied = self.mine, False
        for tallies, weight in theirs:
            self.add(tallies)
            if tallies and not copied:
                used, copied = self.mine.copy(), True
            if len(used) < len(self.mine):
                used = np.pad(used, ((0, len(self.mine) - len(used)), (0, 0)))
            for name, row in tallies.items():
                used[self.places[name]] += weight * row
        self.used = used if copied else self.mine
        self._look()

    def hold(self) -> tuple[int, Array | None]:
        """What `take_back` needs."""
        return len(self.places), None if self.used is self.mine else self.used

    def take_back(self, before: tuple[int, Array | None]) -> None:
        """Undo `share`."""
        count, used = before
        while len(self.places) > count:
            self.places.popitem()
            self.shown_at.pop()
        self._looked_up = None
        self.used = self.mine  # which may have got more rows meanwhile, and keeps them
        if used is not None:
            self.used = np.pad(used, ((0, len(self.mine) - len(used)), (0, 0)))
        self._look()

    def whitened(self, packed: Array, *, used: bool = False) -> Array:
        """Plain sums (q,) that are sent, or used, with what names have in common integrated out."""
        white = packed.copy()
        subtract(white, self.used if used else self.sent, self.ratio)
        return white

    # --- its value -----------------------------------------------------------------------------------

    def state(self) -> NamesState:
        """All of it, as plain values."""
        used = None if self.used is self.mine else _listed(self.used)
        sent = None if self.sent is self.mine else _listed(self.sent)
        names, once = list(self.places), list(self.once)
        return NamesState(self.ratio, names, list(self.shown_at), once, _listed(self.mine), used, sent)

    def restore(self, state: NamesState, dimension: int) -> None:
        """Put a state in place."""
        different = len({*state.names, *state.once}) == len(state.names) + len(state.once)
        if not (different and len(state.shown_at) == len(state.names) and state.ratio > 0.0):
            raise StateError("records must be of different names, and have a positive ratio")
        self.places, self.shown_at, self._looked_up = {}, [], None
        self.mine = self.used = self.sent = np.zeros((_FEWEST, dimension + CONTEXTS))
        self.add(state.names)
        self.shown_at = list(state.shown_at)
        self.once, self.ratio = dict.fromkeys(state.once), state.ratio
        size = self.mine.shape
        self.mine = _rows(state.mine, size)
        self.used = self.mine if state.used is None else _rows(state.used, size)
        self.sent = self.mine if state.sent is None else _rows(state.sent, size)
        self._look()

    def by_name(self) -> dict[str, Array]:
        """Tallies that are sent, of names with a record."""
        sent = self.sent
        return {name: sent[place].copy() for name, place in self.places.items() if sent[place, 0] > 0.0}


def _listed(tallies: Array) -> list[list[float]]:
    """The rows that are not zero, each with its place before it."""
    return [[float(place), *tallies[place].tolist()] for place in np.flatnonzero(tallies.any(axis=1))]


def _rows(listed: list[list[float]], shape: tuple[int, ...]) -> Array:
    """The tallies that `_listed` has listed."""
    tallies = np.zeros(shape)
    for place, *numbers in listed:
        if len(numbers) != shape[1] or not (place.is_integer() and 0 <= place < shape[0]):
            raise StateError("records must have tallies of the size of contexts, at the places of names")
        tallies[int(place)] = numbers
    return tallies
