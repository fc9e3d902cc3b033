"""One object of options: the keywords are its fields, and what it makes is the same wherever it is used."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.options import SCALE, Keywords, Options
from fedfairx.agent.schedules import Determinant, EveryRound, Plan, timetable
from fedfairx.core.learner import NOISE_SD
from fedfairx.core.learner import SCALE as LEARNER_SCALE
from fedfairx.errors import InvalidInput
from fedfairx.federation.roster.terms import Terms
from fedfairx.lanes.rows import vectors
from fedfairx.privacy import Bounds, Centring, NonPrivateSums, SimulatedNoise
from fedfairx.simulation.kernel.setup import prepare
from fedfairx.simulation.kernel.state import lane_state

WORLD = ffx.Scenario(agents=3, arms=4, dimension=2, horizon=60, noise_sd=0.3)
SIZE = {"agents": 3, "dimension": 2, "horizon": 60}


def test_keywords_are_the_fields() -> None:
    assert list(Keywords.__annotations__) == [item.name for item in fields(Options)]


@pytest.mark.parametrize("name", ["priv-fairx-linucb", "priv-fairx-bayes"])
def test_what_is_simulated_is_what_is_deployed(name: str) -> None:
    options = WORLD.options(algorithm=name, epsilon=2.0, minimum_share=0.02)
    federation = ffx.Federation(options=options, seed=0, **SIZE)
    agent = federation.agents[0]
    setting = prepare(WORLD, options, (0,), np.array([60]))
    mechanism = agent.privatizer.mechanism
    assert (
        options.budget(1).summed_bounds.sensitivity < 0.8 * WORLD.bounds.sensitivity
    )  # clipped around the middle of the scenario's box
    assert mechanism.digest() == options.budget(setting.sharing.most).calibrate().digest()
    noisy = 3 if agent.decide_from == "released" else 2  # its own are exact beside the others'
    assert setting.privacy.sum_sd[0] == pytest.approx(np.sqrt(noisy) * mechanism.sd(1))
    assert setting.least_share == agent.options.minimum_share == 0.02
    if name == "priv-fairx-linucb":
        assert agent.options.confidence == ffx.Confidence(noise_sd=0.3, scale=SCALE)
        numbers = lane_state(vectors(setting.lane_states[0]), SIZE["dimension"]).learner.numbers
        assert (numbers[NOISE_SD][0], numbers[LEARNER_SCALE][0]) == (0.3, SCALE)
    given = ffx.simulate(WORLD, seeds=2, options=options)
    spelt = ffx.simulate(WORLD, seeds=2, algorithm=name, epsilon=2.0, minimum_share=0.02)
    assert given.options == spelt.options
    assert given.fairness_regret.tobytes() == spelt.fairness_regret.tobytes()


@pytest.mark.parametrize(
    ("name", "decide_from"),
    [("priv-fairx-bayes", "own+released"), ("priv-fairx-linucb", "released"), ("b2", "released")],
)
def test_what_private_agents_decide_from_by_default(name: str, decide_from: str) -> None:
    """The strict mode is for who asks for it, but for the algorithms that follow the paper."""
    given: dict[str, Any] = {"algorithm": name, "epsilon": 2.0}
    assert Options(**given).composed.decide_from == decide_from
    federation = ffx.Federation(seed=0, **SIZE, **given)
    assert {agent.decide_from for agent in federation.agents} == {decide_from}
    assert federation.privacy.decide_from == decide_from
    assert ffx.simulate(WORLD, seeds=1, **given).options["decide_from"] == decide_from
    by_hand = ffx.simulate(WORLD, seeds=1, decide_from=decide_from, **given)
    assert (
        ffx.simulate(WORLD, seeds=1, **given).fairness_regret.tobytes() == by_hand.fairness_regret.tobytes()
    )


def test_defaults_of_taste_are_the_same_everywhere() -> None:
    agent = ffx.Federation(algorithm="fed-fairx-linucb", seed=0, **SIZE).agents[0]
    assert agent.options.confidence == ffx.Confidence(scale=SCALE)
    known = replace(WORLD, noise_sd=agent.options.confidence.noise_sd).options(algorithm="fed-fairx-linucb")
    assert known.region == agent.options.confidence
    for alone in (ffx.Agent(2, algorithm="fed-fairx-linucb"), ffx.Agent(2, rule="optimism")):
        assert alone.options.confidence == agent.options.confidence


def test_an_arm_has_its_least_share_in_a_simulation_too() -> None:
    world = replace(WORLD, horizon=300)
    for name in ("fairx-bayes", "fairx-linucb"):
        free, held = (
            ffx.simulate(world, algorithm=name, seeds=2, exposure=True, minimum_share=least)
            for least in (0.0, 0.2)
        )
        # Every policy is 0.2 and a fifth of what it was: 4 arms.
        assert free.exposure.min() < 0.2
        assert (held.exposure >= 0.2).all()
        assert held.exposure.sum(axis=1) == pytest.approx(1.0)


def test_a_federation_keeps_its_options_and_a_new_run_changes_the_budget() -> None:
    federation = ffx.Federation(algorithm="priv-fairx-bayes", epsilon=2.0, seed=0, **SIZE)
    assert federation.options == Options(algorithm="priv-fairx-bayes", epsilon=2.0)
    federation.new_run(30, epsilon=1.0)
    assert federation.options == Options(algorithm="priv-fairx-bayes", epsilon=1.0)


def test_a_mechanism_of_ones_own_is_deployed_too() -> None:
    from fedfairx.privacy import calibrate

    def louder(**budget: Any) -> Any:
        tree = calibrate("tree", **budget)
        return replace(tree, base_sd=2 * tree.base_sd)

    quiet, loud = (
        ffx.Federation(algorithm="priv-fairx-bayes", epsilon=2.0, seed=0, mechanism=made, **SIZE)
        for made in ("tree", louder)
    )
    sds = [float(fed.agents[0].privatizer.mechanism.sd(1)) for fed in (quiet, loud)]
    assert sds[1] == pytest.approx(2 * sds[0])


@pytest.mark.parametrize("takes", [partial(ffx.Federation, **SIZE), partial(ffx.simulate, WORLD)])
def test_options_and_keywords_at_once_are_refused(takes: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^shift must be left out where options are given"):
        takes(options=Options(), shift=2.0)
    with pytest.raises(InvalidInput, match=r"^options must be Options"):
        takes(options={"shift": 2.0})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reward_rnage", "there is no option reward_rnage: did you mean reward_range?"),
        ("features", "there is no option features: give a schema"),
        ("xyzzy", "there is no option xyzzy"),
    ],
)
def test_a_name_that_is_no_option(name: str, text: str) -> None:
    with pytest.raises(TypeError) as error:
        ffx.Agent(3, **{name: 1})  # type: ignore[arg-type]
    assert str(error.value) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"prior": 0.5}, "prior must be a Prior"),
        ({"bounds": 1.0}, "bounds must be a Bounds"),
        ({"centring": "middle"}, "centring must be a Centring"),
        ({"confidence": ffx.Confidence()}, "confidence is for rule='optimism'"),
        ({"solver": "pgd"}, "solver is for rule='optimism'"),
        ({"algorithm": "b0", "prior": ffx.Prior()}, "prior is not for rule='optimism'"),
        ({"minimum_share": 1.0}, "minimum_share must be a finite number >= 0 and < 1"),
        ({"shift": -1.0}, "shift must be a finite number >= 0"),
        ({"algorithm": "priv-fairx-bayes"}, "epsilon must be given for priv-fairx-bayes"),
        ({"algorithm": "priv-fairx-bayes", "epsilon": 1.0, "schedule": "determinant"}, "decide_from must be"),
    ],
)
def test_what_contradicts_itself_is_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{text}"):
        Options(**given)


def test_a_public_point_of_another_dimension_is_refused() -> None:
    point = Centring.unit_box(3)
    for takes in (partial(ffx.Federation, **SIZE), partial(ffx.simulate, WORLD)):
        with pytest.raises(InvalidInput, match="centring must have dimension 2"):
            takes(algorithm="priv-fairx-bayes", epsilon=1.0, centring=point)


def test_a_private_agent_needs_a_privatizer() -> None:
    options = Options(algorithm="priv-fairx-bayes", epsilon=1.0, bounds=Bounds(reward=2.0))
    with pytest.raises(InvalidInput, match=r"^privatizer must be given for priv-fairx-bayes"):
        ffx.Agent(2, options=options)
    made = options.privatizer(2, releases=5, noise=SimulatedNoise(0, agent=0))
    agent = ffx.Agent(2, options=options, privatizer=made, seed=0)
    assert (agent.decide_from, agent.rule, agent.private) == ("own+released", "expected-merit", True)
    assert isinstance(ffx.Agent(2, options=Options()).privatizer, NonPrivateSums)


# --- what a schedule means for a plan ----------------------------------------------------------------


def test_a_public_timetable_knows_its_rounds() -> None:
    table = timetable(EveryRound(), Plan(3, 2, 2))
    assert (table.threshold, table.most) == (0.0, 3)
    assert [table.is_due(t, since=1, growths=(1e9,), releases=0) for t in range(5)] == [
        False,
        *[True] * 3,
        False,
    ]


def test_data_decide_where_a_schedule_is_not_public() -> None:
    table = timetable(Determinant(threshold=4.0, cap=2), Plan(9, 2, 2))
    assert table.is_due(5, since=5, growths=(0.1, 0.9), releases=1)
    assert not table.is_due(5, since=5, growths=(0.1, 0.8), releases=1)  # 5 · 0.8 does not exceed 4
    assert not table.is_due(5, since=5, growths=(0.1, 0.9), releases=2)
    assert table.is_due(9, since=5, growths=(0.1, 0.9), releases=1)  # the last round
    assert not table.is_due(10, since=5, growths=(0.1, 0.9), releases=1)


def test_a_schedule_that_is_not_public_says_what_the_data_must_pass() -> None:
    class Secret(EveryRound):
        public = False

    with pytest.raises(InvalidInput, match=r"^schedule must be public, or have a threshold > 0"):
        timetable(Secret(), Plan(3, 2, 2))


# --- secure aggregation -----------------------------------------------------------------------------------

SECURE = {"algorithm": "priv-fairx-bayes", "epsilon": 2.0, "aggregation": "secure"}


def test_secure_aggregation_shares_the_noise() -> None:
    options = Options(**SECURE)
    budget = options.budget(20, agents=10)
    assert (budget.share.colluding, budget.share.honest) == (2, 8)  # the default: a fifth
    assert replace(options, colluding=4).budget(20, agents=10).share.honest == 6
    plain = replace(options, aggregation="plain").budget(20, agents=10)
    assert plain.share is None
    assert plain == replace(options, aggregation="plain").budget(20)
    assert budget.calibrate().sd(3) == pytest.approx(plain.calibrate().sd(3) / np.sqrt(8))
    assert options.summary()["aggregation"] == "secure"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"aggregation": "some"}, "aggregation must be one of plain, secure"),
        ({"aggregation": "plain", "colluding": 1}, "colluding is for aggregation='secure'"),
        ({"colluding": 0}, "colluding must be a whole number >= 1"),
        ({"colluding": True}, "colluding must be a whole number >= 1"),
        ({"decide_from": "released+local"}, "decide_from must be released or own\\+released with secure"),
        ({"algorithm": "b1"}, "aggregation must be 'plain' for b1, whose schedule looks at the data"),
        (
            {"algorithm": "fed-fairx-bayes", "epsilon": None},
            "aggregation must be 'plain' for fed-fairx-bayes, which is not private",
        ),
    ],
)
def test_secure_aggregation_refuses(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Options(**{**SECURE, **given})


def test_where_secure_aggregation_does_not_work_it_says_where_it_does() -> None:
    where = "aggregation must be 'plain' .*secure aggregation is for simulate, Federation and the terms of"
    options = Options(**SECURE)
    with pytest.raises(InvalidInput, match=where):
        options.budget(20)
    with pytest.raises(InvalidInput, match=where):
        options.privatizer(2, releases=20, noise=SimulatedNoise(0))
    plain = replace(options, aggregation="plain").privatizer(2, releases=20, noise=SimulatedNoise(0))
    with pytest.raises(InvalidInput, match=where):
        ffx.Agent(2, options=options, privatizer=plain)
    assert Terms(dimension=2, agents=5, horizon=60, options=options).secure
    shared = options.privatizer(2, releases=20, noise=SimulatedNoise(0), agents=3)
    assert "hub" in str(ffx.Agent(2, options=options, privatizer=shared).privatizer.guarantee)
    with pytest.raises(InvalidInput, match="members must be at least 3 for secure aggregation"):
        ffx.Federation(options=options, **{**SIZE, "agents": 2})
