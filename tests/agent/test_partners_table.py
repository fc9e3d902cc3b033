"""An agent's partners: the table, and what one odd partner does to the others' worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.partners import Judge
from fedfairx.core.partners import LEVELS, PRIOR_WEIGHTS
from fedfairx.errors import InvalidInput
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import SimulatedNoise, private

THETA = np.array([0.8, 0.1, 0.3])


def taught(
    name: str, theta: np.ndarray, count: int, *, partners: str = "differ", seed: int = 0, **more: object
) -> ffx.Agent:
    """An agent that has seen `count` rewards of this θ."""
    agent = ffx.Agent(3, partners=partners, name=name, seed=seed, **more)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, 3)) / np.sqrt(3)
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
    judges = [Judge(own, np.zeros(3), size=1.0, ridge=1.0, variance=0.01) for _ in range(2)]
    found = judges[0].together({"a": release, "b": release}, {"a": sd, "b": sd}, {})
    assert found.weights["a"] == pytest.approx(found.weights["b"])
    whole = 2.0 * release
    power = judges[1]._power(whole, np.sqrt(2.0) * sd, found.weights["a"])
    assert found.told == pytest.approx(power * whole)
    assert found.powers == pytest.approx({"a": power, "b": power})


@pytest.mark.parametrize("partners", [1, 3])
def test_when_all_contradict_beyond_doubt_nobody_is_believed(partners: int) -> None:
    """So many records that every power but 0 has no weight left in floating point."""
    rows = np.triu_indices(3)
    own = np.concatenate([(1e4 * np.eye(3))[rows], np.full(3, 1e4)])
    others = {str(i): np.concatenate([(1e5 * np.eye(3))[rows], np.full(3, -1e5)]) for i in range(partners)}
    judge = Judge(own, np.zeros(3), size=3.0, ridge=1.0, variance=0.01)
    judged = judge.together(others, dict.fromkeys(others, 0.0), {})
    assert all(weights.tolist() == [1.0, *[0.0] * (LEVELS - 1)] for weights in judged.weights.values())
    assert set(judged.powers.values()) == {0.0}
    assert judged.told.tolist() == [0.0] * own.size


def test_reasons_in_words() -> None:
    few, many = taught("few", THETA, 1), taught("many", THETA, 500, seed=1)
    told(few, many)
    assert few.partners["many"].reason == "too little of our own to tell"
    off = taught("off", THETA + 0.1, 500, seed=2)
    told(many, off)
    assert many.partners["off"].reason == "differs: predicts our rewards in part"
    assert 0.0 < many.partners["off"].weight < 0.3


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
        return private(3, epsilon=8.0, delta=1e-6, releases=9, noise=noise, decide_from="released")

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
    one.save(tmp_path / "a.json")
    assert repr(ffx.Agent.load(tmp_path / "a.json").partners) == repr(one.partners)


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
