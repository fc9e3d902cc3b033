"""Names: whose release is whose, and one's own from nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, taught
from fedfairx import steps
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.core.statistics import packed_size
from fedfairx.errors import InvalidInput, MessageRefused, ReplacementRefused
from fedfairx.privacy import Release, SimulatedNoise
from member_helpers import secure_terms, work


def test_agents_have_names_of_their_own() -> None:
    names = {ffx.Agent(D, seed=0).name for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("agent-") for name in names)
    assert ffx.Agent(D, name="north").name == "north"


def test_two_agents_learn_from_each_other_without_naming_anybody() -> None:
    first, second = (
        taught(ffx.Agent(D, rule="optimism", confidence=ffx.Confidence(), seed=seed), count, seed=seed)
        for seed, count in ((0, 20), (1, 30))
    )
    both = first.gram + second.gram - np.eye(D)
    first.release()
    first.absorb({second.name: second.release()})
    assert first.gram == pytest.approx(both, abs=1e-12)
    assert first.radius == pytest.approx(ffx.Confidence().radius(50, D))


def test_the_models_version_grows_with_rewards_and_with_messages() -> None:
    ours, theirs = (taught(ffx.Agent(D, seed=seed), 3, seed) for seed in range(2))
    versions = [ours.model_version]
    taught(ours, 1)
    versions.append(ours.model_version)
    for _ in range(2):
        ours.absorb({theirs.name: theirs.release()})
        versions.append(ours.model_version)
        taught(theirs, 1)
    assert versions[0] > 0
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("released", [False, True])
def test_another_agent_of_the_same_name_is_refused_and_changes_nothing(released: bool) -> None:
    ours, theirs = (taught(ffx.Agent(D, seed=seed, name="north"), 20, seed) for seed in range(2))
    own = ours.release() if released else None
    before = ours.gram
    with pytest.raises(MessageRefused, match="release of 'north', which is this agent's own name, "):
        ours.absorb({"south": taught(ffx.Agent(D, seed=2), 5).release(), "north": theirs.release()})
    assert (ours.gram == before).all()
    if own is not None:
        ours.absorb({"north": own})  # its own comes back to it, as in a synchronisation
        taught(ours, 1).release()
        with pytest.raises(MessageRefused, match="own name"):
            ours.absorb({"north": own})  # no longer its latest


def with_gram(like: Release, gram: np.ndarray) -> Release:
    """Such a release of records with this Gram matrix and no rewards."""
    packed = np.zeros_like(like.packed)
    packed[: packed.size - len(gram)] = gram[np.triu_indices(len(gram))]
    return replace(like, packed=packed, number=1)


def test_a_peer_without_which_v_is_not_definite_is_not_dropped(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        taught(agent, 5)
        own = agent.release()
        almost = np.diag([-30.0, *[1e12] * D])  # as if it had been rounded
        for name, gram in (("large", 50.0 * np.eye(D + 1)), ("negative", almost)):
            agent.absorb({name: with_gram(own, gram)})
        before = agent.state()
        with pytest.raises(MessageRefused, match="positive definite"):
            agent.drop_peers(["large"])
        assert agent.state() == before
        agent.verify()
        agent.drop_peers(["negative"])
        assert sorted(agent.held) == sorted([agent.name, "large"])


@hypothesis.given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 12),
    size=st.integers(-20, 20),
    different=st.integers(1, D),
)
def test_exact_sums_are_those_of_some_records(seed: int, count: int, size: int, different: int) -> None:
    """Those of any size and rank are taken, and no Gram matrix that is less than that of none."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, different)) @ rng.normal(size=(different, D)) * 10.0**size
    agent = ffx.Agent(D, name="ours", intercept=False)
    gram = np.zeros((D, D))
    for row in rows:
        gram += np.outer(row, row)
    digest = agent.privatizer.mechanism.digest()
    sums = with_gram(Release(1, np.zeros(packed_size(D)), count, digest), gram)
    assert agent.accepted({"theirs": sums}) == {"theirs": sums}
    eigenvalues, vectors = np.linalg.eigh(gram)
    least = vectors[:, 0]
    less = gram - (eigenvalues[0] + max(1e-6 * np.trace(gram), 1e-30)) * np.outer(least, least)
    with pytest.raises(MessageRefused, match="'other' must hold sums of records"):
        agent.absorb({"other": with_gram(sums, less)})
    assert not agent.held


def test_a_reward_is_not_refused_for_what_a_peer_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partners are judged again when rewards have doubled; if they can't be, they stay as they were."""
    agent = ffx.Agent(D, seed=0, partners="differ")
    agent.absorb({"other": taught(ffx.Agent(D, seed=1, name="other"), 9).release()})
    (before,) = agent._exchange.weights.values()

    def refuse(*_: object) -> None:
        raise MessageRefused("indefinite", reason="indefinite")

    with monkeypatch.context() as patched:
        patched.setattr("fedfairx.agent.model.check_definite", refuse)
        taught(agent, 40)
    assert (agent.observed, agent.pending) == (40, 0)
    (weights,) = agent._exchange.weights.values()
    assert (weights == before).all()
    taught(agent, 40)
    (weights,) = agent._exchange.weights.values()
    assert (weights != before).any()


# --- epochs of secure aggregation --------------------------------------------------------------------------


def total_of_two(own: Release, seed: int) -> Release:
    """A total of this row and another one, as openers would find it."""
    other = np.round(np.random.default_rng(seed).normal(size=own.packed.size) * 100.0)
    return Release(own.number, own.packed + other, own.count + 7, own.mechanism)


@pytest.mark.parametrize("decide_from", ["released", "own+released"])
def test_an_epoch_begins_with_what_closed_ones_have_taught(decide_from: str) -> None:
    terms = secure_terms(decide_from=decide_from)
    agent = terms.agent("org1", noise=SimulatedNoise(1))
    name, sd = (TOTAL if decide_from == "released" else OTHERS), terms.stated.sd(1)
    rows = 4 if decide_from == "released" else 3
    known, records = np.zeros(14), 0
    for epoch in (1, 2, 3):
        work(agent, 5, seed=epoch)
        own = agent.release()
        assert own.number == 1
        total = total_of_two(own, epoch)
        agent.absorb({TOTAL: total})
        known += total.packed if decide_from == "released" else total.packed - own.packed
        records += total.count if decide_from == "released" else 7
        work(agent, 2, seed=10 + epoch)
        agent.begin_epoch(terms.privatizer(SimulatedNoise(1, agent=epoch)))
        held = agent.held[name]
        assert (held.number, held.count, agent.released) == (0, records, 0)
        assert np.array_equal(held.packed, known)
        assert agent._exchange.pool.sds([held]) == pytest.approx([np.sqrt(epoch * rows) * sd])
        assert agent.privatizer.waiting == 2  # since the last row
        assert agent.name not in agent.held
    (sums, count), joined = agent.privatizer.stream.open_leaf, terms.agent("org9", noise=SimulatedNoise(2))  # type: ignore[union-attr]
    assert (sums.shape, count) == ((14,), 2)
    joined.add_total(total, members=4)
    joined.add_total(total, members=5)
    assert np.array_equal(joined.held[name].packed, 2.0 * total.packed)
    assert joined._exchange.pool.sds([joined.held[name]]) == pytest.approx([3.0 * sd])
    own = joined.release()
    joined.absorb({TOTAL: total_of_two(own, 9)})  # beside what it has learnt from the others' epochs
    less = own.packed if decide_from == "own+released" else 0.0
    expected = 2.0 * total.packed + total_of_two(own, 9).packed - less
    assert joined.held[name].packed == pytest.approx(expected)
    before = joined.held[name]
    joined.add_total(total, members=4)
    assert joined.held[name].packed == pytest.approx(before.packed + total.packed)
    assert (joined.held[name].number, joined.held[name].count) == (1, before.count + total.count)


def test_a_total_is_taken_alone_and_a_members_row_never() -> None:
    agent, other = (secure_terms().agent(name, noise=SimulatedNoise(1)) for name in ("org1", "org2"))
    total, row = total_of_two(agent.release(), 1), other.release()
    before = agent.state()
    for given in ({}, {"org2": row}, {TOTAL: total, "org2": row}):
        with pytest.raises(MessageRefused, match="is taken, never a member's row"):
            agent.absorb(given)
        assert agent.state() == before
    agent.absorb({TOTAL: total})


def test_what_of_totals_and_epochs_is_refused_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = secure_terms()
    agent = terms.agent("org1", noise=SimulatedNoise(1))
    work(agent, 5)
    total = total_of_two(agent.release(), 1)
    agent.absorb({TOTAL: total})
    agent.add_total(total, members=4)
    agent._log.new_run(terms.privatizer(SimulatedNoise(2)))
    before, privatizer, pool = agent.state(), agent.privatizer, agent._exchange.pool

    def refuse(*_: object) -> None:
        raise MessageRefused("indefinite", reason="indefinite")

    for step in (steps.TotalAdded(total, 4), steps.EpochBegun(2)):
        with monkeypatch.context() as patched, pytest.raises(MessageRefused):
            patched.setattr("fedfairx.agent.model.check_definite", refuse)
            agent._core.apply(step)
        assert agent.state() == before
        assert agent.privatizer is privatizer
        assert agent._exchange.pool == pool


def test_a_durable_agent_remembers_the_totals_of_other_epochs(tmp_path: Path) -> None:
    terms = secure_terms()
    with terms.open_agent("org1", tmp_path / "agent.db") as agent:
        work(agent, 3)
        total = total_of_two(agent.release(), 1)
        agent.add_total(total, members=4)
        agent.absorb({TOTAL: total})
        agent.begin_epoch(terms.budget())
        agent.add_total(total, members=5)
        held = agent.held[OTHERS]
        agent.verify()
    with terms.open_agent("org1", tmp_path / "agent.db") as again:
        assert again.held[OTHERS] == held
        again.verify()


def test_the_open_leaf_moves_with_its_ids_and_frozen_ones_stay() -> None:
    terms = secure_terms()
    agent = terms.agent("org1", noise=SimulatedNoise(1))
    contexts = np.eye(3)
    first, second = agent.decide(contexts), agent.decide(contexts)
    agent.observe(first, reward=0.5)
    agent.release()
    agent.observe(second, reward=0.5)
    old = agent.privatizer.stream
    assert old is not None
    sums, _ = old.open_leaf
    agent.begin_epoch(terms.privatizer(SimulatedNoise(2)))
    new = agent.privatizer.stream
    assert new is not None
    assert np.array_equal(new.open_leaf[0], sums)
    assert (old.open_leaf[1], new.open_leaf[1]) == (0, 1)
    assert [old.ledger.leaf_of(each.id) for each in (first, second)] == [1, None]
    assert [new.ledger.leaf_of(each.id) for each in (first, second)] == [None, 1]
    assert agent.release().count == 1
    assert (agent.observed, agent.unreleased) == (2, 0)


def test_an_epoch_has_the_mechanism_of_the_one_before(tmp_path: Path) -> None:
    terms = secure_terms()
    agent = terms.agent("org1", noise=SimulatedNoise(1))
    with pytest.raises(InvalidInput, match="must have the mechanism of the epoch before"):
        agent.begin_epoch(secure_terms(epsilon=1.0).privatizer(SimulatedNoise(2)))
    with pytest.raises(InvalidInput, match="a Budget is for a durable agent"):
        agent.begin_epoch(terms.budget())
    with terms.open_agent("org1", tmp_path / "agent.db") as durable:
        with pytest.raises(InvalidInput, match="must be a Budget"):
            durable.begin_epoch(terms.privatizer(SimulatedNoise(2)))
        with pytest.raises(InvalidInput, match="must have the mechanism"):
            durable.begin_epoch(replace(terms.budget(), epsilon=1.0))
        durable.begin_epoch(terms.budget(members=5))
        assert durable.privatizer.guarantee.share is not None
        assert durable.privatizer.guarantee.share.members == 5
    with terms.open_agent("org1", tmp_path / "agent.db", members=4) as again:  # its epoch has five
        assert again.privatizer.guarantee.share is not None
        assert again.privatizer.guarantee.share.members == 5
        again.verify()


def test_a_reward_from_before_an_epoch_is_final_once_it_is_in_a_row(tmp_path: Path) -> None:
    terms = secure_terms()
    with terms.open_agent("org1", tmp_path / "agent.db") as agent:
        sent, moved = agent.decide(np.eye(3)), agent.decide(np.eye(3))
        agent.observe(sent, reward=0.2)
        agent.observe(sent, reward=0.3, replace=True)
        agent.release()
        agent.observe(moved, reward=0.2)
        agent.begin_epoch(terms.budget())
        with pytest.raises(ReplacementRefused, match="is in release 1 already"):
            agent.observe(sent, reward=0.4, replace=True)
        agent.observe(moved, reward=0.4, replace=True)
        agent.release()
        with pytest.raises(ReplacementRefused, match="was rewarded before the federation's epoch began"):
            agent.observe(moved, reward=0.6, replace=True)
        agent.verify()
