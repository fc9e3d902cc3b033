"""What an agent lets in: contexts, rewards and messages, each checked before anything changes.

Error text names shapes, types and counts. It never holds a context or a reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.core.agent_kernels import LARGEST
from fedfairx.core.statistics import packed_size, unpack
from fedfairx.errors import InvalidInput, MessageRefused, OlderCopy, require
from fedfairx.privacy import Guarantee, NonPrivateSums, Privatizer, Release
from fedfairx.privacy.privatizers.consecutive import require_same_neighbours
from fedfairx.util.arrays import Array, as_floats

FLOAT = np.dtype(np.float64)  # there is one of it, which `is` finds faster than == does


def as_contexts(contexts: ArrayLike, dimension: int) -> Array:
    """A (K, d) array that compiled code takes as it is; whether it is finite, that code looks itself."""
    if type(contexts) is np.ndarray and contexts.dtype is FLOAT and contexts.flags.carray:
        shape = contexts.shape  # as it should be, which is the rule
        if len(shape) == 2 and shape[1] == dimension and shape[0] > 0:
            return contexts
    rows = as_floats(contexts)
    if rows is None:
        raise InvalidInput(
            f"contexts must be a (K, d) array of numbers, got something else{_first_odd_row(contexts)}"
        )
    if rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] != dimension:
        raise InvalidInput(
            f"contexts must have shape (K, {dimension}) with K >= 1, got contexts={_shape_of(rows)}"
        )
    if not rows.flags.carray:  # read only or unaligned is another type to Numba, compiled for a minute
        rows = rows.copy()
    return rows


def not_finite(rows: Array) -> InvalidInput:
    """The error for contexts with NaN, infinity or a number beyond `LARGEST`; it names the first such row."""
    row = int((~(np.abs(rows) <= LARGEST)).any(axis=1).argmax())
    return InvalidInput(
        f"contexts must be finite and at most {LARGEST:g} in size, "
        f"got contexts={_shape_of(rows)} with NaN, infinity or more in row {row}"
    )


def as_sound_contexts(contexts: ArrayLike, dimension: int) -> Array:
    """`as_contexts`, and finite: for callers that need to know before compiled code looks."""
    rows = as_contexts(contexts, dimension)
    if not (np.abs(rows) <= LARGEST).all():
        raise not_finite(rows)
    return rows


def as_names(names: Sequence[str], arms: int) -> list[str]:
    """A name for each arm."""
    given = [] if isinstance(names, str) else list(names)
    text = all(isinstance(name, str) for name in given)
    require(text and len(given) == arms, "names", f"must be {arms} strings, one for each arm", len(given))
    return given


def as_row(row: int | None, arms: int) -> int | None:
    """The row of a baseline's arm, if there is one."""
    fits = row is None or (
        isinstance(row, int | np.integer) and not isinstance(row, bool) and 0 <= row < arms
    )
    require(fits, "baseline", f"must be a row of the contexts, 0 to {arms - 1}", row)
    return None if row is None else int(row)


def _first_odd_row(contexts: Any) -> str:
    """Where the first row is that is no list of numbers, or is of another length than the one before."""
    if not isinstance(contexts, list | tuple | np.ndarray):
        return ""
    length: int | None = None
    for index, row in enumerate(contexts):
        numbers = as_floats(row)
        if numbers is None or numbers.ndim != 1 or numbers.size != (length or numbers.size):
            return f" in row {index}"
        length = numbers.size
    return ""


def _shape_of(rows: Array) -> str:
    return f"array of shape {rows.shape}"


def as_reward(reward: float) -> float:
    """A float, whether or not it is one that may be learnt from."""
    text = f"reward must be a number, got reward of type {type(reward).__name__}"
    if np.iscomplexobj(reward):  # NumPy would drop the imaginary part and only warn
        raise InvalidInput(text)
    try:
        return float(reward)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        raise InvalidInput(text) from None


def as_rewards(rewards: Iterable[float], count: int, check: Callable[[float], float]) -> list[float]:
    """`count` rewards, each by `check`; the error names the first bad one by its place."""
    try:
        given = list(rewards)
    except TypeError:
        raise InvalidInput(f"rewards must be {count} numbers, got {type(rewards).__name__}") from None
    require(len(given) == count, "rewards", f"must be as many as the {count} records", len(given))
    values = []
    for index, reward in enumerate(given):
        try:
            values.append(check(reward))
        except InvalidInput as error:
            raise InvalidInput(f"{error} in row {index}") from None
    return values


def as_persons(persons: Iterable[str | int] | None, count: int) -> Sequence[str | int | None]:
    """A person for each of `count` records, or nobody for any."""
    if persons is None:
        return [None] * count
    whose = list(persons)
    require(len(whose) == count, "persons", f"must be as many as the {count} decisions", len(whose))
    require(all(person is not None for person in whose), "persons", "must all be given", "None among them")
    return whose


def check_next_run(privatizer: Privatizer, *, before: Guarantee, dimension: int, name: str) -> None:
    """A privatizer that an agent may go on with, after one that claimed `before`."""
    same = privatizer.dimension == dimension
    require(same, "privatizer", f"must have dimension {dimension}", privatizer.dimension)
    owner = privatizer.owner
    require(owner in (None, name), "privatizer", f"must have noise that was made for {name!r}", owner)
    after = privatizer.guarantee
    exact = isinstance(privatizer, NonPrivateSums) or (math.isinf(after.mu) and math.isfinite(before.mu))
    fits = not exact and after.decide_from == before.decide_from
    require(fits, "privatizer", f"must be private and decide from {before.decide_from!r}", "another")
    kept = after.is_private or not before.is_private
    require(kept, "privatizer", "must be private, as before", "one that is not")
    require_same_neighbours(before, after)


def check_privatizer(privatizer: Privatizer, *, dimension: int, name: str | None) -> None:
    """A privatizer that fits an agent: its dimension, and noise that was made for its name."""
    fits = isinstance(privatizer, Privatizer)
    rule = "must be a privatizer, as fedfairx.privacy.private(…) makes them"
    require(fits, "privatizer", rule, type(privatizer).__name__)
    same = privatizer.dimension == dimension
    require(same, "privatizer", f"must have dimension {dimension}", privatizer.dimension)
    owner = privatizer.owner
    fits = name is None or owner in (None, name)
    require(fits, "name", f"must be the one that its noise was made for, {owner!r}", name)


#: Raises `MessageRefused` for a release of a sender that can't be; the last is what is held of that sender.
Check = Callable[[str, Release, Release | None], None]


def accept(
    held: Mapping[str, Release],
    arrived: Mapping[str, Release],
    *,
    own: str,
    dimension: int,
    mechanism: str,
    limits: Check | None = None,
    seen: Mapping[str, tuple[int, str]] | None = None,
) -> dict[str, Release]:
    """The releases among `arrived` that are newer than what is held of their senders, by sender.

    A release that is older than the one held is left out: the one held has replaced it. `MessageRefused` if
    one of them can't be taken:

    - it has another type, size or mechanism than this agent's, or numbers that can't be (`limits`);
    - it has the agent's `own` name and is not its latest: it comes from another agent of that name, and would
      replace its own data;
    - nothing of the sender is held any more, and a later release of it was `seen` before (number, digest);
    - it has other content than was held or seen under its number.
    """
    new = {}
    for name, release in arrived.items():
        _check_content(name, release, dimension=dimension, mechanism=mechanism)
        before = held.get(name)
        if limits is not None:
            limits(name, release, before)
        number = 0 if before is None else before.number
        if name == own:
            _check_own(name, release, before)
        if release.number < number:
            continue
        latest, digest = (number, "" if before is None else before.digest)
        if seen is not None and name in seen:
            latest, digest = seen[name]
        if release.number < latest:
            raise MessageRefused(
                f"release {release.number} of {name!r} is older than release {latest}, which was taken "
                "before it left: the sender or the transport was put back to an earlier time",
                reason="older",
            )
        if release.number == latest and release.digest != digest:
            raise MessageRefused(
                f"release {release.number} of {name!r} was seen before with other content",
                reason="repeated number",
            )
        if release.number > number:
            new[name] = release
    return new


def _check_own(name: str, release: Release, latest: Release | None) -> None:
    number = 0 if latest is None else latest.number
    if release.number > number:
        raise OlderCopy(
            f"release of {name!r}, which is this agent's own name, has number {release.number}, and its own "
            f"last is {number}: this agent is older than what was sent (a backup that was put back), or "
            "another has its name"
        )
    if release != latest:
        raise MessageRefused(
            f"release of {name!r}, which is this agent's own name, must be its own latest; "
            "give every agent a name of its own",
            reason="own name",
        )


def _check_content(name: str, release: Release, *, dimension: int, mechanism: str) -> None:
    """Refuse a release of another type, size or mechanism, or with numbers that can't be."""
    if not isinstance(name, str):
        raise MessageRefused(f"the sender of a release must be named by a string, got {type(name).__name__}")
    if not isinstance(release, Release):
        raise MessageRefused(f"release of {name!r} must be a Release, got {type(release).__name__}")
    size = packed_size(dimension)
    if release.packed.shape != (size,):
        raise MessageRefused(
            f"release of {name!r} must have {size} numbers (dimension {dimension}), "
            f"got {release.packed.size}",
            reason="dimension",
        )
    if not release.largest <= LARGEST**2:  # NaN is not either
        raise MessageRefused(
            f"release of {name!r} must be finite and at most {LARGEST**2:g} in size, "
            "got NaN, infinity or more",
            reason="not finite",
        )
    if release.number < 1 or release.count < 0:
        raise MessageRefused(
            f"release of {name!r} must have number >= 1 and count >= 0, "
            f"got number={release.number}, count={release.count}",
            reason="absurd",
        )
    if release.mechanism != mechanism:
        raise MessageRefused(
            f"release of {name!r} was made by another mechanism than this agent's, or for other actions",
            reason="mechanism",
        )


def check_definite(packed: Array, regulariser: float) -> None:
    """V = λI + Gram must be positive definite, or one bad message would spoil every later decision."""
    gram, moment = unpack(packed)
    try:
        np.linalg.cholesky(gram + regulariser * np.eye(moment.size))
    except np.linalg.LinAlgError:
        raise MessageRefused(
            "the releases together must make a positive definite V, and these do not", reason="indefinite"
        ) from None
