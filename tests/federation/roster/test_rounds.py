"""Rounds at public times, and the terms and rosters of secure aggregation."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fedfairx.errors import InvalidInput, StateError
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Centring, SimulatedNoise
from member_helpers import secure_terms, terms

NAMES = ("org1", "org2", "org3", "org4")


def test_the_default_has_fifty_rounds_within_a_year() -> None:
    rounds = Rounds(begin=1_000)
    assert len(rounds.times) == rounds.count == 50
    assert rounds.times[0] == 1_000 + 3600
    exact = [1_000 + 3600 * Fraction(6, 5) ** k for k in range(50)]
    assert all(
        abs(time - exact[k]) <= Fraction(1, 2) + Fraction(1, 1000) for k, time in enumerate(rounds.times)
    )
    assert 300 < (rounds.times[-1] - 1_000) / 86_400 < 365


def test_a_round_can_come_every_hour() -> None:
    rounds = Rounds(begin=0, ratio=1, count=8760)
    assert {b - a for a, b in zip(rounds.times, rounds.times[1:], strict=False)} == {3600}


def test_the_round_of_a_time() -> None:
    rounds = Rounds(begin=100, first=10, ratio=1, count=3)
    assert [rounds.number(now) for now in (0, 109.9, 110, 119, 120, 130, 1e9)] == [0, 0, 1, 1, 2, 3, 3]
    assert [rounds.next_time(now) for now in (0, 110, 129, 130)] == [110, 120, 130, None]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"begin": -1}, "begin must be an integer >= 0"),
        ({"first": 0}, "first must be an integer >= 1"),
        ({"first": 1.5}, "first must be an integer >= 1"),
        ({"count": 0}, "count must be an integer >= 1"),
        ({"count": 2_000_000, "ratio": 1}, "count must be at most a million"),
        ({"count": 500}, "count must be so few"),
        ({"ratio": 0.5}, "ratio must be 1, or from 1.00028"),
        ({"ratio": float("nan")}, "ratio must be 1"),
        ({"ratio": True}, "ratio must be 1"),
        ({"first": 4, "ratio": 1.2}, "ratio must be 1, or from 1.25"),
    ],
)
def test_rounds_that_can_not_be_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        Rounds(**({"begin": 0} | change))


# --- terms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"decide_from": "released"},
        {"partners": "alike"},
        {"agents": 10, "colluding": 3, "records": 1000},
        {"centring": Centring.unit_box(3)},
        {"algorithm": "priv-fairx-linucb"},
    ],
)
def test_terms_are_read_as_they_were_written(changes: dict[str, Any]) -> None:
    made = secure_terms(**changes)
    again = Terms.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made
    assert again.digest == made.digest
    assert again.stated.digest() == made.stated.digest()


def test_federations_of_earlier_rules_are_refused() -> None:
    """Their members carry records from one epoch into the next."""
    values = secure_terms().to_dict()
    assert values["aggregation"].pop("protocol") == 2
    with pytest.raises(StateError, match=r"protocol must be 2, got 1: .* found a new federation"):
        Terms.from_dict(values)


def test_the_terms_fix_what_members_choose_elsewhere() -> None:
    made = secure_terms()
    assert made.share is not None
    assert (made.share.colluding, made.share.honest, made.records) == (1, 3, 10_000_000)
    assert (made.options.decide_from, made.options.partners) == ("own+released", "differ")
    assert secure_terms(decide_from="released").options.partners == "alike"
    assert made.releases == 12
    with pytest.raises(
        InvalidInput, match=r"decide_from must be left out or that of the terms, own\+released"
    ):
        made.budget("released")
    with pytest.raises(InvalidInput, match="partners must be left out or that of the terms, differ"):
        made.agent("org1", noise=SimulatedNoise(1), partners="alike")


@pytest.mark.parametrize(
    "changes",
    [
        {"decide_from": "released"},
        {"partners": "alike"},
        {"colluding": 2},
        {"records": 100},
        {"epsilon": 1.0},
    ],
)
def test_each_agreed_value_is_in_the_digest(changes: dict[str, Any]) -> None:
    assert secure_terms(**changes).digest != secure_terms().digest


def test_too_few_members_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="members must be at least 3 for secure aggregation where 1 may"):
        secure_terms(agents=2)
    with pytest.raises(InvalidInput, match="members must be at least 5 for secure aggregation where 3 may"):
        secure_terms(colluding=3)


def test_rounds_and_records_are_for_secure_aggregation() -> None:
    for name, value in (("rounds", Rounds(begin=0)), ("records", 10)):
        with pytest.raises(InvalidInput, match=f"{name} is for aggregation='secure'"):
            terms(**{name: value})


def test_other_terms_and_rosters_are_written_as_before() -> None:
    """Without secure aggregation no field of it is in what is signed."""
    assert "aggregation" not in terms().to_dict()
    key = new_signing_key()
    roster = create_roster(key, terms(), {name: new_signing_key().public for name in NAMES[:3]})
    body = json.loads(roster.to_json())["roster"]
    assert sorted(body) == ["convener", "federation", "members", "nonce", "terms", "version"]
    with pytest.raises(StateError, match="signature"):
        document = json.loads(roster.to_json())
        document["roster"]["openers"] = ["org1"]
        Roster.from_json(json.dumps(document))


def test_a_total_may_have_the_records_and_the_noise_of_all() -> None:
    made = secure_terms(records=1000)
    limits, one = made.limits, replace(made.limits, rows=1)
    assert limits.records.tolist() == [4000] * 12
    assert np.allclose(limits._noise_of(3), 2.0 * np.array(one._noise_of(3)))  # √4 times its sd


# --- rosters ----------------------------------------------------------------------------------------------


def test_a_roster_names_its_openers() -> None:
    members = {name: new_signing_key().public for name in NAMES}
    roster = create_roster(new_signing_key(), secure_terms(colluding=2), members)
    assert roster.openers == ("org1", "org2", "org3")
    assert Roster.from_json(roster.to_json()) == roster
    document = json.loads(roster.to_json())
    document["roster"]["openers"] = ["org1", "org2", "org4"]
    with pytest.raises(StateError, match="signature must be its convener's"):
        Roster.from_json(json.dumps(document))


def test_a_secure_roster_has_as_many_members_as_its_terms() -> None:
    key, members = new_signing_key(), {name: new_signing_key().public for name in NAMES}
    with pytest.raises(
        InvalidInput, match="members must be 5, as in the terms of secure aggregation: 4 whose"
    ):
        create_roster(key, secure_terms(agents=5), members)
    for openers in (["org1"], ["org1", "org1"], ["org1", "org9"], ["org1", "org2", "org3"]):
        with pytest.raises(InvalidInput, match="openers must be"):
            create_roster(key, secure_terms(), members, openers=openers)


def test_a_later_version_of_a_secure_roster_has_rounds_and_openers_of_its_own() -> None:
    key, members = new_signing_key(), {name: new_signing_key().public for name in NAMES}
    roster = create_roster(key, secure_terms(agents=4), members)
    assert roster.rounds == roster.terms.rounds
    joined = members | {"org5": new_signing_key().public}
    later = roster.amended(key, joined, begin=2_000_000)
    assert Roster.from_json(later.to_json()) == later
    assert (later.version, later.openers, later.terms) == (2, roster.openers, roster.terms)
    assert later.rounds is not None
    assert later.rounds.times[0] == 2_000_010
    assert later.terms.share == roster.terms.share  # joining raises nothing
    later.require_follows(roster)
    without = {name: public for name, public in joined.items() if name != "org1"}
    assert later.amended(key, without).openers == ("org2", "org3")  # the next one takes its place
    assert later.amended(key, without, openers=["org5", "org4"]).openers == ("org5", "org4")
    others = {name: new_signing_key().public for name in ("org6", "org7")}
    rest = {name: public for name, public in without.items() if name != "org2"} | others
    assert later.amended(key, rest).openers == ("org3", "org4")  # none of them has to stay
    soon = later.amended(key, without).rounds
    assert soon is not None
    assert abs(soon.begin - time.time()) < 600


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"org1": None}, "members must be at least 4: 3 whose noise hides a record in every total, and 1"),
        ({"org3": "new"}, "keys must stay with secure aggregation: remove the member, and add it under"),
    ],
)
def test_a_later_version_of_a_secure_roster_keeps_what_the_claim_needs(
    changes: dict[str, str | None], text: str
) -> None:
    key, members = new_signing_key(), {name: new_signing_key().public for name in NAMES}
    roster = create_roster(key, secure_terms(agents=4), members)
    made = {name: new_signing_key().public for name, how in changes.items() if how}
    staying = {name: public for name, public in members.items() if name not in changes}
    with pytest.raises(InvalidInput, match=text):
        roster.amended(key, staying | made)


def test_a_first_version_has_the_rounds_of_its_terms() -> None:
    key, members = new_signing_key(), {name: new_signing_key().public for name in NAMES}
    roster = create_roster(key, secure_terms(agents=4), members)
    for wrong in (roster._parts() | {"begin": 5}, roster.amended(key, members)._parts() | {"begin": None}):
        with pytest.raises(InvalidInput, match="begin must be"):
            Roster(**wrong, signature=roster.signature)
