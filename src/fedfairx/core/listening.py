"""Whom to listen to, among partners who may differ, and how far: learnt from one's own rewards.

1. **Each by itself.** Of one's own rewards' ln p_j(q) given partner j alone (`partners`), a q is contradicted
   where it is `EVIDENCE` below the largest. A partner is far easier to judge by itself than in a sum, which a
   bad one among m moves by an mth of what it is off.
2. **How far partners usually are**: the q with the largest Σ_j max(ln p_j(q) - max ln p_j, -EVIDENCE). One
   partner can't take more than EVIDENCE from it, so a few odd ones do not matter.
3. **Heard** is who is not contradicted at that q or nearer. But those who are not at q = 0 are heard alone if
   they predict one's own rewards better, by 2·EVIDENCE and 1 for each who is then left out: how a few who are
   alike are found among many who are not.
4. **One sum, one q.** Those heard are added up, and their sum has one q: partners who are all off by the same
   do not become surer by being many. It is the farthest that is not contradicted, `SAME` being what q = 0 is
   worth beforehand: one's own rewards have to speak against one θ for all, and then doubt keeps its distance.

So with any statistics of any number of partners, ln p of one's own rewards by what is then believed is not
more than EVIDENCE + ln(8·SAME/(1 - SAME)) = 7.3 below what it is by one's own prior.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fedfairx.arrays import Array
from fedfairx.core.partners import (
    DIFFERENCES,
    EVIDENCE,
    SAME,
    Room,
    log_evidence,
    look_at_others,
    look_at_own,
    room_in,
    translate,
)
from fedfairx.core.weighing import believe
from fedfairx.lanes.compile import layout, releasing, stage
from fedfairx.lanes.rows import Rows, cut, floats

LEVELS = DIFFERENCES.shape[0]


class Ear(NamedTuple):
    """What J partners have sent, what is made of it, and room to work in."""

    own: Rows  # (q,) one's own packed statistics
    mean: Rows  # (d,) of the prior
    releases: Rows  # (J, q) packed, as they came
    noise_sd: Rows  # (J,) of an entry of them; 0 where they are exact
    told: Rows  # (q,) what those heard say of one's own θ
    heard: Rows  # (J,) 1 where a partner is heard, else 0
    each: Rows  # (J, LEVELS) ln p_j
    together: Rows  # (LEVELS,) ln p of those heard, and what a q is worth beforehand
    share: Rows  # (1,) of the information of those heard that is kept
    one: Rows  # (q,) room
    room: Room


@layout
def ear_in(memory: Rows, dimension: int, partners: int) -> Ear:
    """All of it, in flat rows."""
    size = dimension * (dimension + 3) // 2
    own, rest = cut(memory, size)
    mean, rest = cut(rest, dimension)
    releases, rest = cut(rest, partners, size)
    noise_sd, rest = cut(rest, partners)
    told, rest = cut(rest, size)
    heard, rest = cut(rest, partners)
    each, rest = cut(rest, partners, LEVELS)
    together, rest = cut(rest, LEVELS)
    share, rest = cut(rest, 1)
    one, rest = cut(rest, size)
    room, rest = room_in(rest, dimension)
    return Ear(own, mean, releases, noise_sd, told, heard, each, together, share, one, room)


@stage
def beforehand(level: int) -> float:
    """ln of what a q is held to be worth before any reward."""
    return math.log(SAME if level == 0 else (1.0 - SAME) / (LEVELS - 1))


@stage
def up_to(each: Rows, j: int, level: int) -> float:
    """The largest ln p_j at this level or a nearer one."""
    best = -math.inf
    for k in range(level + 1):
        best = max(best, each[j, k])
    return best


@stage
def usual_level(each: Rows) -> int:
    """How far partners usually are: a place in `DIFFERENCES`."""
    found, most = 0, -math.inf
    for k in range(LEVELS):
        total = 0.0
        for j in range(each.shape[0]):
            total += max(each[j, k] - up_to(each, j, LEVELS - 1), -EVIDENCE)
        if total > most:
            found, most = k, total
    return found


@stage
def hear(ear: Ear, level: int) -> int:
    """heard ← who is not contradicted at this level or nearer; how many they are."""
    count = 0
    for j in range(ear.heard.shape[0]):
        kept = up_to(ear.each, j, level) >= up_to(ear.each, j, LEVELS - 1) - EVIDENCE
        ear.heard[j] = 1.0 if kept else 0.0
        count += 1 if kept else 0
    return count


@stage
def believe_noisy(packed: Rows, noise_sd: float, size: float, variance: float, room: Room) -> None:
    """packed (q,) ← what stands out of its noise, where there is any."""
    if noise_sd > 0.0:
        believe(packed, noise_sd, size, variance, room.factor, room.bent)


@stage
def add_up(ear: Ear, size: float, variance: float) -> None:
    """told ← the sum of those heard, as far as it stands out of its noise."""
    square = 0.0
    for k in range(ear.told.shape[0]):
        ear.told[k] = 0.0
    for j in range(ear.heard.shape[0]):
        if ear.heard[j] > 0.0:
            square += ear.noise_sd[j] * ear.noise_sd[j]
            for k in range(ear.told.shape[0]):
                ear.told[k] += ear.releases[j, k]
    believe_noisy(ear.told, math.sqrt(square), size, variance, ear.room)


@stage
def judge(ear: Ear, ridge: float, variance: float) -> float:
    """together ← ln p of what is told, for every q, with what q is worth beforehand; the largest."""
    best = -math.inf
    look_at_others(ear.told, ridge, ear.mean, ear.room)
    for k in range(LEVELS):
        ear.together[k] = beforehand(k) + log_evidence(DIFFERENCES[k], variance, ear.room)
        best = max(best, ear.together[k])
    return best


@stage
def ask_each(ear: Ear, size: float, ridge: float, variance: float) -> None:
    """each ← ln p of one's own rewards given one partner alone."""
    for j in range(ear.heard.shape[0]):
        for k in range(ear.one.shape[0]):
            ear.one[k] = ear.releases[j, k]
        believe_noisy(ear.one, ear.noise_sd[j], size, variance, ear.room)
        look_at_others(ear.one, ridge, ear.mean, ear.room)
        for k in range(LEVELS):
            ear.each[j, k] = log_evidence(DIFFERENCES[k], variance, ear.room)


@stage
def listen(ear: Ear, size: float, ridge: float, variance: float) -> float:
    """told ← what partners say of one's own θ; q. size: E‖θ‖², for noisy releases; ridge λ, variance σ²."""
    look_at_own(ear.own, ridge, ear.mean, ear.room)
    ask_each(ear, size, ridge, variance)
    level = usual_level(ear.each)
    fewer = hear(ear, 0)
    if level > 0:
        alike = -math.inf
        if fewer > 0:
            add_up(ear, size, variance)
            alike = judge(ear, ridge, variance)
        count = hear(ear, level)
        add_up(ear, size, variance)
        if alike > judge(ear, ridge, variance) + 2.0 * EVIDENCE + (count - fewer):
            level = 0
            hear(ear, level)
    if level == 0:
        add_up(ear, size, variance)
        judge(ear, ridge, variance)
    best, farthest = -math.inf, 0
    for k in range(LEVELS):
        best = max(best, ear.together[k])
    for k in range(LEVELS):
        if ear.together[k] >= best - EVIDENCE:
            farthest = k
    ear.share[0] = translate(ear.told, DIFFERENCES[farthest], ridge, ear.mean, ear.room)
    return DIFFERENCES[farthest]


@releasing
def listen_in(
    memory: Array, dimension: int, partners: int, size: float, ridge: float, variance: float
) -> float:
    """`listen` of what `ear_in` finds in memory: handing over all rows would take longer than the rest."""
    return listen(ear_in(floats(memory), dimension, partners), size, ridge, variance)
