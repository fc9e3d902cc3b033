"""How far the rounds of a member are, and who is waited for: a function of its state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedfairx.federation.aggregation.machine import CLOCKS, State
from fedfairx.federation.aggregation.records import Part
from fedfairx.federation.aggregation.shares import as_integers, from_bytes

_WAITED_FOR = {
    "keys": "key",
    "acceptances": "acceptance",
    "signs": "sign of life",
    "rows": "row",
    "partials": "partial",
}


@dataclass(frozen=True)
class Progress:
    """How far the rounds are, and who is waited for.

    epoch: the epoch that this member is in, by the version of its roster; 0 before its first.
    due: the last round of that epoch whose time has come; 0 before the first.
    since: when that was, or when the rounds began, in seconds since 1970.
    sent: the last round of which this member has made its row.
    opened: the last round whose total is known; 0 before the first.
    records: number of all members' records in it, without those of earlier epochs.
    next_time: when the next round begins, in seconds since 1970; None after the last.
    unconfirmed: why this member has not accepted the roster, mostly whom its operator has to confirm;
        empty if it has.
    keys, acceptances: openers without a key, and members that have not accepted the epoch of the roster,
        before it begins.
    signs: members without a sign of life, while the row of the round that is due is not made.
    rows: for an opener, members without a row of the round that is due, or with one of a round that is far
        from due. Other members do not see rows.
    partials: openers without their part of the round that is due.
    """

    epoch: int = 0
    due: int = 0
    since: int = 0
    sent: int = 0
    opened: int = 0
    records: int = 0
    next_time: int | None = None
    unconfirmed: str = ""
    keys: tuple[str, ...] = ()
    acceptances: tuple[str, ...] = ()
    signs: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    partials: tuple[str, ...] = ()

    def without_names(self) -> Progress:
        """The same without anybody who is waited for: nobody knows that while the transport is away."""
        return replace(self, keys=(), acceptances=(), signs=(), rows=(), partials=())

    @property
    def waits_for(self) -> dict[str, str]:
        """Whom the next total, or the next epoch, waits for, and for what of theirs."""
        waits: dict[str, str] = {}
        for field, what in _WAITED_FOR.items():
            for name in getattr(self, field):
                waits.setdefault(name, what)
        return waits


def progress_of(state: State, now: float) -> Progress:
    """The progress of a member at a time."""
    part, draft, following = state.record.part, state.draft, state.next
    rounds = part.rounds if part is not None else None if draft is None else draft.rounds
    if rounds is None:
        return Progress()
    due = rounds.number(now)
    reached = Progress(
        due=due,
        since=rounds.times[due - 1] if due else rounds.begin,
        next_time=rounds.next_time(now),
        unconfirmed=state.unconfirmed,
        keys=state.lacking,
        acceptances=()
        if following is None
        else tuple(name for name in following.members if name not in state.accepted),
    )
    if part is None:
        return reached
    total = part.total
    reached = replace(
        reached,
        epoch=part.epoch.number,
        sent=part.last,
        opened=part.total_round,
        records=0 if total is None else int(as_integers(from_bytes(total.values))[-1]),
        unconfirmed=state.unconfirmed or part.epoch.unconfirmed(state.confirmed),
    )
    if reached.opened >= due:
        return reached
    if part.last < due:
        others = [name for name in part.epoch.members if name != state.identity.name]
        silent = tuple(name for name in others if name not in state.alive)
        if silent:
            return replace(reached, signs=silent)
    rows = _without_row(state, part, due, now)
    partials = () if rows else _without_partial(state, part, due)
    return replace(reached, rows=rows, partials=partials)


def latest_rows(state: State) -> dict[str, int]:
    """The round of each member's latest row, as far as this member knows."""
    part, rounds = state.record.part, {}
    if part is not None:
        opened = 0 if state.opened is None else state.opened.number
        rounds = dict.fromkeys(part.epoch.members, max(part.total_round, opened))
        for number, rows in state.rows.items():
            for name in rows:
                rounds[name] = max(rounds[name], number)
        rounds[state.identity.name] = part.last
    return rounds


def _without_row(state: State, part: Part, due: int, now: float) -> tuple[str, ...]:
    name, future = state.identity.name, part.rounds.number(now + CLOCKS)
    rounds = latest_rows(state)
    if name not in part.epoch.openers:
        rounds = {name: rounds[name]}
    return tuple(name for name in rounds if not due <= rounds[name] <= future)


def _without_partial(state: State, part: Part, due: int) -> tuple[str, ...]:
    shown = {name for number, partials in state.partials.items() if number >= due for name in partials}
    return tuple(name for name in part.epoch.openers if name not in shown)
