"""Likely verdicts: against brute force, how often they are wrong, and what they can't see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.core.agent_kernels import likely_sizes
from fedfairx.core.merit import Exponential
from fedfairx.core.posterior import Posterior
from fedfairx.core.statistics import pack
from fedfairx.fairness import Logged
from fedfairx.fairness.likely import ABOVE, BELOW, IN_LINE, UNKNOWN, SharesSoFar, probabilities, verdict
from worlds import by_chance

MERIT = Exponential(4.0)
NAMES, GROUPS = ["a", "b", "c"], ["g", "g", None]
LEAST = 0.8


def shares(means: np.ndarray, steepness: float) -> np.ndarray:
    """The definition; means (..., K)."""
    merits = np.exp(steepness * (means - means.max(axis=-1, keepdims=True)))
    return np.asarray(merits / merits.sum(axis=-1, keepdims=True))


def sampled(belief: Posterior, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, d) draws of θ by the definition: λ, σ², the prior's mean and θ, one after the other."""
    sizes, size = belief.sizes, belief.moment.size
    found = np.empty((count, size))
    for k in range(count):
        case = rng.choice(sizes.weights.size, p=sizes.weights / sizes.weights.sum())
        ridge = sizes.ridge[case]
        inverse = np.linalg.inv(belief.gram + ridge * np.eye(size))
        p = ridge * belief.common @ inverse @ belief.gram @ belief.common
        q = ridge * belief.common @ inverse @ (belief.moment - belief.gram @ belief.prior_mean)
        fit = q / p if p > 1e-12 * ridge else 0.0
        rho = sizes.variance[case] / max(fit**2, sizes.wide)
        variance = sizes.variance[case] * sizes.freedom / rng.chisquare(sizes.freedom)
        shift = q / (p + rho) + np.sqrt(variance / (p + rho)) * rng.standard_normal()
        mean = inverse @ (belief.moment + ridge * (belief.prior_mean + belief.common * shift))
        found[k] = rng.multivariate_normal(mean, variance * inverse)
    return found


@pytest.mark.long
def test_the_probability_is_that_of_brute_force() -> None:
    """4 000 independent draws of θ, by other code, against 199 that are spread evenly: both are off by
    √(p(1 - p)/n) at most, so 4 of these is 1 in 10⁴ for a row and another seed."""
    rng = np.random.default_rng(3)
    rows = contexts = rng.random((3, 3))
    chosen = rng.integers(3, size=40)
    x, y = contexts[chosen], contexts[chosen] @ [0.5, 0.3, 0.1] + 0.3 * rng.standard_normal(40)
    sums = pack(x.T @ x, x.T @ y), float(y @ y), 40
    sizes, _ = likely_sizes(*sums, ffx.Prior(0.0, 0.3, 0.3))
    belief = Posterior(x.T @ x, x.T @ y, np.zeros(3), sizes, np.zeros(3))
    policy = np.array([0.3, 0.35, 0.35])
    log = [Logged(policy, int(k), rows, NAMES, GROUPS, reward=0.0) for k in chosen]
    table = ffx.exposure(log, merit=MERIT, posterior=belief)
    due = shares(sampled(belief, 4_000, rng) @ contexts.T, MERIT.steepness)
    for row in (*table.actions, *table.groups):
        member = np.array([row.name in (name, group) for name, group in zip(NAMES, GROUPS, strict=True)])
        given, shown = policy[member].sum(), np.mean(member[chosen])
        mine = due[:, member].sum(axis=1)
        most, least = max(given, shown), min(given, shown)
        within = (least >= LEAST * mine) & (most * LEAST <= mine)
        truth = np.mean(most < LEAST * mine), np.mean(within), np.mean(least * LEAST > mine)
        assert row.likely is not None
        found = row.likely.below, row.likely.in_line, row.likely.above
        for one, other in zip(found, truth, strict=True):
            error = np.sqrt(max(other * (1 - other), 0.01) * (1 / 199 + 1 / 4_000))
            assert abs(one - other) < 4 * error + 1 / 200


def worlds(count: int, looks: tuple[int, ...], *, named: bool, hidden: float = 0.0) -> np.ndarray:
    """(count, looks, 3): verdicts of actions and groups, how many are wrong, and how many more of what has a
    probability above a half is so than the probabilities say.

    σ, the sizes of θ and the mean of named actions come from what the model assumes, and a policy by the
    posterior's mean of the last look decides. `hidden` is the sd of what is in no feature.
    """
    rng = np.random.default_rng([5, named])
    sd, noise_sd, size, arms = 0.3, 0.5, 4, 4
    names, groups = [f"n{k}" for k in range(arms)], ["even", "odd"] * (arms // 2)
    found = np.zeros((count, len(looks), 3))
    for world in range(count):
        mean = rng.normal(0.0, np.hypot(sd, noise_sd)) if named else 0.0
        theta = rng.normal(mean, sd * np.exp(rng.standard_normal()), size)
        sigma = noise_sd * np.sqrt(2.0 / rng.chisquare(2))
        merit, offsets = Exponential(2.0 / sigma), rng.normal(0.0, 1.0, arms) * hidden * sigma
        gram, moment, squares = np.zeros((size, size)), np.zeros(size), 0.0
        prior = ffx.Prior(0.0, sd, noise_sd)
        agent = ffx.Agent(actions=names, prior=prior, seed=0)
        log, given, due, estimate = [], np.zeros(arms), np.zeros(arms), np.zeros(size)
        for t in range(looks[-1]):
            contexts = np.eye(arms) if named else rng.random((arms, size))
            policy = shares(contexts @ estimate, merit.steepness)
            action = by_chance(rng, policy)
            means = contexts @ theta + offsets
            reward = means[action] + sigma * rng.standard_normal()
            x = contexts[action]
            gram, moment, squares = gram + np.outer(x, x), moment + x * reward, squares + reward**2
            if named:
                agent.learn([names[action]], [reward])
            given, due = given + policy, due + shares(means, merit.steepness)
            rows: Any = np.arange(arms) if named else contexts
            log.append(Logged(policy, action, rows, names, groups, reward=reward))
            if t + 1 in looks:
                if named:
                    belief = agent.posterior
                    estimate = belief.mean + belief.own_mean(names)
                else:
                    sizes, _ = likely_sizes(pack(gram, moment), squares, t + 1, prior)
                    belief = Posterior(gram, moment, np.zeros(size), sizes, np.zeros(size))
                    estimate = belief.mean
                table = ffx.exposure(log, merit=merit, posterior=belief)
                found[world, looks.index(t + 1)] = judged(table, given, due)
    return found


def judged(table: ffx.Exposure, given: np.ndarray, due: np.ndarray) -> tuple[int, int, float]:
    sums = {f"n{k}": (given[k], due[k]) for k in range(given.size)}
    sums |= {name: (given[k::2].sum(), due[k::2].sum()) for k, name in enumerate(("even", "odd"))}
    verdicts, wrong, surplus = 0, 0, 0.0
    for row in (*table.actions, *table.groups):
        policy, entitled = sums[row.name][0] / row.rounds, sums[row.name][1] / row.rounds
        ratios = policy / entitled, row.shown.value / entitled
        assert row.likely is not None
        for words, right, probability in (
            (BELOW, max(ratios) < LEAST, row.likely.below),
            (ABOVE, min(ratios) > 1 / LEAST, row.likely.above),
            (IN_LINE, min(ratios) >= LEAST and max(ratios) <= 1 / LEAST, row.likely.in_line),
        ):
            verdicts += row.likely.verdict == words
            wrong += row.likely.verdict == words and not right
            surplus += (right - probability) * (probability > 0.5)
    return verdicts, wrong, surplus


LOOKS = (15, 50, 120)


@pytest.mark.long
@pytest.mark.parametrize("named", [True, False])
def test_of_the_verdicts_a_twentieth_is_wrong_at_most(named: bool) -> None:
    """With a right model, over all actions and groups: at every look, and at a look that depends on the
    verdicts, the first with one. 100 worlds, and three standard errors as if all verdicts of a world were
    wrong together: at a rate of 5 % it fails for one seed in 700, and less often since they are not. What
    has a probability above a half is so no less often, to 3.5 standard errors: one seed in 1 400."""
    found = worlds(100, LOOKS, named=named)
    first = np.argmax(found[..., 0] > 0, axis=1)
    at = [found[:, k] for k in range(len(LOOKS))] + [found[np.arange(len(found)), first]]
    for each in at:
        verdicts, wrong, _ = each.sum(axis=0)
        assert verdicts > 40
        assert wrong <= 0.05 * verdicts + 3 * np.sqrt(0.05 * np.square(each[:, 0]).sum())
    assert found[..., 1].sum() > 0  # some are wrong: the rate is no certainty
    surplus = found[..., 2]
    errors = surplus.std(axis=0, ddof=1) / np.sqrt(len(surplus))
    assert (surplus.mean(axis=0) > -3.5 * errors).all()


@pytest.mark.long
def test_what_is_in_no_feature_is_not_seen() -> None:
    """With a wrong model far more verdicts are wrong: what the features don't say is not in the estimate."""
    found = worlds(40, LOOKS, named=False, hidden=0.5)
    verdicts, wrong, _ = found[:, -1].sum(axis=0)
    assert wrong > 0.3 * verdicts


def table_of(log: list[Logged], mean: list[float], sd: float = 0.001) -> dict[str, Any]:
    found = ffx.exposure(log, merit=MERIT, posterior=(np.array(mean), sd**2 * np.eye(len(mean))))
    return {row.name: row.likely for row in (*found.groups, *found.actions)}


def test_luck_alone_is_nobodys_shortfall() -> None:
    """Both shares have to be below, that shown and that of the policy; and both in line."""
    for policy, action, words in (
        ([0.5, 0.5], 0, [UNKNOWN, UNKNOWN]),  # b was never shown, by luck
        ([0.9, 0.1], 0, [ABOVE, BELOW]),
        ([0.9, 0.1], None, [UNKNOWN, UNKNOWN]),  # b should have been shown less
        ([0.5, 0.5], None, [IN_LINE, IN_LINE]),
    ):
        log = [Logged(policy, t % 2 if action is None else action, [0, 1], ["a", "b"]) for t in range(10)]
        log[0].reward = 0.0
        found = table_of(log, [0.0, 0.0])
        assert [found[name].verdict for name in "ab"] == words


def test_the_callers_own_choices_count_as_shown_with_the_luck_of_few() -> None:
    """Among two, of whom the caller took only the first: below after some decisions, not after two."""
    for count, words in ((2, UNKNOWN), (40, BELOW)):
        log = [Logged([0.5, 0.5], 0, [0, 1], ["a", "b"], baseline=True, reward=0.0) for _ in range(count)]
        assert table_of(log, [0.0, 0.0])["b"].verdict == words
    other = [Logged([0.5, 0.5], 0, [0, 1], ["a", "b"], drawn=1, reward=0.0) for _ in range(40)]
    assert table_of(other, [0.0, 0.0])["b"].verdict == BELOW


def test_draws_that_the_caller_withdraws_are_a_shortfall() -> None:
    """Where each draw of b is withdrawn b is below, although the policy and the draws are fair."""
    log = [
        Logged(
            [0.5, 0.5], None if t % 2 else 0, [0, 1], ["a", "b"], drawn=t % 2, reward=None if t % 2 else 0.0
        )
        for t in range(200)
    ]
    found = table_of(log, [0.0, 0.0])
    assert (found["a"].verdict, found["b"].verdict) == (ABOVE, BELOW)
    random = [
        Logged([0.5, 0.5], None if t % 4 < 2 else t % 2, [0, 1], ["a", "b"], drawn=t % 2) for t in range(800)
    ]
    random[2].reward = 0.0
    found = table_of(random, [0.0, 0.0])
    assert (found["a"].verdict, found["b"].verdict) == (IN_LINE, IN_LINE)


def test_given_is_the_policy_of_what_was_drawn_and_what_was_shown_otherwise() -> None:
    """Slots of two weights, with groups, a baseline and a withdrawn slot, decision by decision."""
    from fedfairx.fairness.decision_log import gather
    from fedfairx.fairness.exposure_table import _count

    weights = (1.0, 0.5)
    policy = np.array([0.7, 0.5, 0.3])
    log = [
        Logged(policy, [0, 1], np.eye(3), NAMES, GROUPS, slots=weights),
        Logged(policy, [2, 0], np.eye(3), NAMES, GROUPS, slots=weights, baseline=True),
        Logged(policy, [1, None], np.eye(3), NAMES, GROUPS, drawn=[1, 2], slots=weights),
        Logged(policy, [None, None], np.eye(3), NAMES, GROUPS, drawn=[2, 0], slots=weights),
    ]
    _, (actions, groups) = _count(gather(log), None, MERIT, 1)
    a = 0.7 + 0.5 + 0.7 + (0.7 - 0.5)
    b = 0.5 + 0.0 + (1.0 - 1.0 + 0.5) + 0.5
    c = 0.3 + 1.0 + (0.3 - 0.5) + (0.3 - 1.0)
    assert actions.without_luck == pytest.approx([a, b, c])
    assert groups.without_luck == pytest.approx([a + b])
    assert actions.luck == pytest.approx([0.5 + 0.7 + 0.7, 0.5 + 0.5, 1.0 + 0.3 + 0.3])
    assert actions.free.tolist() == [3, 3, 3]
    assert (actions.first.tolist(), actions.last.tolist()) == ([0, 0, 0], [3, 3, 3])
    whole = SharesSoFar.of(actions)
    assert whole.error == pytest.approx(np.sqrt(actions.luck + 1.0) / actions.weight)


def test_the_words_of_probabilities() -> None:
    assert verdict(0.95, 0.0, 0.05) == BELOW
    assert verdict(0.0, 0.0, 0.95) == ABOVE
    assert verdict(0.02, 0.95, 0.02) == IN_LINE
    assert verdict(0.94, 0.05, 0.0) == UNKNOWN
    shares = SharesSoFar(np.array([0.5]), np.array([0.5]), np.array([0.0]))
    for agree, words in ((190, BELOW), (189, UNKNOWN)):  # of 199
        due = np.where(np.arange(199) < agree, 0.9, 0.5)[None]
        found = [float(each[0]) for each in probabilities(shares, due, 0.2)]
        assert found[0] == agree / 200
        assert verdict(*found) == words


def test_before_the_first_reward_nobody_is_judged() -> None:
    log = [Logged([0.9, 0.1], 0, [0, 1], ["a", "b"]) for _ in range(50)]
    table = ffx.exposure(log, posterior=(np.zeros(2), 1e-6 * np.eye(2)))
    assert {row.likely.verdict for row in table.actions if row.likely} == {UNKNOWN}
    assert "rests on no reward yet" in table.summary()


def test_who_left_is_marked() -> None:
    """Absent for more than twenty times the distance of its rounds; seen in five at least."""
    log = [Logged([0.5, 0.5], 0, [0, 1], ["a", "gone"]) for _ in range(10)]
    log += [Logged([0.5, 0.5], 0, [0, 2], ["a", "seldom"]) if t % 30 == 0 else Logged([1.0], 0, [0], ["a"])
            for t in range(200)]  # fmt: skip
    for count, gone in ((20, False), (21, True), (150, True)):
        rows = {row.name: row.left for row in ffx.exposure(log[: 10 + count]).actions}
        assert rows == {"a": False, "gone": gone, "seldom": False}, count


def test_the_summary_says_who_of_the_unfairly_treated_has_left() -> None:
    """In each period one gets 0.9 instead of its fair share, and the next period has other actions."""

    def told(*periods: list[str]) -> str:
        log = []
        for names in periods:
            others = len(names) - 1
            policy = [0.9, *[0.1 / others] * others] if others else [1.0]
            rows = np.ones((len(names), 1))  # all are alike
            log += [Logged(policy, 0, rows, names, reward=0.0) for _ in range(40)]
        return ffx.exposure(log, merit=MERIT, posterior=(np.zeros(1), np.eye(1))).summary()

    assert told(["a", "b"]) == "Of 2 actions, 1 is likely below and 1 is likely above."
    gone, both = "1 is likely below (it has left)", "2 are likely below (all have left)"
    assert told(["a", "b"], ["a"]) == f"Of 2 actions, {gone} and 1 is likely above."
    assert f"3 actions, {both}" in told(["a", "b", "c"], ["a"])
    some = told(["a", "b"], ["c", "d"])
    assert some.endswith(
        "2 are likely below (1 of them has left) and 2 are likely above (1 of them has left)."
    )


def test_the_summary_counts_everybody() -> None:
    log = [Logged([0.9, 0.1], t % 2, [0, 1], ["a", "b"], ["g", "h"], reward=0.0) for t in range(40)]
    for decision in log:
        decision.action = 0
    table = ffx.exposure(log, merit=MERIT, posterior=(np.zeros(2), 1e-6 * np.eye(2)))
    assert table.summary() == "Of 2 actions and 2 groups, 2 are likely below and 2 are likely above."
    text = str(table)
    assert text.index("g  ") < text.index("a  ")
    assert "likely below" in text
    assert "likely below" in table._repr_html_()
    unknown = ffx.exposure([Logged([0.5, 0.5], 0)])
    assert unknown.summary() == "Nobody is judged: there is no model of the rewards."
    assert "half" not in unknown.summary()
    changing = ffx.exposure(log, posterior=(np.zeros(2), np.eye(2)), changing=True)
    assert changing.summary().startswith("Nobody is judged: merit")
    assert ffx.exposure([]).summary() == "Nothing is known: no decision has shown an action."
    assert table.claims()[0].startswith('"Estimated" is')  # the intervals that a table shows come first
    assert any("all certain intervals of actions" in claim for claim in table.claims())
    claims = " ".join(table.claims())
    assert "at most 5 % are wrong on average" in claims
    assert "can't see that the model is wrong" in claims
