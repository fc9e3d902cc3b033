"""A service in a federation: it releases on its schedule, exchanges in the background, and says how it is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from fedfairx import Agent
from fedfairx.agent.schedules import Doubling, Never
from fedfairx.errors import InvalidInput, StateError
from fedfairx.features import Schema
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.federation.setup.create import amend_federation
from fedfairx.federation.setup.member_folder import SETTINGS, MemberFolder
from fedfairx.federation.transport import SqliteTransport
from fedfairx.service.settings import load
from member_service import founded, member_of, rounds, sync
from service_helpers import decide, metrics_of, until

FEATURES = "price=0:10,city=Rome|Oslo"


def holds(client: Any, name: str, number: int) -> bool:
    return bool(sync(client)["peers"][name]["release"] == number)


def test_two_services_learn_from_each_other(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        before = two.get("/v1/model").json()["estimate"]
        rounds(one, 20, reward=1.0)
        until(lambda: holds(two, "org1", 1))
        assert two.get("/v1/model").json()["estimate"] != before
        rounds(two, 1)
        until(lambda: holds(one, "org2", 1))
        now = sync(one)
        assert (now["released"], now["trouble"], now["over"]) == (1, None, None)
        seen = now["peers"]["org2"]
        assert 0.0 < seen.pop("weight") < 0.3
        assert seen.pop("alive") >= seen["came"] - 30.0
        assert seen | {"came": None} == {
            "release": 1,
            "records": 1,
            "came": None,
            "silent": False,
            "refused": 0,
            "reason": "too little of our own to tell",
        }
        until(lambda: not sync(one)["waiting"])
        metrics = metrics_of(one)
        assert 'fedfairx_peer_release{peer="org2"} 1' in metrics
        assert "fedfairx_federation_reached 1" in metrics
        page = one.get("/federation").text
        assert "org2" in page
        assert "with the peers" in page


def test_members_decide_by_the_features_of_their_terms(tmp_path: Path) -> None:
    schema = Schema({"price": (0, 10), "city": ["Rome", "Oslo"]}, shared=["city"])
    base = founded(tmp_path / "federation", dimension=None, schema=schema)
    actions = [{"id": "a", "features": {"price": 1}}, {"id": "b", "features": {"price": 9}}]
    with member_of(base / "org1") as one, member_of(base / "org2", features=FEATURES, shared="city") as two:
        made = decide(one, actions=actions, context={"city": "Rome"})
        reward = one.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0})
        assert reward.status_code == 204
        until(lambda: holds(two, "org1", 1))
        assert one.get("/v1/model").json()["columns"] == list(schema.columns)
    for given in ({"features": FEATURES + "|Bonn", "shared": "city"}, {"features": FEATURES}):
        with pytest.raises(InvalidInput, match="schema must be"), member_of(base / "org2", **given):
            pass


def test_it_says_how_far_it_believes_a_partner_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = founded(tmp_path / "federation", algorithm="fed-fairx-bayes", epsilon=None, horizon=200)
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        assert [sync(one)["peers"]["org2"][what] for what in ("weight", "reason")] == [None, None]
        rounds(one, 40, reward=1.0)
        rounds(two, 40, reward=-1.0)
        until(lambda: holds(one, "org2", 1) and holds(two, "org1", 1))
        peer = sync(one)["peers"]["org2"]
        assert peer["weight"] < 0.01
        assert peer["reason"] == "contradicts our rewards"
        assert "Contradicts our rewards" in one.get("/federation").text
        overview = one.get("/").text
        assert "org2 differs from us" in overview
        assert "It contradicts our rewards: 0." in overview
        until(lambda: caplog.text.count("statistics of org2 differ from ours: it contradicts") == 1)
        assert 'fedfairx_peer_weight{peer="org2"}' in metrics_of(one)
    with member_of(base / "org1") as one:  # judged anew from what is kept
        assert sync(one)["peers"]["org2"]["reason"] == peer["reason"]
    with pytest.raises(InvalidInput, match="partners"), member_of(base / "org1", partners="alike"):
        pass  # it is kept with the agent, whose log would come out otherwise


def test_it_releases_once_for_all_rounds_that_a_batch_has_passed(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", schedule=Doubling(start=2))  # 2, 4, 8, 16, 32
    with member_of(base / "org1") as one:
        for count, made, following in ((1, 0, 2), (1, 1, 4), (1, 1, 4), (6, 2, 16), (6, 2, 16), (1, 3, 32)):
            rounds(one, count)
            assert (sync(one)["released"], sync(one)["next_round"]) == (made, following)
        (silent,) = sync(one)["peers"].items()  # one that was never heard counts, with nothing
        assert (silent[0], silent[1]["release"], silent[1]["records"]) == ("org2", 0, 0)
        assert 'fedfairx_peer_records{peer="org2"} 0' in metrics_of(one)
    with member_of(base / "org1") as one:  # what is due follows from what is kept
        assert sync(one)["next_round"] == 32
        rounds(one, 15)
        assert sync(one)["released"] == 3
        rounds(one, 1)
        assert sync(one)["released"] == 4


def test_past_its_schedule_it_says_so_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = founded(tmp_path / "federation", schedule=Doubling(start=2), horizon=5)
    with caplog.at_level(logging.WARNING), member_of(base / "org1") as one:
        rounds(one, 3)
        assert sync(one)["over"] is None
        for _ in range(3):
            rounds(one, 4)
        assert "in no release" in sync(one)["over"]
        assert "Nothing more is shared" in one.get("/federation").text
        assert "Nothing more is shared" in one.get("/").text
        assert "fedfairx_federation_over 1" in metrics_of(one)
        assert one.get("/v1/model").json()["observed"] == 15
    assert caplog.text.count("in no release") == 1


def test_a_spent_budget_refuses_no_reward(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", horizon=2)
    with member_of(base / "org1") as one:
        for _ in range(4):
            rounds(one, 1)
        assert sync(one)["released"] == 2
        assert "budget is spent" in sync(one)["over"]


def test_a_schedule_without_releases(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", schedule=Never(), epsilon=None, algorithm="fed-fairx-bayes")
    with member_of(base / "org1") as one:
        rounds(one, 3)
        assert sync(one)["released"] == 0
        assert sync(one)["over"] is not None


def test_it_decides_while_the_transport_is_away_and_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = founded(tmp_path / "federation")
    file = base / "transport.sqlite"
    file.mkdir()  # nothing can be opened there
    with member_of(base / "org1") as one:
        for _ in range(5):
            rounds(one, 2)
        now = sync(one)
        assert (now["released"], now["waiting"]) == (5, True)
        until(lambda: sync(one)["trouble"] is not None)
        assert "can&#39;t be reached" in one.get("/").text
        assert "fedfairx_federation_reached 0" in metrics_of(one)
        file.rmdir()
        until(lambda: not sync(one)["waiting"])
        assert sync(one)["trouble"] is None
    held = SqliteTransport(file).latest()
    assert MemberFolder.read(base / "org2").seal().open("org1", held["org1"]).number == 5


def test_what_waited_is_sent_by_the_next_life(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    (base / "transport.sqlite").mkdir()
    with member_of(base / "org1") as one:
        rounds(one, 2)
    (base / "transport.sqlite").rmdir()
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        until(lambda: holds(two, "org1", 1))
        until(lambda: not sync(one)["waiting"])


def test_exact_sums_are_shared_too(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", epsilon=None, algorithm="fed-fairx-bayes")
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        rounds(one, 20, reward=1.0)
        until(lambda: holds(two, "org1", 1))
        assert sync(two)["peers"]["org1"]["records"] == 20
        assert any(two.get("/v1/model").json()["estimate"])


def test_settings_lead_to_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = founded(tmp_path / "federation")
    monkeypatch.chdir(tmp_path)
    file = base / "org1" / SETTINGS
    for settings in (
        load(config=file, environment={}),
        load({"federation": str(base / "org1")}, environment={}),
        load(environment={"FEDFAIRX_FEDERATION": str(base / "org1")}),
    ):
        assert settings.federation == str(base / "org1")
        assert settings.data == str(base / "org1" / "data")
        assert settings.name == "org1"
    for name, value in (("rule", "greedy"), ("epsilon", 1.0), ("merit", "exponential"), ("releases", 3)):
        with pytest.raises(InvalidInput, match=f"{name} must be left out"):
            load({"federation": str(base / "org1"), name: value}, environment={})
    with pytest.raises(InvalidInput, match="config must be a file"):
        load({"federation": str(tmp_path / "nowhere")}, environment={})
    with pytest.raises(InvalidInput, match="name must be 'org1'"), member_of(base / "org1", name="org2"):
        pass
    with pytest.raises(InvalidInput, match="dimension must be 3"), member_of(base / "org1", dimension=4):
        pass


def test_each_member_chooses_what_it_decides_from(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", schedule=Doubling(start=40))
    with member_of(base / "org1") as one, member_of(base / "org2", decide_from="released") as two:
        for client in (one, two):
            rounds(client, 10, reward=1.0)
        assert any(one.get("/v1/model").json()["estimate"])
        assert not any(two.get("/v1/model").json()["estimate"])
        decide(two)


def test_it_does_not_start_with_an_older_roster_than_it_had(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation")
    file = base / "org1" / "roster.json"
    first = file.read_text()
    amend_federation(base, remove=["org2"])
    latest = file.read_text()
    with member_of(base / "org1") as one:
        assert sync(one)["roster"] == 2
    file.write_text(first)
    with (
        pytest.raises(
            StateError, match=r"roster must be at least version 2, .*'org1'.*got 1: get the latest"
        ),
        member_of(base / "org1"),
    ):
        pass
    file.write_text(latest)
    with member_of(base / "org1") as one:
        assert (sync(one)["roster"], sync(one)["peers"]) == (2, {})


@pytest.mark.long
def test_a_new_roster_is_taken_while_it_runs(tmp_path: Path) -> None:
    """Who has left is out of its decisions, who has joined is heard; a file that is none changes nothing."""
    base = founded(tmp_path / "federation")
    with member_of(base / "org1") as one:
        with member_of(base / "org2") as two:
            rounds(two, 5)
            until(lambda: sync(one)["peers"]["org2"]["release"] == 1)
        file = base / "org1" / "roster.json"
        good = file.read_text()
        file.write_text(good.replace('"version": 1', '"version": 2'))
        until(lambda: "signature" in str(sync(one)["trouble"]))
        rounds(one, 2)
        assert (sync(one)["roster"], sync(one)["peers"]["org2"]["release"]) == (1, 1)
        file.write_text(good)
        until(lambda: sync(one)["trouble"] is None)
        amend_federation(base, add={"org3": None}, remove=["org2"])
        until(lambda: sync(one)["roster"] == 2)
        assert sync(one)["trouble"] is None
        assert sync(one)["peers"].keys() == {"org3"}
        with member_of(base / "org3") as three:
            rounds(three, 4)
            until(lambda: sync(one)["peers"]["org3"]["records"] == 4)
            until(lambda: sync(three)["peers"]["org1"]["records"] == 2)
        file.write_text(good)
        until(lambda: "version 1, and version 2" in str(sync(one)["trouble"]))
        assert sync(one)["peers"].keys() == {"org3"}
    with Agent.open(base / "org1" / "data" / "agent.sqlite") as agent:
        assert agent.held.keys() == {"org1", "org3"}
        agent.verify()


def test_a_new_key_is_taken_while_it_runs(tmp_path: Path) -> None:
    """Whichever of the two files comes first, and also where an engine carries messages."""
    base = founded(tmp_path / "federation", transport="engine")
    with member_of(base / "org1") as one:
        rounds(one, 2)
        first = one.get("/v1/release/latest").json()["envelope"]
        key = new_signing_key()
        amend_federation(base, rekey={"org1": key.public})
        one.put("/v1/peers", json={"envelopes": {}})
        assert "is not taken" in sync(one)["trouble"]  # the key is still to come
        (base / "org1" / "agent.key").unlink(missing_ok=True)
        key.write(base / "org1" / "agent.key")
        one.put("/v1/peers", json={"envelopes": {}})
        assert sync(one)["roster"] == 2
        assert "not taken" not in str(sync(one)["trouble"])
        again = one.get("/v1/release/latest").json()["envelope"]
    assert again[:200] == first[:200]
    assert again != first  # the same release, signed anew
