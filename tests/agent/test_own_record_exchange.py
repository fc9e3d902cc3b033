"""Own records among agents: what of them is sent, what is made of it, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.agent import exchange, model
from fedfairx.agent.pooling import sum_sd, weigh
from fedfairx.core.statistics import pack, packed_size, unpack
from fedfairx.errors import MessageRefused
from fedfairx.privacy import Release, SimulatedNoise, private
from states import told

D, NAMES = 2, [f"courier {number}" for number in range(6)]
FIXED = ffx.Prior(0.0, 0.3, 0.4, learn=False)


def a_log(
    seed: int, count: int = 60, *, tau: float = 0.2, names: list[str] = NAMES
) -> tuple[Any, Any, list[str]]:
    """Contexts, rewards, and names of people, who are the same whoever sees them."""
    rng, beyond = np.random.default_rng(seed), np.random.default_rng(0).normal(0.0, tau, len(names))
    who, xs = rng.integers(len(names), size=count), rng.uniform(-0.7, 0.7, (count, D))
    chances = (0.5 + xs @ [0.3, -0.2] + beyond[who]).clip(0.02, 0.98)
    return xs, (rng.random(count) < chances).astype(float), [names[k] for k in who]


def taught(name: str, *seeds: int, **more: Any) -> ffx.Agent:
    agent = ffx.Agent(**({"dimension": D, "actions": NAMES, "name": name, "seed": 0} | more))
    for seed in seeds:
        xs, ys, names = a_log(seed)
        agent.learn(
            **({"contexts": xs, "names": names} if agent.dimension else {"contexts": names}), rewards=ys
        )
    return agent


def same(one: ffx.Agent, other: ffx.Agent) -> None:
    rows = () if not one.dimension else (a_log(99)[0][: len(NAMES)],)
    assert one.estimate == pytest.approx(other.estimate, abs=1e-9)
    assert one.policy(*rows) == pytest.approx(other.policy(*rows), rel=1e-8)
    for name in NAMES:
        ours, theirs = one.record_of(name), other.record_of(name)
        assert ours is not None
        assert theirs is not None
        assert tuple(ours) == pytest.approx(tuple(theirs), abs=1e-9)


# --- alike ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [D, None])
def test_alike_members_are_one_agent_with_the_records_of_all(dimension: int | None) -> None:
    """One courier, one record; and what is learnt afterwards is learnt beside what partners sent."""
    more: Any = {"dimension": dimension, "prior": FIXED}
    members = [taught(str(seed), seed, **more) for seed in range(3)]
    releases = {each.name: each.release() for each in members}
    alone = taught("alone", 0, 1, 2, **more)
    for each in members:
        each.absorb(releases)
        same(each, alone)
    xs, ys, names = a_log(7)
    for agent in (members[0], alone):
        agent.learn(**({"contexts": xs, "names": names} if dimension else {"contexts": names}), rewards=ys)
    same(members[0], alone)
    sent = members[0].release()
    assert sum(tally[0] for tally in sent.tallies.values()) == sent.count == 120  # its own, and no partner's
    members[1].absorb({members[0].name: sent})
    same(members[1], alone)
    members[1].drop_peers([members[0].name, members[2].name])
    same(members[1], taught("1", 1, **more))


def test_what_partners_sent_is_kept_to_the_bit(place: str) -> None:
    others = {name: taught(name, seed).release() for seed, name in ((1, "b"), (2, "c"))}
    strangers = ffx.Agent(D, actions=[f"stranger {number}" for number in range(20)], name="d")
    strangers.learn(np.zeros((20, D)), np.ones(20), names=list(strangers.actions))
    with ffx.Agent.open(place, dimension=D, name="a", seed=0) as agent:
        xs, ys, names = a_log(0)
        agent.learn(xs, ys, names=names)
        agent.absorb(others)
        agent.absorb({"d": strangers.release()})
        assert set(strangers.actions) < set(agent.names)
        assert agent.record_of("stranger 3").rewards == 1.0
        agent.learn(xs[:9], ys[:9], names=names[:9])
        agent.observe(agent.decide(xs[:3], names=["stranger 3", *NAMES[:2]]), reward=1.0)
        state, policy = told(agent), agent.policy(xs[:6], names=NAMES)
        assert state["records"]["used"] is not None
        agent.verify()
        agent.journal.log.closing.clear()  # a crash
    with ffx.Agent.open(place) as agent:
        assert told(agent) == state
        assert agent.policy(xs[:6], names=NAMES).tolist() == policy.tolist()
        agent.drop_peers(["b", "c", "d"])
        agent.verify()


def test_tallies_count_less_by_age_as_sums_do() -> None:
    one, other = (taught("a", 0, half_life=30, prior=FIXED) for _ in range(2))
    sent = taught("b", 1).release()
    for agent in (one, other):
        agent.absorb({"b": sent})
    before = one.record_of(NAMES[0]).rewards - one._model.records.mine[0, 0]
    xs, ys, _ = a_log(3, 30)
    for agent in (one, other):
        agent.learn(xs, ys)  # of nobody's record
    one.absorb({"b": sent})  # as it is held, and as it counts now
    after = one.record_of(NAMES[0]).rewards - one._model.records.mine[0, 0]
    assert after == pytest.approx(before / 2, rel=1e-9)
    same(one, other)


# --- they may differ --------------------------------------------------------------------------------------


def test_many_records_of_one_person_do_not_count_as_of_many() -> None:
    """Where partners may differ, sums have own records integrated out: of one name they say no more of
    features than ρ records do, however many there are."""
    x = np.array([[0.5, 0.1]])
    sums = {}
    for who in ("one", "many"):
        names = ["ann"] * 500 if who == "one" else [f"person {number}" for number in range(500)]
        agent = ffx.Agent(D, actions=sorted(set(names)), partners="differ", prior=FIXED, name=who)
        agent.learn(np.repeat(x, 500, axis=0), np.ones(500), names=names)
        sent = agent.release()
        assert sent.tallies == {}
        assert sent.count == 500
        ratio, row = agent._model.records.ratio, np.append(x[0], 1.0)
        count, each = (1, 500) if who == "one" else (500, 1)
        gram, moment = unpack(sent.packed)
        left = count * each * ratio / (each + ratio)
        assert gram == pytest.approx(left * np.outer(row, row), rel=1e-9)
        assert moment == pytest.approx(left * row, rel=1e-9)
        sums[who] = gram[0, 0]
    assert sums["one"] < ratio * 0.25 < sums["many"]  # ρ times x² at most


def test_who_judges_partners_judges_them_by_sums_without_own_records() -> None:
    """One that believes partners alike sends tallies, and they are integrated out on arrival."""
    open_one, careful = taught("b", 1), taught("c", 1, partners="differ", prior=FIXED)
    judge, other = (taught("a", 0, partners="differ", prior=FIXED) for _ in range(2))
    sent = open_one.release()
    assert sent.tallies
    judge.absorb({"b": sent})
    assert careful._model.records.ratio == judge._model.records.ratio
    other.absorb({"b": careful.release()})
    same(judge, other)
    assert judge.record_of(NAMES[0]).rewards == taught("z", 0).record_of(NAMES[0]).rewards


def judgements(seed: int, *, own_record: bool, shared: bool) -> list[bool]:
    """Whether a partner who is alike is said to differ, at 32, 64, 128 and 256 own rewards."""
    mine = [f"mine {number}" for number in range(15)]
    theirs = mine if shared else [f"theirs {number}" for number in range(15)]
    rng = np.random.default_rng([seed, 56])
    beyond = dict(zip([*mine, *theirs], rng.normal(0.0, 0.1, 30), strict=True))
    effects = rng.normal(0.0, 0.2, D)
    agents = []
    for name, people in (("a", mine), ("b", theirs)):
        options: Any = {"partners": "differ", "own_record": own_record, "reward_range": (0, 1)}
        agent = ffx.Agent(D, name=name, seed=0, **options)
        agents.append((agent, rng.integers(15, size=300), rng.uniform(-0.7, 0.7, (300, D)), people))
    found: list[bool] = []
    for agent, who, xs, people in reversed(agents):
        names = [people[k] for k in who]
        chances = (0.5 + xs @ effects + [beyond[name] for name in names]).clip(0.02, 0.98)
        ys = (rng.random(300) < chances).astype(float)
        if agent.name == "b":
            agent.learn(xs, ys, names=names)
            agents[0][0].absorb({"b": agent.release()})
            continue
        for start, end in ((0, 32), (32, 64), (64, 128), (128, 256)):
            agent.learn(xs[start:end], ys[start:end], names=names[start:end])
            found.append(agent.partners["b"].differs)
    return found


@pytest.mark.long
@pytest.mark.parametrize("shared", [False, True])
def test_a_partner_who_is_alike_is_not_said_to_differ_for_whom_it_knows(shared: bool) -> None:
    """People differ by τ = 0.1 beyond their features. At most 1 in 1 000 judgements may be wrong; of 500,
    more than 4 would be so with a chance of 2e-4."""
    found = [each for seed in range(125) for each in judgements(seed, own_record=True, shared=shared)]
    assert len(found) == 500
    assert sum(found) <= 4


# --- with noise -------------------------------------------------------------------------------------------


def noisy(name: str, number: int, **more: Any) -> ffx.Agent:
    noise = SimulatedNoise(3, agent=number)
    how: Any = {
        "epsilon": 8.0,
        "delta": 1e-3,
        "releases": 9,
        "decide_from": "own+released",
        "intercept": True,
    }
    return ffx.Agent(D, name=name, seed=0, privatizer=private(D, noise=noise, **how), **more)


def test_own_records_never_leave_with_noise() -> None:
    """What is sent is that of features and constant, to the bit."""
    sent = []
    for own_record in (True, False):
        agent = noisy("a", 0, own_record=own_record)
        xs, ys, names = a_log(0)
        agent.learn(xs, ys, names=names)
        assert bool(agent.names) == own_record
        sent.append(agent.release().to_bytes())
    assert sent[0] == sent[1]
    assert Release.from_bytes(sent[0]).tallies == {}


@pytest.mark.parametrize("partners", ["alike", "differ"])
def test_noisy_records_count_with_the_variance_of_names_added(partners: str) -> None:
    here, there = noisy("a", 0, partners=partners), noisy("b", 1)
    for agent, seed in ((here, 0), (there, 1)):
        xs, ys, names = a_log(seed, 400, tau=0.5)
        agent.learn(xs, ys, names=names)
    learner, pool = here._model.learner, here._exchange.pool
    variance, own = learner.noise_variance, here._model.own_variance
    share, sent = variance / (variance + own), there.release()
    assert share < 0.97
    size = learner.size_of_parameter()
    here.absorb({"b": sent})
    if partners == "alike":
        noise_sd = share * sum_sd(pool.mechanism, [sent], 1, 0.0)
        expected = weigh(share * sent.packed, noise_sd=noise_sd, size=size, variance=variance)
        assert here._model.others == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert here._exchange.powers["b"] > 0
        expected = here._exchange.powers["b"] * share * sent.packed
        assert here._model.others[0] <= expected[0] * (1 + 1e-9)  # what is believed of it is filtered
    plain = here._model.own_sums() + here._model.others
    assert learner.statistics == pytest.approx(here._model.records.whitened(plain, used=True), abs=1e-9)


def test_a_noisy_partner_can_not_send_own_records() -> None:
    here, there = noisy("a", 0), noisy("b", 1)
    sent = replace(there.release(), tallies={"ann": np.zeros(D + 3)})
    before = told(here)
    with pytest.raises(MessageRefused, match=r"must have no own records, as its mechanism adds noise"):
        here.absorb({"b": sent})
    assert told(here) == before


# --- messages ---------------------------------------------------------------------------------------------

tallies = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.lists(st.floats(width=64), min_size=4, max_size=4).map(np.array),
    max_size=4,
)


@given(tallies, st.integers(1, 2**63), st.integers(0, 2**63))
def test_a_release_is_read_as_it_was_written(names: dict[str, Any], number: int, count: int) -> None:
    release = Release(number, np.arange(float(packed_size(D))), count, "ab" * 32, names)
    again = Release.from_bytes(release.to_bytes())
    assert (again.number, again.count, again.mechanism) == (number, count, "ab" * 32)
    assert again.packed.tolist() == release.packed.tolist()
    assert [*again.tallies] == [*names]
    for name, tally in names.items():
        assert again.tallies[name].tobytes() == tally.tobytes()
    assert again == release


def test_an_order_of_names_or_a_number_is_another_content() -> None:
    sent = taught("a", 0).release()
    turned = replace(sent, tallies=dict(reversed(sent.tallies.items())))
    more = replace(sent, tallies={name: 1.0 * tally for name, tally in sent.tallies.items()})
    assert more.digest == sent.digest
    more.tallies[NAMES[0]].flags.writeable = True
    assert sent.digest not in (turned.digest, replace(sent, tallies={}).digest)


@given(st.data())
def test_a_damaged_release_is_refused_or_another_one(data: st.DataObject) -> None:
    message = bytearray(taught("a", 0).release().to_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    with suppress(MessageRefused):
        Release.from_bytes(bytes(message)).to_bytes()


@pytest.mark.parametrize(
    "names", [b"", b"[]", b"{}", b"[1]", b'[""]', b'["a","a"]', b"null", b"[" * 100_000, b'["\xff"]', b'"ab"']
)
def test_names_that_are_none(names: bytes) -> None:
    whole = Release(1, np.zeros(packed_size(D)), 1, "ab" * 32, {"a": np.ones(4)}).to_bytes()
    start = len(whole) - len(b'["a"]')
    head = whole.index((5).to_bytes(4, "little"), 50)
    message = whole[:head] + len(names).to_bytes(4, "little") + whole[head + 4 : start] + names
    with pytest.raises(MessageRefused, match="not a release of this version"):
        Release.from_bytes(message)


def changed(release: Release, name: str, place: int, value: float) -> Release:
    tally = release.tallies[name].copy()
    tally[place] = value
    return replace(release, tallies={**release.tallies, name: tally})


HOSTILE: dict[str, tuple[Any, str]] = {
    "negative count": (lambda sent: changed(sent, NAMES[0], 0, -1.0), "absurd"),
    "no count": (lambda sent: changed(sent, NAMES[0], 0, 0.0), "absurd"),
    "more than all": (lambda sent: changed(sent, NAMES[0], 0, 1000.0), "absurd"),
    "NaN": (lambda sent: changed(sent, NAMES[0], 0, np.nan), "not finite"),
    "NaN rewards": (lambda sent: changed(sent, NAMES[0], 1, np.nan), "not finite"),
    "infinite": (lambda sent: changed(sent, NAMES[0], 3, np.inf), "not finite"),
    "sums beyond Cauchy": (lambda sent: changed(sent, NAMES[0], 2, 60.0), "indefinite"),
    "smaller count": (lambda sent: changed(sent, NAMES[0], 0, 1e-3), "indefinite"),
    "one more name": (
        lambda sent: replace(sent, tallies={**sent.tallies, "x": np.array([1e-3, 0.0, 9.0, 9.0, 9.0])}),
        "absurd",
    ),
    "wide": (lambda sent: replace(sent, tallies={"ann": np.ones(D + 4)}), "dimension"),
    "narrow": (lambda sent: replace(sent, tallies={"ann": np.ones(2)}), "dimension"),
    "two rows": (lambda sent: replace(sent, tallies={"ann": np.ones((2, D + 3))}), "dimension"),
    "half a pair": (lambda sent: replace(sent, tallies={"\ud800": np.ones(D + 3)}), "malformed"),
    "no records": (lambda sent: replace(sent, packed=pack(np.zeros((3, 3)), np.zeros(3))), "indefinite"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_own_records_are_refused_at_the_door(how: str) -> None:
    change, why = HOSTILE[how]
    here, good, sent = taught("a", 0), taught("c", 2).release(), taught("b", 1).release()
    here.absorb({"b": sent})
    before, names = told(here), here.names
    bad = replace(change(sent), number=2)
    with pytest.raises(MessageRefused, match=r"^release of 'b' ") as caught:
        here.absorb({"c": good, "b": bad})
    assert caught.value.reason == why
    assert told(here) == before
    assert here.names == names


def test_a_refused_absorb_leaves_no_names_and_no_place_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """V is seen not to be definite only when all are added up, and names have places by then."""
    here = taught("a", 0, actions=None)
    here.absorb({"b": taught("b", 1).release()})
    strangers = ffx.Agent(D, actions=[f"stranger {number}" for number in range(30)], name="d")
    strangers.learn(np.zeros((30, D)), np.ones(30), names=list(strangers.actions))
    before, names, sent = told(here), here.names, strangers.release()

    def refuse(*_: object) -> None:
        raise MessageRefused("the releases together must make a positive definite V", reason="indefinite")

    with monkeypatch.context() as patch, pytest.raises(MessageRefused, match="together"):
        patch.setattr(model, "check_definite", refuse)
        here.absorb({"d": sent})
    assert told(here) == before
    assert here.names == names
    records = here._model.records
    assert records is not None
    for number in range(40):  # names that come later have places in both tallies
        for _ in range(2):
            here.observe(here.decide(np.zeros((1, D)), names=[f"new {number}"]), reward=0.5)
        assert len(records.used) == len(records.mine) > max(records.places.values())
    assert here.record_of("new 39").rewards == 1.0
    here.absorb({"d": sent})
    assert here.record_of("stranger 29").rewards == 1.0


def test_partners_are_judged_again_without_forgetting_names() -> None:
    """As own rewards double, by tallies that are held."""
    here = taught("a", 0, partners="alike")
    here.absorb({"b": taught("b", 1).release()})
    assert isinstance(here._exchange, exchange.Exchange)
    xs, ys, names = a_log(4, 200)
    here.learn(xs, ys, names=names)
    used, mine = here._model.records.used, here._model.records.mine
    whole = {name: used[place] - mine[place] for name, place in here._model.records.places.items()}
    for name, tally in here.held["b"].tallies.items():
        assert whole[name] == pytest.approx(tally, abs=1e-9)
