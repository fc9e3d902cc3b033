"""An agent's partners: the table, and what one odd partner does to the others' worth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import InvalidInput
from fedfairx.federation.terms import Terms
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


def test_one_odd_partner_gets_no_weight_and_the_others_keep_theirs() -> None:
    good = [taught(f"good-{i}", THETA, 400, seed=i) for i in range(4)]
    told(*good, taught("odd", -THETA, 400, seed=9))
    partners = good[0].partners
    assert [each.weight for each in partners.values()] == [1.0, 1.0, 1.0, 0.0]
    assert partners["odd"].reason == "contradicts our rewards: over a million times likelier if it differs"
    assert partners["odd"].difference >= 0.32
    assert partners["good-1"].reason == "predicts our rewards"
    total = sum(unlifted(agent) for agent in good)
    assert unlifted(good[0], shared=True) == pytest.approx(total, rel=1e-9)


def unlifted(agent: ffx.Agent, *, shared: bool = False) -> np.ndarray:
    """The Gram of what an agent decides from, or of what it released."""
    if shared:
        return agent.gram - agent._learner.ridge * np.eye(3)
    return ffx.core.statistics.unpack(agent.held[agent.name].packed)[0]


def test_partners_alike_give_the_bits_of_their_sum() -> None:
    """Where all are believed wholly, what is decided from is one's own and the sum, in the order of names."""
    agents = [taught(f"agent-{i}", THETA, 50, seed=i) for i in range(4)]
    told(*agents)
    held = agents[0].held
    assert all(each.weight == 1.0 for each in agents[0].partners.values())
    others = np.zeros(held["agent-0"].packed.size)
    for name in ("agent-1", "agent-2", "agent-3"):
        others += held[name].packed
    assert agents[0]._learner.statistics.tolist() == (held["agent-0"].packed + others).tolist()


def test_reasons_in_words() -> None:
    few, many = taught("few", THETA, 1), taught("many", THETA, 500, seed=1)
    told(few, many)
    assert few.partners["many"].reason == "too little of our own to tell"
    off = [taught(f"off-{i}", THETA + 0.2, 500, seed=i + 2) for i in range(3)]
    told(many, *off)
    for each in (many.partners[name] for name in ("off-0", "off-1", "off-2")):
        assert each.reason.startswith("differs, as partners here do: our rewards are ")
        assert 0.0 < each.weight < 1.0
        assert each.difference > 0.0


def test_who_is_told_that_all_are_alike_believes_all() -> None:
    one, two = (taught(name, sign * THETA, 300, partners="alike") for name, sign in (("a", 1), ("b", -1)))
    told(one, two)
    assert (one.partners["b"].weight, one.partners["b"].reason) == (
        1.0,
        "taken for alike, as this agent was told",
    )


def test_before_a_release_of_its_own_and_where_it_can_not_tell() -> None:
    one, two = (taught(name, THETA, 9) for name in ("a", "b"))
    one.absorb({"b": two.release()})
    assert one.partners["b"].reason == "nothing of our own is released yet: taken for alike"

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
    assert lines[0].split() == ["partner", "releases", "observations", "weight", "difference", "reason"]
    assert lines[2].split()[:4] == ["b", "1", "300", "1"]
    assert "<td>b</td>" in partners._repr_html_()
    frame = partners.to_frame()
    assert frame.columns.tolist()[0] == "name"
    assert frame.weight.tolist() == [1.0]
    assert list(partners) == ["b"]


def test_a_loaded_agent_judges_as_before(tmp_path: Path) -> None:
    one, two = (taught(name, sign * THETA, 300) for name, sign in (("a", 1), ("b", -1)))
    told(one, two)
    one.save(tmp_path / "a.json")
    assert repr(ffx.Agent.load(tmp_path / "a.json").partners) == repr(one.partners)


def test_members_of_a_federation_may_differ_unless_told_otherwise() -> None:
    terms = Terms(dimension=3, agents=2, horizon=9, algorithm="fed-fairx-bayes")
    assert terms.agent("a").partners_are == "differ"
    assert terms.agent("a", partners="alike").partners_are == "alike"
    paper = Terms(dimension=3, agents=2, horizon=9, algorithm="fed-fairx-linucb")
    assert paper.agent("a").partners_are == "alike"


def test_what_has_no_posterior_refuses_partners_who_differ() -> None:
    with pytest.raises(InvalidInput, match="partners must be 'alike' for rule='optimism'"):
        ffx.Agent(3, rule="optimism", partners="differ")
    with pytest.raises(InvalidInput, match="do not decide from their own exact data"):
        ffx.Options(
            algorithm="priv-fairx-bayes", epsilon=1.0, decide_from="released+local", partners="differ"
        )
