"""Checks of what enters an agent: contexts, rewards, privatizers and messages, before anything changes.

Error text names shapes, types and counts. It never holds a context or a reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.agent.actions import is_utf8
from fedfairx.core.agent_kernels import LARGEST
from fedfairx.core.own_record import CONTEXTS, RECORDS
from fedfairx.core.slates import ONE, Weights
from fedfairx.core.statistics import packed_size, unpack
from fedfairx.decision import DecisionNote
from fedfairx.errors import InvalidInput, MessageRefused, OlderCopy, require
from fedfairx.privacy import Guarantee, NonPrivateSums, Privatizer, Release
from fedfairx.privacy.privatizers.consecutive import require_same_neighbours
from fedfairx.util.arrays import Array, as_floats, not_finite, not_numbers
from fedfairx.util.places import inside, place

FLOAT = np.dtype(np.float64)  # a singleton: `is` is faster than ==
ROUNDING = 1e-10  # of exact sums, relative to their trace, and much more than it is
TINY = 1e-100  # where that is 0


def as_contexts(
    contexts: ArrayLike, dimension: int, *, constant: float = 0.0, point: Array | None = None
) -> Array:
    """Convert to a (K, d) array for compiled code, which checks itself that the numbers are finite.

    constant: of an intercept, the last column, which a caller leaves out; a log has it.
    point: the public point that contexts with an intercept are taken around; those of a log are.
    """
    if type(contexts) is np.ndarray and contexts.dtype is FLOAT and contexts.flags.carray:
        shape = contexts.shape  # the usual case
        if len(shape) == 2 and shape[1] == dimension and shape[0] > 0 and not constant:
            return contexts
    given = dimension - bool(constant)
    if contexts is None:
        raise InvalidInput(f"contexts must be given: an array of shape (K, {given})")
    rows = as_floats(contexts)
    if rows is None:
        raise not_numbers("contexts", contexts)
    if constant and rows.ndim == 2 and rows.shape[1] == given and rows.shape[0] > 0:
        return np.column_stack([rows if point is None else rows - point, np.full(len(rows), constant)])
    entered = rows.ndim == 2 and rows.shape[1] == dimension and not (rows[:, -1:] - constant).any()
    if rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] != dimension or (constant and not entered):
        raise InvalidInput(
            f"contexts must have shape (K, {given}) with K >= 1, got contexts=array of shape {rows.shape}"
        )
    # Numba would compile another version for read-only or unaligned arrays, which takes seconds.
    return rows if rows.flags.carray else rows.copy()


def as_sound_contexts(
    contexts: ArrayLike, dimension: int, *, constant: float = 0.0, point: Array | None = None
) -> Array:
    """`as_contexts`, checked to be finite, for callers that need to know before compiled code runs."""
    rows = as_contexts(contexts, dimension, constant=constant, point=point)
    if not (np.abs(rows) <= LARGEST).all():
        raise not_finite("contexts", rows, LARGEST)
    return rows


def is_whole(contexts: object, dimension: int) -> bool:
    """Whether this is a (B, K, d) array of floats."""
    is_array = type(contexts) is np.ndarray and contexts.dtype is FLOAT and contexts.ndim == 3
    return is_array and 0 not in contexts.shape and contexts.shape[2] == dimension  # type: ignore[attr-defined]


def as_blocks(
    blocks: Sequence[ArrayLike] | Array,
    dimension: int,
    *,
    constant: float = 0.0,
    point: Array | None = None,
) -> list[Array] | Array:
    """`as_sound_contexts` of each, as one (B, K, d) array if all are of the same size."""
    if is_whole(blocks, dimension - bool(constant)):
        whole = np.ascontiguousarray(blocks)
        if constant:
            whole = whole if point is None else whole - point
            whole = np.concatenate([whole, np.full((*whole.shape[:2], 1), constant)], axis=2)
    else:
        rows = []
        for index, block in enumerate(blocks):
            try:
                rows.append(as_sound_contexts(block, dimension, constant=constant, point=point))
            except InvalidInput as error:
                raise in_block(index, error) from None
        if len({each.shape for each in rows}) != 1:
            return rows
        whole = np.array(rows)
    if not (np.abs(whole) <= LARGEST).all():
        raise not_finite("contexts", whole, LARGEST)
    return whole if whole.flags.carray else whole.copy()


def in_block(index: int, error: InvalidInput) -> InvalidInput:
    """The error of one of several decisions, whose contexts or actions are `contexts[index]`."""
    outer, text = place("contexts", index), str(error)
    if text.startswith("contexts"):
        return InvalidInput(f"{outer}{text.removeprefix('contexts')}")
    return inside(outer, error)


def as_names(names: Sequence[str], arms: int) -> list[str]:
    """Check that there is a name for each action."""
    as_list = [] if isinstance(names, str) else list(names)
    try:
        "".join(as_list)  # the fastest way to see whether all are texts
        texts = True
    except TypeError:
        texts = False
    rule = f"must be {arms} strings, one for each action"
    require(texts and len(as_list) == arms, "names", rule, len(as_list))
    return as_list


def as_baseline(baseline: object, arms: int, weights: Weights) -> int | list[int]:
    """Check the row of a baseline's action or, for several slots, its rows in their order."""
    several, slots = weights is not ONE, len(weights)
    rows: Any = baseline if several else [baseline]
    are_rows = isinstance(rows, list | tuple | np.ndarray) and len(rows) == slots
    are_rows = are_rows and all(
        isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < arms for row in rows
    )
    text = f"must be a row of the contexts, 0 to {arms - 1}"
    if several:
        text = f"must be a list of {slots} different rows, one for each slot, from 0 to {arms - 1}"
    require(are_rows and len(set(rows)) == slots, "baseline", text, baseline)
    return [int(row) for row in rows] if several else int(rows[0])


def as_note(note: DecisionNote | None, arms: int, weights: Weights) -> DecisionNote | None:
    """The note with its baseline, if any, as `as_baseline` converts it."""
    if note is None or note.baseline is None:
        return note
    return note._replace(baseline=as_baseline(note.baseline, arms, weights))


def as_reward(reward: float) -> float:
    """Convert to a float, which may still be one that must not be learnt from."""
    text = f"reward must be a number, got reward of type {type(reward).__name__}"
    if isinstance(reward, str | bytes) or np.iscomplexobj(reward):  # NumPy would drop the imaginary part
        raise InvalidInput(text)
    try:
        return float(reward)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        raise InvalidInput(text) from None


def as_rewards(rewards: Iterable[float], count: int, check: Callable[[float], float]) -> list[float]:
    """Convert `count` rewards by `check`; the error names the first bad one by its index."""
    try:
        as_list = list(rewards)
    except TypeError:
        raise InvalidInput(f"rewards must be {count} numbers, got {type(rewards).__name__}") from None
    require(len(as_list) == count, "rewards", f"must be as many as the {count} records", len(as_list))
    values = []
    for index, reward in enumerate(as_list):
        try:
            values.append(check(reward))
        except InvalidInput as error:
            raise InvalidInput(f"{error} in row {index}") from None
    return values


def as_persons(persons: Iterable[str | int] | None, count: int) -> Sequence[str | int | None]:
    """A person for each of `count` records, or None for all of them."""
    if persons is None:
        return [None] * count
    whose = list(persons)
    require(len(whose) == count, "persons", f"must be as many as the {count} decisions", len(whose))
    require(all(person is not None for person in whose), "persons", "must all be given", "None among them")
    return whose


def as_row_weights(weights: Iterable[float], rows: int) -> Array:
    """The weight of the slot that each of `rows` rows of a log was shown in."""
    numbers = as_floats(list(weights) if isinstance(weights, Iterable) else weights)
    are_weights = (
        numbers is not None and numbers.shape == (rows,) and bool(((numbers >= 0) & (numbers <= 1)).all())
    )
    require(are_weights, "weights", f"must be {rows} numbers from 0 to 1, one for each row", "something else")
    assert numbers is not None
    return numbers


def check_next_run(
    privatizer: Privatizer, *, before: Guarantee, dimension: int, intercept: bool, name: str
) -> None:
    """Check the privatizer of an agent's next run, after one that claimed `before`."""
    check_privatizer(privatizer, dimension=dimension, intercept=intercept, name=None)
    owner = privatizer.owner
    require(owner in (None, name), "privatizer", f"must have noise that was made for {name!r}", owner)
    after = privatizer.guarantee
    exact = isinstance(privatizer, NonPrivateSums) or (math.isinf(after.mu) and math.isfinite(before.mu))
    same = not exact and after.decide_from == before.decide_from
    require(same, "privatizer", f"must be private and decide from {before.decide_from!r}", "another")
    private = after.is_private or not before.is_private
    require(private, "privatizer", "must be private, as before", "one that is not")
    require_same_neighbours(before, after)


def check_privatizer(
    privatizer: Privatizer, *, dimension: int, intercept: bool = False, name: str | None
) -> None:
    """Check that a privatizer has an agent's dimension and intercept, and noise made for its name."""
    typed = isinstance(privatizer, Privatizer)
    rule = "must be a privatizer, as fedfairx.privacy.private(…) makes them"
    require(typed, "privatizer", rule, type(privatizer).__name__)
    stream = privatizer.stream
    if stream is not None and bool(stream.constant) != intercept:
        has = f"with an intercept, of dimension {dimension}, as private(…, intercept=True) makes it"
        text = f"must be one {has if intercept else 'without an intercept'}"
        remedy = "or give the agent intercept=False" if intercept else "which this agent does not have"
        require(False, "privatizer", text, type(privatizer).__name__, remedy)
    same = privatizer.dimension == dimension
    require(same, "privatizer", f"must have dimension {dimension}", privatizer.dimension)
    owner = privatizer.owner
    same_owner = name is None or owner in (None, name)
    require(same_owner, "name", f"must be the one that its noise was made for, {owner!r}", name)


Releases = Mapping[str, Release]  # by sender
Seen = Mapping[str, tuple[int, str]]  # number and digest of a sender's latest release
#: Raises `MessageRefused` for an implausible release of a sender; the last argument is the one held before.
Check = Callable[[str, Release, Release | None], None]


def _refuse(condition: bool, text: str, reason: str = "malformed") -> None:
    if condition:
        raise MessageRefused(text, reason=reason)


def accept(
    held: Releases,
    arrived: Releases,
    *,
    own: str,
    dimension: int,
    mechanism: str,
    exact: bool = False,
    limits: Check | None = None,
    seen: Seen | None = None,
) -> dict[str, Release]:
    """The releases among `arrived` that are newer than those held from their senders.

    A release that is older than the one held is left out: the one held has replaced it. Raises
    `MessageRefused` if a release must not be taken:

    - its type, size or mechanism is not this agent's, or its numbers are implausible (`limits`);
    - the mechanism adds no noise (`exact`), and it can't be the sums of any records;
    - it has the agent's `own` name and is not its latest: another agent of that name sent it, and it would
      replace this agent's data;
    - nothing is held from the sender any more, and a later release was `seen` before;
    - its content differs from what was held or seen under its number.
    """
    new = {}
    for name, release in arrived.items():
        _check_content(name, release, dimension=dimension, mechanism=mechanism)
        before = held.get(name)
        if limits is not None:
            limits(name, release, before)
        number, digest = (0, "") if before is None else (before.number, before.digest)
        if name == own:
            _check_own(name, release, before)
        if release.number < number:
            continue
        latest, digest = (seen or {}).get(name, (number, digest))
        _refuse(
            release.number < latest,
            f"release {release.number} of {name!r} is older than release {latest}, which was taken "
            "before it left: the sender or the transport was restored to an earlier state",
            "older",
        )
        _refuse(
            release.number == latest and release.digest != digest,
            f"release {release.number} of {name!r} was seen before with other content",
            "repeated number",
        )
        if release.number > number:
            text = f"release of {name!r} must have no own records, as its mechanism adds noise"
            _refuse(bool(release.tallies) and not exact, text)
            if exact:
                _check_sums(name, release)
            new[name] = release
    return new


def _check_own(name: str, release: Release, latest: Release | None) -> None:
    number = 0 if latest is None else latest.number
    if release.number > number:
        raise OlderCopy(
            f"release of {name!r}, which is this agent's own name, has number {release.number}, and its own "
            f"last is {number}: this agent is older than what was sent (a restored backup), or another agent "
            "has its name"
        )
    _refuse(
        release != latest,
        f"release of {name!r}, which is this agent's own name, must be its own latest; "
        "give every agent a different name",
        "own name",
    )


def _check_content(name: str, release: Release, *, dimension: int, mechanism: str) -> None:
    """Refuse a release of another type, size or mechanism, or with impossible numbers."""
    kind = type(name).__name__
    _refuse(not isinstance(name, str), f"the sender of a release must be named by a string, got {kind}")
    kind = type(release).__name__
    _refuse(not isinstance(release, Release), f"release of {name!r} must be a Release, got {kind}")
    size, number, count = packed_size(dimension), release.number, release.count
    _refuse(
        release.packed.shape != (size,),
        f"release of {name!r} must have {size} numbers (dimension {dimension}), got {release.packed.size}",
        "dimension",
    )
    width, tallies = dimension + CONTEXTS, release.tallies
    _refuse(
        not all(isinstance(each, str) and is_utf8(each) for each in tallies),
        f"release of {name!r} must have own records of names that can be written as UTF-8",
    )
    _refuse(
        any(tally.shape != (width,) for tally in tallies.values()),
        f"release of {name!r} must have own records of {width} numbers each (dimension {dimension})",
        "dimension",
    )
    _refuse(
        not release.largest <= LARGEST**2,  # true for NaN
        f"release of {name!r} must be finite and at most {LARGEST**2:g} in size, got NaN, infinity or more",
        "not finite",
    )
    _refuse(
        number < 1 or count < 0,
        f"release of {name!r} must have number >= 1 and count >= 0, got {number=}, {count=}",
        "absurd",
    )
    _refuse(
        release.mechanism != mechanism,
        f"release of {name!r} was made by another mechanism than this agent's, or for other actions",
        "mechanism",
    )


def _check_sums(name: str, release: Release) -> None:
    """Refuse exact sums whose Gram matrix is not that of any records.

    With one, V could become indefinite later, when λ gets smaller or partners are judged again.
    """
    gram, _ = unpack(release.packed)
    rounding = max(ROUNDING * float(np.trace(gram)), TINY)
    if release.tallies:
        tallies = np.array([*release.tallies.values()])
        counts, contexts = tallies[:, RECORDS], tallies[:, CONTEXTS:]
        some = (counts > 0.0) & (counts.sum() <= (1.0 + ROUNDING) * release.count)
        text = f"release of {name!r} must have own records of more than none, and of no more than its count"
        _refuse(not some.all(), text, "absurd")
        gram = gram - (contexts.T / counts) @ contexts  # what is left where ρ is 0
    text = f"release of {name!r} must hold sums of records: its Gram matrix is not positive semidefinite"
    _refuse(not _is_definite(gram, rounding), text, "indefinite")


def check_definite(packed: Array, regulariser: float) -> None:
    """Refuse V = λI + Gram unless it is positive definite: else every later decision would be wrong."""
    gram, _ = unpack(packed)
    text = "the releases together must make a positive definite V, and these do not"
    _refuse(not _is_definite(gram, regulariser), text, "indefinite")


def _is_definite(gram: Array, regulariser: float) -> bool:
    """Whether λI + Gram is positive definite, and finite."""
    try:
        root = np.linalg.cholesky(gram + regulariser * np.eye(len(gram)))
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(root).all())  # it raises nothing for NaN
