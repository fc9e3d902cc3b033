"""The table: verdicts that are right, whoever comes and goes."""

from __future__ import annotations

from dataclasses import astuple, replace

import numpy as np
import pytest

import fedfairx as ffx
import fedfairx.fairness.exposure_table
from fedfairx.core.merit import Exponential, Power
from fedfairx.errors import InvalidInput
from fedfairx.fairness import Logged
from fedfairx.fairness.confidence_region import region
from fedfairx.fairness.confidence_sequences import share_interval, spending
from fedfairx.fairness.entitlement import entitled
from fedfairx.fairness.exposure_table import ABOVE, BELOW, UNKNOWN, WITHIN, Row, Share, verdict
from worlds import GROUPS, NAMES, fair_policy, world

MERIT = Exponential(4.0)


def true_entitlement(log: list[Logged], names: dict[str, str] | None = None) -> dict[str, float]:
    """Means over the rounds in which each was there, by the definition; of groups with `names` to groups."""
    sums: dict[str, list[float]] = {}
    for decision in log:
        here: dict[str, float] = {}
        for name, share in zip(decision.names, fair_policy(np.asarray(decision.contexts)), strict=True):
            key = name if names is None else names[name]
            here[key] = here.get(key, 0.0) + share
        for key, share in here.items():
            sums.setdefault(key, []).append(share)
    return {key: float(np.mean(shares)) for key, shares in sums.items()}


def some_of_five(t: int) -> list[int]:
    """One comes late, one goes early, one is there every third time."""
    return [0, 1, *([2] if t > 1_000 else []), *([3] if t < 2_000 else []), *([4] if t % 3 == 0 else [])]


@pytest.mark.long
def test_a_fair_system_is_within_once_there_is_enough_data() -> None:
    few, many = world(100), world(20_000)
    assert {row.verdict for row in ffx.exposure(few, merit=MERIT).actions} == {UNKNOWN}
    table = ffx.exposure(many, merit=MERIT, tolerance=0.3)
    assert {row.verdict for row in (*table.actions, *table.groups)} == {WITHIN}
    assert [row.name for row in table.actions] == list(NAMES)
    assert [row.name for row in table.groups] == ["north", "south"]
    assert table.draws.as_the_policy_said


@pytest.mark.long
def test_who_is_starved_is_below_and_who_is_favoured_above() -> None:
    def unfair(contexts: np.ndarray) -> np.ndarray:
        shares = fair_policy(contexts)
        shares[0] += 0.8 * shares[3]
        shares[3] *= 0.2
        return shares

    table = ffx.exposure(world(8_000, policy=unfair), merit=MERIT)
    verdicts = {row.name: row.verdict for row in table.actions}
    assert verdicts["di"] == BELOW
    assert verdicts["ada"] == ABOVE
    assert {verdicts[name] for name in ("bo", "cy", "eve")} <= {WITHIN, UNKNOWN}
    assert table.draws.as_the_policy_said  # it was drawn as that policy said; it is the policy that is unfair
    starved = table.actions[3].shortfall
    assert starved.low > 0
    assert starved.low < starved.value < starved.high


def test_shares_are_of_the_rounds_in_which_an_action_was_there() -> None:
    log = world(3_000, there=some_of_five)
    table = ffx.exposure(log, merit=MERIT)
    assert {row.name: row.rounds for row in table.actions} == {
        "ada": 3_000,
        "bo": 3_000,
        "cy": 1_999,
        "di": 2_000,
        "eve": 1_000,
    }
    truth = true_entitlement(log)
    for row in table.actions:
        assert row.entitled.low <= truth[row.name] <= row.entitled.high
        assert row.shown.low <= row.policy <= row.shown.high
    by_group = true_entitlement(log, dict(zip(NAMES, GROUPS, strict=True)))
    for row in table.groups:
        assert row.entitled.low <= by_group[row.name] <= row.entitled.high


@pytest.mark.long
def test_all_intervals_hold_at_all_times_as_often_as_stated() -> None:
    """30 runs, 4 looks each: with an error of 5 %, more than 5 runs ever fail in 0.3 % of tests."""
    failed = 0
    for seed in range(30):
        log = world(400, seed=seed, there=lambda t: [0, 1, 2, 3][: 2 + t % 3])
        ever = False
        for looks in range(100, 401, 100):
            truth = true_entitlement(log[:looks])
            for row in ffx.exposure(log[:looks], merit=MERIT, noise_sd=0.5).actions:
                ever |= not row.entitled.low <= truth[row.name] <= row.entitled.high
                ever |= not row.shown.low <= row.policy <= row.shown.high
        failed += ever
    assert failed <= 5


def test_entitlements_do_not_depend_on_how_a_log_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    log = world(300, there=some_of_five)
    whole = ffx.exposure(log, merit=MERIT)
    monkeypatch.setattr("fedfairx.fairness.decision_log._BLOCK", 60)
    parts = ffx.exposure(log, merit=MERIT)
    for one, other in zip(whole.actions + whole.groups, parts.actions + parts.groups, strict=True):
        assert one.name == other.name
        assert one.verdict == other.verdict
        assert one.count == other.count
        assert one.entitled.low == pytest.approx(other.entitled.low, abs=1e-12)
        assert one.entitled.high == pytest.approx(other.entitled.high, abs=1e-12)
    assert whole.draws.p_value == pytest.approx(parts.draws.p_value)


def test_sums_of_all_rewards_tell_more_of_merit_than_a_window() -> None:
    log = world(3_000)
    chosen = np.array([np.asarray(each.contexts)[each.action] for each in log])
    sums = (chosen.T @ chosen, chosen.T @ np.array([each.reward for each in log]))
    window = ffx.exposure(log[2_000:], merit=MERIT)
    told = ffx.exposure(log[2_000:], merit=MERIT, sums=sums)
    for short, long in zip(window.actions, told.actions, strict=True):
        assert long.entitled.high - long.entitled.low < short.entitled.high - short.entitled.low


def test_without_contexts_or_rewards_nothing_is_known_of_merit() -> None:
    for log in (
        [Logged([0.5, 0.5], t % 2, reward=1.0) for t in range(200)],
        [Logged([0.5, 0.5], t % 2, contexts=np.eye(2)) for t in range(200)],
    ):
        for row in ffx.exposure(log).actions:
            assert row.verdict == UNKNOWN
            assert (row.entitled.low, row.entitled.high) == (0.0, 1.0)
            assert np.isnan(row.entitled.value)


def test_what_was_withdrawn_was_not_shown_but_was_drawn() -> None:
    log = world(400)
    never = [replace(each, action=None, drawn=each.action, reward=None) for each in log[300:]]
    table, shorter = ffx.exposure(log[:300] + never, merit=MERIT), ffx.exposure(log[:300], merit=MERIT)
    assert table.actions == shorter.actions
    assert table.groups == shorter.groups
    assert (table.decisions, table.draws.decisions) == (300, 400)
    assert ffx.exposure(never).actions == ()


def test_the_error_is_spent_once() -> None:
    """Half is for the region of θ, and a quarter each for shown shares of actions and of groups."""
    rng, error = np.random.default_rng(0), 0.08
    contexts = rng.random((400, 2, 2))
    log = [
        Logged(
            [0.5, 0.5], int(rng.random() < 0.3), each, groups=["north", "south"], reward=float(rng.random())
        )
        for each in contexts
    ]
    table = ffx.exposure(log, error=error, merit=MERIT)
    taken = np.array([each.action for each in log])
    times = np.bincount(taken, minlength=2).astype(float)
    for rows in (table.actions, table.groups):
        ends = share_interval(times, np.full(2, 400.0), 0.25 * error * spending(2))
        assert [row.shown.low for row in rows] == pytest.approx(ends[0], rel=1e-12)
        assert [row.shown.high for row in rows] == pytest.approx(ends[1], rel=1e-12)
    x, y = contexts[np.arange(400), taken], np.array([each.reward for each in log])
    known = region(x.T @ x, x.T @ y, noise_sd=0.5, error=0.5 * error)
    alone = entitled(known, MERIT, contexts, None)
    for k, row in enumerate(table.actions):  # the narrower of the bound of each round and the linear one
        reach = known.radius * np.linalg.norm(alone.gradient[:, k].sum(axis=0)) + alone.bend[:, k].sum()
        middle = alone.share[:, k].sum()
        assert row.entitled.low == pytest.approx(max(alone.low[:, k].mean(), (middle - reach) / 400))
        assert row.entitled.high == pytest.approx(min(alone.high[:, k].mean(), (middle + reach) / 400))


def test_sums_of_the_log_itself_change_nothing() -> None:
    log = world(300)
    rows = [np.asarray(each.contexts)[each.action] for each in log]
    gram, moment = (
        sum(np.outer(x, x) for x in rows),
        sum(x * each.reward for x, each in zip(rows, log, strict=True)),
    )
    ours, theirs = ffx.exposure(log, merit=MERIT, sums=(gram, moment)), ffx.exposure(log, merit=MERIT)
    for one, two in zip(ours.actions, theirs.actions, strict=True):
        assert astuple(one.entitled) == pytest.approx(astuple(two.entitled), rel=1e-9)


def test_a_reward_of_what_was_withdrawn_is_not_learnt() -> None:
    log = [Logged([0.5, 0.5], t % 2, np.eye(2), reward=0.5) for t in range(20)]
    more = [*log, *(Logged([0.5, 0.5], None, np.eye(2), drawn=0, reward=1.0) for _ in range(20))]
    assert ffx.exposure(more).rewards == ffx.exposure(log).rewards == 20
    assert ffx.exposure(more).actions == ffx.exposure(log).actions


def test_shown_shares_do_not_depend_on_the_order_of_a_log() -> None:
    """A group that could fill both slots is bounded by both, also where it had one action later."""
    wide = Logged([2 / 3] * 3, [0, 2], groups=["a", "a", "b"], slots=2)
    narrow = Logged([2 / 3] * 3, [0, 1], groups=["a", "b", "b"], slots=2)
    forth, back = (ffx.exposure([one] * 20 + [two] * 20) for one, two in ((wide, narrow), (narrow, wide)))
    for row, other in zip(forth.groups, back.groups, strict=True):
        assert (row.name, astuple(row.shown)) == (other.name, pytest.approx(astuple(other.shown)))


def test_a_shortfall_is_as_wide_as_both_intervals() -> None:
    row = Row("ann", 10, 3, Share(0.3, 0.2, 0.4), 0.3, Share(0.5, 0.45, 0.6), BELOW)
    short = row.shortfall
    assert (short.value, short.low, short.high) == pytest.approx((0.2, 0.05, 0.4))


def test_an_empty_log_is_an_empty_table() -> None:
    table = ffx.exposure([])
    assert table.actions == ()
    assert table.groups == ()
    assert table.draws.p_value == 1.0


def test_another_merit_entitles_to_other_shares() -> None:
    log = world(2_000)
    steep, flat = ffx.exposure(log, merit=Exponential(10.0)), ffx.exposure(log, merit=Power(1.0, 1.0))
    assert np.ptp([row.entitled.value for row in steep.actions]) > np.ptp(
        [r.entitled.value for r in flat.actions]
    )


@pytest.mark.parametrize(
    ("shown", "entitled", "words"),
    [
        ((0.30, 0.29, 0.31), (0.30, 0.28, 0.32), WITHIN),
        ((0.30, 0.29, 0.31), (0.30, 0.20, 0.40), UNKNOWN),
        ((0.10, 0.09, 0.11), (0.30, 0.28, 0.32), BELOW),
        ((0.50, 0.49, 0.51), (0.30, 0.28, 0.32), ABOVE),
        ((0.295, 0.294, 0.296), (0.30, 0.298, 0.302), WITHIN),  # surely less, and surely not by a fifth
        ((0.23, 0.229, 0.231), (0.30, 0.298, 0.302), BELOW),
    ],
)
def test_verdicts(shown: tuple[float, ...], entitled: tuple[float, ...], words: str) -> None:
    assert verdict(Share(*shown), Share(*entitled), 0.2) == words


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Logged([0.5, 0.6], 0), "sum to 1"),
        (Logged([np.nan, 1.0], 0), "sum to 1"),
        (Logged([0.5, 0.5], 2), "row of the policy"),
        (Logged([0.5, 0.5], 0, names=["a"]), "one for each action"),
        (Logged([0.5, 0.5], 0, names=["a", ""]), "names must not be empty"),
        (Logged([0.5, 0.5], 0, contexts=[[np.inf], [1.0]]), "finite"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_by_its_place(decision: Logged, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        ffx.exposure([Logged([0.5, 0.5], 0, contexts=[[1.0], [1.0]]), decision])
    assert "decision 1" in str(caught.value)


@pytest.mark.parametrize("setting", [{"error": 0.0}, {"error": 1.0}, {"tolerance": 1.0}, {"noise_sd": 0.0}])
def test_settings_are_checked(setting: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        ffx.exposure([], **setting)


def test_it_shows_itself_and_says_what_it_claims() -> None:
    table = ffx.exposure(world(200), merit=MERIT)
    assert "ada" in str(table)
    assert "too little data" in str(table)
    assert "<table>" in table._repr_html_()
    assert any("all times" in claim for claim in table.claims())


def test_columns_that_come_later_were_zero_before() -> None:
    """A log whose contexts grow is one of the same contexts with zeros; they can't shrink."""
    rng, log, padded = np.random.default_rng(0), [], []
    for place in range(60):
        arms, width = 2 + place % 2, 2 if place < 30 else 4
        contexts = rng.random((arms, width)) / 2
        policy = np.full(arms, 1 / arms)
        reward = float(rng.random() < contexts[0].sum() / 2)
        log.append(Logged(policy, 0, contexts, reward=reward))
        padded.append(Logged(policy, 0, np.pad(contexts, ((0, 0), (0, 4 - width))), reward=reward))
    for ours, theirs in zip(ffx.exposure(log).actions, ffx.exposure(padded).actions, strict=True):
        assert (ours.name, ours.rounds, ours.count, ours.shown) == (
            theirs.name,
            theirs.rounds,
            theirs.count,
            theirs.shown,
        )
        assert vars(ours.entitled) == pytest.approx(vars(theirs.entitled))
    with pytest.raises(InvalidInput, match=r"one dimension, which may grow, got decision 1"):
        ffx.exposure([log[-1], log[0]])
