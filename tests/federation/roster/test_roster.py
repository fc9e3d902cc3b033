"""The roster: who may say who is in, and what it takes for a member to believe it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.schedules import SCHEDULES, Paper
from fedfairx.core.merit import Custom
from fedfairx.errors import InvalidInput, StateError
from fedfairx.features import Schema
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Bounds, Centring, NonPrivate, SimulatedNoise
from member_helpers import D, released, terms, work, world

SCHEMA = Schema({"price": (0, 10), "city": ["Rome", "Oslo"]}, shared=["city"])
LATER = Schema({"price": (0, 10), "city": ["Rome", "Oslo", "Bonn"]}, shared=["city"])


def test_a_file_gives_the_same_roster(tmp_path: Path) -> None:
    roster = world().roster
    roster.write(tmp_path / "roster.json")
    read = Roster.read(tmp_path / "roster.json", federation=roster.federation)
    assert read == roster
    assert read.terms.digest == roster.terms.digest
    with pytest.raises(StateError, match="not of 00"):
        Roster.read(tmp_path / "roster.json", federation="00" * 16)


def test_a_roster_may_name_openers(tmp_path: Path) -> None:
    here = world()
    members, before = here.roster.members, here.roster
    assert "openers" not in before.to_json()  # rosters without them stay as they were
    named = before.amended(here.convener, members, openers=["org3", "org1"])
    named.write(tmp_path / "roster.json")
    read = Roster.read(tmp_path / "roster.json")
    assert (read, read.openers) == (named, ("org3", "org1"))
    assert named.digest != before.amended(here.convener, members, openers=["org1", "org3"]).digest
    assert named.amended(here.convener, members).openers == ("org3", "org1")
    assert create_roster(here.convener, before.terms, members, openers=["org2"]).openers == ("org2",)
    for wrong in (["org1", "org1"], ["org4"]):
        with pytest.raises(InvalidInput, match="openers must be members"):
            before.amended(here.convener, members, openers=wrong)
    fewer = {name: key for name, key in members.items() if name != "org3"}
    with pytest.raises(InvalidInput, match="openers"):  # who leaves is no opener: others must be named
        named.amended(here.convener, fewer)
    changed = json.loads(named.to_json())
    changed["roster"]["openers"] = ["org1", "org2"]
    with pytest.raises(StateError, match="signature"):
        Roster.from_json(json.dumps(changed))
    changed = json.loads(before.to_json())
    changed["roster"]["openers"] = []
    with pytest.raises(StateError, match="does not know"):
        Roster.from_json(json.dumps(changed))


@pytest.mark.parametrize(
    "agreed",
    [
        terms(schedule=None),
        terms(schedule=Paper(gap=7), epsilon=None, algorithm="fed-fairx-bayes"),
        terms(algorithm="priv-fairx-linucb", confidence=ffx.Confidence(regulariser=2.5), mechanism="tree"),
        terms(merit=ffx.merit.Logistic(), prior=ffx.Prior(mean=(0.1, 0.2, 0.3, 0.4), noise_sd=0.3)),
        terms(centring=Centring.unit_box(D), bounds=Bounds(adjacency="add-remove", gram_share=0.5)),
        terms(centring=Centring(context=(1, 0, 0), context_radius=1, reward=0, reward_radius=1, constant=1)),
        terms(bounds=Bounds(context_norm=2.0, reward=3.0, nonnegative=True), spare=7),
        terms(dimension=None, schema=SCHEMA),
        terms(dimension=None, schema=SCHEMA.extend(LATER), reward_range=(0.0, 2.0)),
        *(terms(schedule=each, algorithm="b1") for each in SCHEDULES.values()),
    ],
)
def test_terms_come_back_as_they_were(agreed: Terms) -> None:
    values = json.loads(json.dumps(agreed.to_dict()))
    again = Terms.from_dict(values)
    assert again.digest == agreed.digest
    assert again.stated.digest() == agreed.stated.digest()
    assert again.limits.records.tolist() == agreed.limits.records.tolist()
    assert (again.schema, again.dimension) == (agreed.schema, agreed.dimension)


def test_members_have_the_schema_of_the_terms(tmp_path: Path) -> None:
    agreed = terms(dimension=None, schema=SCHEMA, reward_range=(0.0, 1.0))
    assert agreed.bounds == Bounds()
    assert agreed.digest != terms(dimension=None, schema=LATER, reward_range=(0.0, 1.0)).digest
    assert "features" not in terms().to_dict()  # so that the digests of earlier terms stay
    assert agreed.agent("org1", noise=SimulatedNoise(0)).schema == SCHEMA
    with agreed.open_agent("org1", tmp_path / "a.db") as agent:
        agent.observe(agent.decide(actions=[{"price": 3}], context={"city": "Rome"}), reward=1.0)
    agreed.open_agent("org1", tmp_path / "a.db", schema=SCHEMA).close()
    with pytest.raises(InvalidInput, match="schema must be left out or that of the terms"):
        agreed.open_agent("org1", tmp_path / "a.db", schema=LATER)
    numbers = Schema({"a": (0, 1), "b": (0, 1)})
    with terms(intercept=False).open_agent(
        "org1", tmp_path / "b.db", schema=numbers
    ) as agent:  # names of its own
        assert agent.schema == numbers
    with pytest.raises(InvalidInput, match="dimension must be left out or 8"):
        terms(intercept=False).open_agent("org1", tmp_path / "c.db", schema=SCHEMA)
    with pytest.raises(InvalidInput, match="have an intercept for them"):
        terms().open_agent("org1", tmp_path / "d.db", schema=numbers)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"epsilon": None}, "epsilon must be given"),
        ({"algorithm": "fed-fairx-bayes"}, "epsilon is for private algorithms"),
        ({"merit": Custom(np.exp, minimum_merit=0.1, lipschitz_constant=3.0)}, "merit must be one that all"),
        ({"horizon": 0}, "horizon must be"),
        ({"spare": -1}, "spare must be >= 0"),
        ({"rule": "greedy"}, "rule must be that of priv-fairx-bayes"),
        ({"mechanism": "none"}, "mechanism must be one of"),
    ],
)
def test_terms_that_nobody_can_keep(change: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        terms(**change)


def test_exact_sums_can_be_agreed_on_and_say_so() -> None:
    plain = terms(algorithm="fed-fairx-bayes", epsilon=None)
    assert isinstance(plain.stated, NonPrivate)
    agent = plain.agent("org1", seed=0)
    assert not agent.private


def test_the_agent_of_the_terms_is_the_federations_agent() -> None:
    agreed = terms(merit=ffx.merit.Exponential(3.0), minimum_share=0.05)
    here = world(merit=ffx.merit.Exponential(3.0), minimum_share=0.05)
    agent = here.agent("org1")
    assert agent.privatizer.mechanism.digest() == agreed.stated.digest()
    around = terms(centring=Centring.unit_box(D))
    centred = around.agent("org1", noise=SimulatedNoise(0))
    assert centred.privatizer.mechanism.digest() == around.stated.digest()
    assert (agent.merit, agent.options.minimum_share, agent.rule) == (
        agreed.options.merit,
        0.05,
        "expected-merit",
    )
    assert agent.decide_from == centred.decide_from == "own+released"
    assert agreed.agent("org1", noise=SimulatedNoise(0), decide_from="released").decide_from == "released"


def test_any_change_without_the_conveners_key_is_noticed(tmp_path: Path) -> None:
    roster = world().roster
    document = json.loads(roster.to_json())
    stranger = new_signing_key()

    def refused(change: object, text: str) -> None:
        changed = json.loads(json.dumps(document))
        change(changed)  # type: ignore[operator]
        with pytest.raises(StateError, match=text):
            Roster.from_json(json.dumps(changed))

    refused(lambda d: d["roster"]["members"].update(org4=stranger.public), "signature")
    refused(lambda d: d["roster"]["members"].update(org1=stranger.public), "signature")
    refused(lambda d: d["roster"]["members"].pop("org1"), "signature")
    refused(lambda d: d["roster"].update(version=2), "signature")
    refused(lambda d: d["roster"]["terms"].update(horizon=1999), "signature|digest")
    refused(lambda d: d["roster"]["terms"]["privacy"].update(epsilon=4.0), "privacy.digest")
    refused(lambda d: d["roster"].update(convener=stranger.public), "not that of its convener's key")
    refused(lambda d: d["roster"].update(more=1), "fields")
    refused(lambda d: d.update(signature="00" * 64), "signature")
    refused(lambda d: d.update(schema=2), "schema 1")
    refused(lambda d: d.pop("signature"), "signature")
    for text in ("", "{", "[]", '{"format": "other", "schema": 1}'):
        with pytest.raises(StateError):
            Roster.from_json(text)


def test_only_the_convener_makes_a_later_version() -> None:
    here = world()
    joined = here.roster.amended(here.convener, {**here.roster.members, "org4": new_signing_key().public})
    assert (joined.version, joined.federation) == (2, here.roster.federation)
    joined.require_follows(here.roster)
    with pytest.raises(StateError, match="nobody else can sign"):
        here.roster.amended(here.keys["org1"], here.roster.members)
    with pytest.raises(StateError, match="version 1, and version 2"):
        here.roster.require_follows(joined)  # the old one can't bring back a key
    other = here.roster.amended(here.convener, {"org1": here.keys["org1"].public})
    with pytest.raises(StateError, match="version 2, and version 2"):
        other.require_follows(joined)
    with pytest.raises(StateError, match="another federation"):
        world().roster.require_follows(here.roster)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({}, "at least one"),
        ({"org 1": "00" * 32}, "name must be"),
        ({"../x": "00" * 32}, "name must be"),
        ({"org1": "00" * 31}, "32 bytes"),
        ({"org1": "11" * 32, "org2": "11" * 32}, "must differ"),
    ],
)
def test_members_that_can_t_be(members: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        create_roster(new_signing_key(), terms(), members)


def test_joining_leaving_and_a_new_key() -> None:
    here = world()
    org1, org2 = here.member("org1"), here.member("org2")
    released(org1)
    released(org2)
    # org3 leaves, org4 joins, org1 has a new key: org2 has the new roster first.
    old, before = here.roster, here.seal("org1")
    here.keys["org1"], here.keys["org4"] = new_signing_key(), new_signing_key()
    here.roster = old.amended(
        here.convener, {name: here.keys[name].public for name in ("org1", "org2", "org4")}
    )
    org4 = here.member("org4", here.agent("org4"))
    org2.follow(SignedCodec(old, "org2", here.keys["org2"]).follow(here.roster))
    org4.exchange()
    org2.exchange()
    assert org4.agent.held.keys() == {"org2"}
    assert org4.refusals == {("org1", "signature"): 1}  # signed by the key that org1 had
    assert org2.refusals == {("org1", "signature"): 1}
    with pytest.raises(StateError, match="not the one in the roster"):
        before.follow(here.roster)  # with its old key
    with pytest.raises(StateError, match="version 1, and version 2"):
        here.seal("org2").follow(old)
    org1.follow(before.follow(here.roster, here.keys["org1"]))
    org1.exchange()  # the same release, signed anew
    org4.exchange()
    org2.exchange()
    assert org4.agent.held.keys() == {"org1", "org2"}
    assert org2.agent.held["org1"].number == 1
    with pytest.raises(StateError, match="'org3' is not in the roster"):
        here.seal("org3")
    # One who still has the old roster hears nobody with a new key, until it has the new one.
    late = Member(here.agent("org2"), here.transport, SignedCodec(old, "org2", here.keys["org2"]))
    late.receive()
    assert late.refusals[("org1", "signature")] == 1


def test_who_leaves_takes_what_it_taught_along() -> None:
    """Afterwards the others are, bit for bit, as if it had never been there."""
    here = world()
    ear, never = here.member("org1"), here.member("org1")
    for name in ("org2", "org3"):
        released(here.member(name), seed=len(name))
    ear.exchange()
    assert ear.agent.held.keys() == {"org2", "org3"}
    old = here.roster
    here.roster = old.amended(here.convener, {name: here.keys[name].public for name in ("org1", "org3")})
    opened = here.member("org1", ear.agent)
    assert opened.agent.held.keys() == {"org3"}
    never.follow(SignedCodec(old, "org1", here.keys["org1"]).follow(here.roster))
    never.exchange()
    assert np.array_equal(ear.agent.gram, never.agent.gram)
    assert np.array_equal(ear.agent.moment, never.agent.moment)
    opened.exchange()  # its last message still lies there
    assert not opened.refusals
    assert opened.agent.held.keys() == {"org3"}
    assert "org2" not in here.member("org1", ear.agent).peers


def test_a_member_has_the_one_run_of_its_terms() -> None:
    """A new run would be another mechanism at each member, which the others must refuse: it is not begun."""
    here = world()
    member = here.member("org1")
    released(member)
    before = member.agent.privatizer
    again = here.roster.terms.privatizer(SimulatedNoise(9))
    assert again is not None
    with pytest.raises(InvalidInput, match=f"federation {here.roster.federation}.*create another federation"):
        member.agent.begin_run(again)
    assert member.agent.privatizer is before
    released(member)
    assert here.member("org2").receive() == ["org1"]


def test_keys_are_files_of_their_owner(tmp_path: Path) -> None:
    key = new_signing_key()
    key.write(tmp_path / "agent.key")
    assert (tmp_path / "agent.key").stat().st_mode & 0o777 == 0o600
    assert SigningKey.read(tmp_path / "agent.key").public == key.public
    assert "PRIVATE" not in repr(key)
    with pytest.raises(FileExistsError):
        key.write(tmp_path / "agent.key")
    (tmp_path / "agent.key").chmod(0o644)
    with pytest.raises(StateError, match="owner alone"):
        SigningKey.read(tmp_path / "agent.key")
    (tmp_path / "junk").write_text("junk")
    (tmp_path / "junk").chmod(0o600)
    with pytest.raises(StateError, match="PEM"):
        SigningKey.read(tmp_path / "junk")


def test_an_agent_of_a_roster_learns(tmp_path: Path) -> None:
    here = world()
    agent = here.agent("org1")
    work(agent, 3)
    assert agent.observed == 3
