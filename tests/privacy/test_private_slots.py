"""Privacy of several slots: the unit is the decision, and its sensitivity is the sum over slots."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.audit import noise_tests
from fedfairx.audit.audit import audit
from fedfairx.core.statistics import packed_size
from fedfairx.errors import AlreadyObserved, InvalidInput
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Bounds, Budget, Centring, KeyedNoise, SimulatedNoise, new_key

RANKED = (1.0, 0.63, 0.5)


def packed(x: np.ndarray, y: float) -> np.ndarray:
    rows, columns = np.triu_indices(x.size)
    return np.concatenate([x[rows] * x[columns], x * y])


@given(
    seed=st.integers(0, 2**32 - 1),
    slots=st.sampled_from([(1.0, 1.0), RANKED, (0.4,), (1.0, 0.0)]),
    adjacency=st.sampled_from(["replace", "add-remove"]),
    nonnegative=st.booleans(),
    reward=st.sampled_from([0.3, 1.0, 4.0]),
)
def test_no_decision_changes_the_sums_by_more_than_the_sensitivity(
    seed: int, slots: tuple[float, ...], adjacency: str, nonnegative: bool, reward: float
) -> None:
    """Whatever its slots show, in one leaf or, which is their sum of lengths, spread over several."""
    bounds = Bounds(slots=slots, adjacency=adjacency, nonnegative=nonnegative, reward=reward)  # type: ignore[arg-type]
    rng, scale = np.random.default_rng(seed), bounds.entry_scale(3)

    def unit() -> list[np.ndarray]:
        found = []
        for weight in slots:
            x, y, _ = bounds.clip(rng.normal(size=3) * 2.0, float(rng.normal()) * 3.0 * reward)
            found.append(packed(weight * x, y))
        return found

    one, other = unit(), unit()
    if adjacency == "add-remove":
        other = [np.zeros(packed_size(3)) for _ in slots]
    changes = [(a - b) / scale for a, b in zip(one, other, strict=True)]
    spread = sum(float(np.linalg.norm(change)) for change in changes)
    assert np.linalg.norm(sum(changes)) <= spread + 1e-12
    assert spread <= bounds.sensitivity * (1.0 + 1e-12)


def test_the_sensitivity_is_reached_when_every_slot_is_in_its_own_leaf() -> None:
    bounds = Bounds(slots=RANKED)
    reached = 0.0
    for weight in RANKED:
        pair = Bounds(context_norm=weight).worst_pair(2)
        change = packed(*pair[0]) - packed(*pair[1])
        reached += float(np.linalg.norm(change / bounds.entry_scale(2)))
    assert reached == pytest.approx(bounds.sensitivity, rel=1e-12)


def test_one_slot_costs_what_it_always_did() -> None:
    assert Bounds(slots=1) == Bounds()
    assert Bounds().to_dict().keys() == {"context_norm", "reward", "adjacency", "nonnegative", "gram_share"}
    assert Bounds(slots=RANKED).to_dict()["slots"] == list(RANKED)
    assert Bounds(slots=3).sensitivity == pytest.approx(3.0 * Bounds().sensitivity)
    with pytest.raises(InvalidInput, match=r"^slots "):
        Bounds(slots=(0.5, 1.0))


def test_the_claim_names_the_decision_as_its_unit() -> None:
    budget = Budget(epsilon=2.0, releases=10, bounds=Bounds(slots=RANKED))
    told = str(budget.guarantee())
    assert "one decision" in told
    assert "1, 0.63, 0.5" in told
    assert budget.guarantee().to_dict()["slots"] == list(RANKED)
    assert Budget.from_dict(budget.to_dict()) == budget
    alone = Budget(epsilon=2.0, releases=10)
    ratio = budget.calibrate().base_sd / alone.calibrate().base_sd
    assert ratio == pytest.approx(Bounds(slots=RANKED).sensitivity / Bounds().sensitivity, rel=1e-6)


def test_a_point_to_clip_around_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^centring must be left out .*: sums are moved back .*; records"):
        Budget(epsilon=2.0, releases=10, bounds=Bounds(slots=2), centring=Centring.unit_box(3)).calibrate()


def test_an_agent_keeps_the_slots_that_its_noise_was_made_for() -> None:
    options = ffx.Options(algorithm="priv-fairx-bayes", epsilon=2.0, slots=RANKED)
    privatizer = options.privatizer(3, releases=5, noise=SimulatedNoise(0))
    agent = ffx.Agent(3, options=options, privatizer=privatizer, seed=0)
    rows = np.eye(5, 3)
    made = agent.decide(rows)
    with pytest.raises(InvalidInput, match=r"^slots "):
        agent.decide(rows, slots=2)
    assert len(agent.decide(rows[:2], slots=RANKED[:2]).actions) == 2  # the first of them cost less
    for weights in (None, [0.5] * 5):  # which rows are one decision is not known
        with pytest.raises(InvalidInput, match=r"^slots "):
            agent.learn(rows, [0.5] * 5, weights=weights)
    agent.observe(made, rewards={made.actions[0]: 1.0})
    agent.observe(made, rewards={made.actions[2]: float("nan"), made.actions[1]: 7.0})
    assert privatizer.waiting == 3
    with pytest.raises(InvalidInput, match=r"^slots "):
        ffx.Agent(3, slots=2, privatizer=options.privatizer(3, releases=5, noise=SimulatedNoise(1)))
    with pytest.raises(InvalidInput, match=r"^weight "):
        privatizer.add(np.zeros(4), 0.0, weight=0.9)


def test_what_a_person_costs_is_counted_in_records() -> None:
    guarantee = Budget(epsilon=1.0, releases=3, bounds=Bounds(slots=3), person_records=2).guarantee()
    assert guarantee.person_mu == pytest.approx(2.0 / 3.0 * guarantee.mu)
    alone = Budget(epsilon=1.0, releases=3, person_records=2).guarantee()
    assert alone.person_mu == pytest.approx(2.0 * alone.mu)


def test_a_person_or_a_record_that_is_refused_leaves_every_slot_waiting() -> None:
    budget = Budget(epsilon=1.0, releases=3, bounds=Bounds(slots=3), person_records=5)
    privatizer = budget.with_intercept().privatizer(4, noise=SimulatedNoise(0))
    agent = ffx.Agent(3, slots=3, privatizer=privatizer, seed=0)
    made = agent.decide(np.eye(5, 3))
    with pytest.raises(InvalidInput, match=r"^person "):
        agent.observe(made, rewards=[None, 1.0, 1.0])
    privatizer.add(np.zeros(4), 0.0, record=f"{made.id}/1", person="p")
    with pytest.raises(AlreadyObserved):
        agent.observe(made, rewards=[1.0, 1.0, 1.0], person="p")
    assert (privatizer.waiting, agent.observed) == (1, 0)
    agent.observe(made, rewards={made.actions[0]: 1.0, made.actions[2]: None}, person="p")
    assert agent.observed == 1


def test_records_enter_clipped_and_then_weighted() -> None:
    budget = Budget(epsilon=1e6, delta=1e-6, releases=1, bounds=Bounds(slots=RANKED), mechanism="tree")
    agent = budget.privatizer(2, noise=KeyedNoise(new_key(), agent="a", run="1"))
    for weight in RANKED:
        agent.add(np.array([3.0, 4.0]), 5.0, weight=weight)
    expected = sum(packed(weight * np.array([0.6, 0.8]), 1.0) for weight in RANKED)
    assert agent.release().packed == pytest.approx(expected, abs=0.05)


def test_a_durable_private_agent_of_slots_goes_on(tmp_path: Path) -> None:
    place, rows = tmp_path / "agent.db", np.eye(5, 3)
    budget = Budget(epsilon=2.0, releases=5)
    with ffx.Agent.open(place, dimension=3, slots=RANKED, budget=budget, seed=0) as agent:
        assert agent.privatizer.guarantee.slots == RANKED
        made = agent.decide(rows)
        agent.observe(made, rewards={made.actions[1]: 1.0})
        agent.release()
        state = agent.state()
    with ffx.Agent.open(place, slots=RANKED, budget=budget) as agent:
        assert agent.state() == state
        agent.observe(made.id, rewards={made.actions[0]: 1.0, made.actions[2]: None})
        assert (agent.pending, agent.observed) == (0, 2)
        agent.begin_run(Budget(epsilon=1.0, releases=3))
        assert agent.privatizer.guarantee.slots == RANKED
        with pytest.raises(InvalidInput, match=r"^slots "):
            agent.begin_run(Budget(epsilon=1.0, releases=3, bounds=Bounds(slots=2)))
        agent.observe(agent.decide(rows), rewards=[0.1, 0.2, 0.3])
        agent.verify()


@pytest.mark.long
def test_an_audit_finds_slots_that_were_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism whose noise is for one slot at a time is refuted; the right one is not."""
    monkeypatch.setattr(noise_tests, "_SAMPLES", 2_000)  # it is not the draws that are tested
    options = ffx.Options(algorithm="priv-fairx-bayes", epsilon=2.0, slots=3)
    assert audit(options, dimension=2, releases=4, runs=2_000).ok
    monkeypatch.setattr(Bounds, "sensitivity", property(lambda _self: Bounds()._sensitivity(1.0)))
    report = audit(options, dimension=2, releases=4, runs=2_000)
    assert "data path: sensitivity" in report.failed


def test_members_of_a_federation_agree_on_slots() -> None:
    agreed = Terms(dimension=3, agents=2, horizon=1000, epsilon=2.0, slots=RANKED)
    plain = Terms(dimension=3, agents=2, horizon=1000, epsilon=2.0)
    assert Terms.from_dict(agreed.to_dict()) == agreed
    assert agreed.digest != plain.digest
    one, other = (
        agreed.agent(name, noise=KeyedNoise(new_key(), agent=name, run="1"), seed=0) for name in ("a", "b")
    )
    for turn, agent in itertools.product(range(10), (one, other)):
        made = agent.decide(np.eye(5, 3))
        agent.observe(made, rewards=[0.1 * turn, 0.5, None])
    one.absorb({"b": other.release()})
    assert one.held["b"].count == 20


def test_members_may_send_a_record_for_every_slot() -> None:
    agreed = Terms(dimension=3, agents=2, horizon=100, epsilon=1.0, slots=5)
    agent = agreed.agent("b", noise=KeyedNoise(new_key(), agent="b", run="1"), seed=0)
    for _ in range(int(agreed.times.rounds(agreed.plan)[0])):
        agent.observe(agent.decide(np.eye(6, 3)), rewards=[0.5] * 5)
    agreed.limits.check("b", agent.release())
