"""An agent's partners: the table, and what one odd partner does to the others' worth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.partners import CONTRADICTS, TOO_LITTLE_TO_TELL, Judge, reason
from fedfairx.agent.schedules import Doubling
from fedfairx.core.partners import LEVELS, PRIOR_WEIGHTS
from fedfairx.core.statistics import pack
from fedfairx.errors import InvalidInput
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import SimulatedNoise, private

THETA = np.array([0.8, 0.1, 0.3])


def taught(
    name: str, theta: np.ndarray, count: int, *, partners: str = "differ", seed: int = 0, **more: object
) -> ffx.Agent:
    """An agent that has seen `count` rewards of this θ, with a wide prior, so that few tell much."""
    prior = ffx.Prior(sd=0.5, noise_sd=0.5)
    agent = ffx.Agent(3, partners=partners, name=name, seed=seed, **{"prior": prior, **more})  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, 3)) / np.sqrt(3)
    if count:
        agent.learn(contexts, contexts @ theta + 0.1 * rng.normal(size=count))
    return agent


def told(*agents: ffx.Agent) -> None:
    """Everybody releases, and takes everybody's release."""
    releases = {agent.name: agent.release() for agent in agents}
    for agent in agents:
        agent.absorb(releases)


def test_one_odd_partner_gets_next_to_no_weight_and_the_others_keep_theirs() -> None:
    good = [taught(f"good-{i}", THETA, 400, seed=i) for i in range(4)]
    told(*good, taught("odd", -THETA, 400, seed=9))
    assert good[0]._model.learner.count == 5 * 400  # those of one that is not believed are there, too
    partners = good[0].partners
    assert partners["odd"].weight < 1e-3
    assert partners["odd"].reason == "contradicts our rewards"
    for name in ("good-1", "good-2", "good-3"):
        assert partners[name].weight > 0.4
        assert partners[name].reason.startswith("predicts our rewards")


def test_decisions_come_from_own_sums_and_each_release_by_its_weight() -> None:
    agents = [taught(f"agent-{i}", THETA, 50, seed=i) for i in range(4)]
    told(*agents)
    held, partners = agents[0].held, agents[0].partners
    expected = held["agent-0"].packed + sum(
        each.weight * held[name].packed for name, each in partners.items()
    )
    assert agents[0]._model.learner.statistics == pytest.approx(expected, rel=1e-12)


def test_noise_of_several_partners_adds_up_in_squares() -> None:
    """Two that say the same with the same noise are one that says twice that, with √2 of the noise."""
    mine, other = taught("mine", THETA, 60), taught("other", THETA, 80, seed=1)
    own, release, sd = mine.own_sums(), other.release().packed, 5.0
    assert own is not None
    judges = [Judge(own, np.zeros(4), size=1.0, ridge=1.0, variance=0.01, observed=60) for _ in range(2)]
    found = judges[0].together({"a": release, "b": release}, {"a": sd, "b": sd}, {})
    assert found.weights["a"] == pytest.approx(found.weights["b"])
    whole = 2.0 * release
    power = judges[1]._power(whole, np.sqrt(2.0) * sd, found.weights["a"])
    assert found.statistics == pytest.approx(power * whole)
    assert found.powers == pytest.approx({"a": power, "b": power})


@pytest.mark.parametrize("partners", [1, 3])
def test_when_all_contradict_beyond_doubt_nobody_is_believed(partners: int) -> None:
    """So many records that every power but 0 has no weight left in floating point."""
    rows = np.triu_indices(3)
    own = np.concatenate([(1e4 * np.eye(3))[rows], np.full(3, 1e4)])
    others = {str(i): np.concatenate([(1e5 * np.eye(3))[rows], np.full(3, -1e5)]) for i in range(partners)}
    judge = Judge(own, np.zeros(3), size=3.0, ridge=1.0, variance=0.01, observed=1e4)
    judged = judge.together(others, dict.fromkeys(others, 0.0), {})
    assert all(weights.tolist() == [1.0, *[0.0] * (LEVELS - 1)] for weights in judged.weights.values())
    assert set(judged.powers.values()) == {0.0}
    assert judged.statistics.tolist() == [0.0] * own.size


def warned_of(seed: int, poorer: int = 0, **how: Any) -> list[bool]:
    """Whether five members say of each other that they differ, after 8, 16, 32, 64 and 128 rewards each."""
    fed = ffx.Federation(
        agents=5,
        dimension=3,
        horizon=150,
        partners="differ",
        schedule=Doubling(start=8),
        reward_range=(0, 1),
        seed=seed,
        **how,
    )
    rng, found = np.random.default_rng(seed), []
    theta = rng.random(3)
    theta /= np.linalg.norm(theta)
    for _ in range(150):
        for i, agent in enumerate(fed.agents):
            contexts = rng.random((4, 3)) / np.sqrt(3)
            decision = agent.decide(contexts)
            success = rng.random() < contexts[decision.action] @ theta
            agent.observe(decision, reward=float(success and (i >= poorer or rng.random() < 0.2)))
        if fed.end_round():
            found += [each.differs for agent in fed.agents for each in agent.partners.values()]
    return found


SECRET = {"algorithm": "priv-fairx-bayes", "delta": 1e-6, "decide_from": "own+released"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "judgements"),
    [
        ({"algorithm": "fed-fairx-bayes"}, 1000),
        ({**SECRET, "epsilon": 2.0}, 1000),
        ({**SECRET, "epsilon": 2.0, "aggregation": "secure"}, 250),
    ],
)
def test_members_who_are_alike_are_not_said_to_differ(how: dict[str, Any], judgements: int) -> None:
    """At most 1 in 1000 judgements may be wrong; more than 5 of 1000 would be so with a chance of 6e-4."""
    found = [each for seed in range(10) for each in warned_of(seed, **how)]
    assert len(found) == judgements
    assert sum(found) <= 5


@pytest.mark.long
def test_members_who_differ_are_still_said_to() -> None:
    """Three of five succeed a fifth as often. After 128 rewards each knows who is like itself."""
    for seed in range(3):
        found = warned_of(seed, poorer=3, algorithm="fed-fairx-bayes")[-20:]
        apart = [(i < 3) != (j < 3) for i in range(5) for j in range(5) if i != j]
        assert found == apart


def test_how_sure_it_must_be_to_say_that_a_partner_differs() -> None:
    weights = np.zeros(LEVELS)
    for share, observed, says in (
        (0.9e-3, 32, CONTRADICTS),
        (0.9e-3, 31, TOO_LITTLE_TO_TELL),
        (1.1e-3, 32, TOO_LITTLE_TO_TELL),
        (6.0, 32, "predicts our rewards"),
    ):
        weights[-1] = share * PRIOR_WEIGHTS[-1]
        weights[0] = 1.0 - weights[-1]
        assert reason(weights, 1.0, observed) == says


def test_reasons_in_words() -> None:
    few, many = taught("few", THETA, 1), taught("many", THETA, 500, seed=1)
    told(few, many)
    assert few.partners["many"].reason == "too little of our own to tell"
    off = taught("off", THETA + 0.1, 500, seed=2)
    told(many, off)
    assert many.partners["off"].reason == "differs: predicts our rewards in part"
    assert 0.0 < many.partners["off"].weight < 0.3


def hostile(name: str, count: int) -> ffx.Agent:
    """One that claims `count` records of the opposite θ."""
    agent = taught(name, -THETA, 0)
    contexts = np.tile(np.eye(3), (count // 3, 1))
    agent.learn(contexts, contexts @ -THETA)
    return agent


CHOICE = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # rewards 0.8 and 0.1


@pytest.mark.parametrize("own", [0, 1, 10, 100])
def test_one_hostile_partner_of_five_decides_nothing_before_our_own_rewards_or_later(own: int) -> None:
    """It claims 30 times the records of all others together. Those who take all for alike follow it."""
    for records in (200, 24_000):
        shares = []
        for partners, members in (("differ", 4), ("differ", 5), ("alike", 5)):
            good = [taught(f"good-{i}", THETA, 200, seed=i) for i in range(4)]
            bad = [hostile("bad", records)] if members == 5 else []
            here = taught("here", THETA, own, partners=partners, seed=9)
            here.absorb({agent.name: agent.release() for agent in (*good, *bad)})
            shares.append(here.policy(CHOICE)[0])
        without, weighed, alike = shares
        assert without > 0.95
        assert weighed > without - 0.01
        assert alike < (0.5 if records == 200 else 0.01)


@pytest.mark.parametrize("own", [0, 10])
def test_a_hostile_private_partner_decides_nothing_either(own: int) -> None:
    """It adds no noise, and claims five times the records of all others together."""

    def member(place: int, name: str, partners: str = "differ") -> ffx.Agent:
        noise = SimulatedNoise(0, agent=place)
        budget: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "releases": 2, "decide_from": "own+released"}
        return taught(
            name, THETA, 0, partners=partners, intercept=False, privatizer=private(3, noise=noise, **budget)
        )

    rng, releases = np.random.default_rng(0), {}
    for i in range(4):
        contexts, agent = rng.random((1000, 3)) / np.sqrt(3), member(i, f"good-{i}")
        agent.learn(contexts, contexts @ THETA + 0.1 * rng.normal(size=1000))
        releases[agent.name] = agent.release()
    count = 20_000
    gram, moment = np.diag(np.full(3, count / 3)), np.full(3, count / 3) * -THETA
    bad = replace(releases["good-0"], packed=pack(gram, moment), count=count)
    shares = []
    for partners, held in (
        ("differ", releases),
        ("differ", {**releases, "bad": bad}),
        ("alike", {**releases, "bad": bad}),
    ):
        here = member(9, "here", partners)
        contexts = rng.random((own, 3)) / np.sqrt(3)
        if own:
            here.learn(contexts, contexts @ THETA + 0.1 * rng.normal(size=own))
        here.absorb(held)
        shares.append(here.policy(CHOICE)[0])
    without, weighed, alike = shares
    assert without > 0.9
    assert weighed > without - 0.02
    assert alike < 0.01


@pytest.mark.parametrize("order", ["bad, good-0, good-1", "good-0, good-1, bad", "good-0, bad, good-1"])
def test_who_comes_first_is_judged_again_when_others_come(order: str) -> None:
    agents = {f"good-{i}": taught(f"good-{i}", THETA, 200, seed=i) for i in range(2)}
    agents["bad"] = hostile("bad", 6000)
    here = taught("here", THETA, 0)
    for name in order.split(", "):
        here.absorb({name: agents[name].release()})
    assert here.policy(CHOICE)[0] > 0.95
    partners = here.partners
    assert partners["bad"].weight < 1e-4
    assert partners["bad"].reason == "too little of our own to tell; most other partners contradict it"
    assert {partners[f"good-{i}"].reason for i in range(2)} == {"too little of our own to tell"}


def test_of_two_that_contradict_each_other_neither_counts_before_our_own_rewards() -> None:
    good, bad = taught("good", THETA, 200), hostile("bad", 6000)
    here = taught("here", THETA, 0)
    here.absorb({agent.name: agent.release() for agent in (good, bad)})
    for name, records in (("good", 200), ("bad", 6000)):
        assert here.partners[name].weight * records < 1.0
    rng = np.random.default_rng(3)
    contexts = rng.random((16, 3)) / np.sqrt(3)
    here.learn(contexts, contexts @ THETA)  # they tell who is right
    assert here.partners["good"].weight > 100 * here.partners["bad"].weight
    assert here.policy(CHOICE)[0] > 0.99


def test_our_own_rewards_overrule_what_most_partners_say() -> None:
    """Two partners are like us, and three are the opposite."""
    agents = [taught(f"far-{i}", -THETA, 200, seed=i) for i in range(3)]
    agents += [taught(f"near-{i}", THETA, 200, seed=5 + i) for i in range(2)]
    here = taught("here", THETA, 0, seed=8)
    here.absorb({agent.name: agent.release() for agent in agents})
    assert here.policy(CHOICE)[0] < 0.05
    rng = np.random.default_rng(3)
    contexts = rng.random((32, 3)) / np.sqrt(3)
    here.learn(contexts, contexts @ THETA + 0.1 * rng.normal(size=32))
    partners = here.partners
    assert max(partners[f"far-{i}"].weight for i in range(3)) < 1e-3
    assert min(partners[f"near-{i}"].weight for i in range(2)) > 0.4


def test_other_members_totals_have_nobody_to_judge_them_but_us() -> None:
    """With secure aggregation they are one sum: a hostile member in it counts until own rewards tell."""
    here = taught("here", THETA, 0)
    here.absorb({"bad": hostile("bad", 6000).release()})
    assert here.partners["bad"].reason == "too little of our own to tell"
    assert here.policy(CHOICE)[0] < 0.01


def test_only_a_partner_whose_release_is_new_is_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [taught(f"agent-{i}", THETA, 50, seed=i) for i in range(4)]
    told(*agents)
    judged: list[float] = []
    monkeypatch.setattr(Judge, "weights", lambda *_: judged.append(1.0) or PRIOR_WEIGHTS.copy())
    agents[0].absorb({"agent-2": agents[2].release()})
    assert len(judged) == 1
    agents[0].learn(np.full((14, 3), 0.3), [0.3] * 14)  # 64 own rewards: all are judged again
    assert len(judged) == 1 + 3


def test_who_is_told_that_all_are_alike_believes_all() -> None:
    one, two = (taught(name, sign * THETA, 300, partners="alike") for name, sign in (("a", 1), ("b", -1)))
    told(one, two)
    assert (one.partners["b"].weight, one.partners["b"].reason) == (
        1.0,
        "assumed to be alike, as configured",
    )


def test_before_a_release_of_its_own_and_where_it_can_not_tell() -> None:
    one, two = (taught(name, THETA, 9) for name in ("a", "b"))
    one.absorb({"b": two.release()})
    assert 0.0 < one.partners["b"].weight < 1.0

    def privatizer(name: str, agent: int) -> ffx.privacy.Privatizer:
        noise = SimulatedNoise(0, agent=agent)
        return private(
            3, epsilon=8.0, delta=1e-6, releases=9, noise=noise, decide_from="released", intercept=True
        )

    secret = [taught(name, THETA, 9, privatizer=privatizer(name, i)) for i, name in enumerate("cd")]
    told(*secret)
    assert secret[0].partners["d"].reason.startswith("taken for alike: decisions come from releases alone")


def test_it_is_a_table() -> None:
    one, two = (taught(name, THETA, 300, seed=i) for i, name in enumerate("ab"))
    assert len(one.partners) == 0
    told(one, two)
    partners = one.partners
    lines = repr(partners).splitlines()
    assert lines[0].split() == ["partner", "releases", "observations", "weight", "reason"]
    assert lines[2].split()[:3] == ["b", "1", "300"]
    assert "<td>b</td>" in partners._repr_html_()
    frame = partners.to_frame()
    assert frame.columns.tolist()[0] == "name"
    assert frame.weight.tolist() == [partners["b"].weight]
    assert list(partners) == ["b"]


def test_a_loaded_agent_judges_as_before(tmp_path: Path) -> None:
    one, two = (taught(name, sign * THETA, 300) for name, sign in (("a", 1), ("b", -1)))
    told(one, two)
    one.save(tmp_path / "a.db")
    assert repr(ffx.Agent.load(tmp_path / "a.db").partners) == repr(one.partners)


def test_a_stored_agent_judges_partners_by_each_other_as_before(tmp_path: Path) -> None:
    """To the bit, restarted after each step or never; `bad` comes first and is judged again by the others."""
    releases = {name: taught(name, THETA, 200, seed=i).release() for i, name in enumerate("cd")}
    releases = {"bad": hostile("bad", 6000).release(), **releases}
    options: dict[str, Any] = {"dimension": 3, "partners": "differ", "name": "here", "seed": 0}
    never = ffx.Agent.open(tmp_path / "never.db", **options)
    for name, release in releases.items():
        never.absorb({name: release})
        with ffx.Agent.open(tmp_path / "always.db", **options) as always:
            always.absorb({name: release})
        with ffx.Agent.open(tmp_path / "always.db", **options) as always:
            for agent in (never, always):
                agent.learn(np.full((2, 3), 0.3), [0.3, 0.4])
    with never, ffx.Agent.open(tmp_path / "always.db", **options) as always:
        assert repr(always.partners) == repr(never.partners)
        assert always._exchange.trust == never._exchange.trust
        assert always._exchange.powers == never._exchange.powers
        assert always._model.learner.statistics.tolist() == never._model.learner.statistics.tolist()
        assert never._exchange.trust["bad"] < 1e-3


def test_members_of_a_federation_may_differ_unless_told_otherwise() -> None:
    terms = Terms(dimension=3, agents=2, horizon=9, algorithm="fed-fairx-bayes")
    assert terms.agent("a").options.partners == "differ"
    assert terms.agent("a", partners="alike").options.partners == "alike"
    paper = Terms(dimension=3, agents=2, horizon=9, algorithm="fed-fairx-linucb")
    assert paper.agent("a").options.partners == "alike"


def test_what_has_no_posterior_refuses_partners_who_differ() -> None:
    with pytest.raises(InvalidInput, match="partners must be 'alike' for rule='optimism'"):
        ffx.Agent(3, rule="optimism", partners="differ")
    with pytest.raises(InvalidInput, match="do not decide from their own exact data"):
        ffx.Options(
            algorithm="priv-fairx-bayes", epsilon=1.0, decide_from="released+local", partners="differ"
        )
