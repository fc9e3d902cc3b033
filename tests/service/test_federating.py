"""What an engine beside a service fetches and brings."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from test_auth import bearer, new_key

from fedfairx.federation.exchange.envelope import Envelope
from member_service import founded, member_of, rounds, sync
from service_helpers import asking


def fetch(client: Any) -> Any:
    answer = client.get("/v1/release/latest")
    assert answer.status_code == 200, answer.text
    return answer.json()


def bring(client: Any, **envelopes: str) -> Any:
    answer = client.put("/v1/peers", json={"envelopes": envelopes})
    assert answer.status_code == 200, answer.text
    brought = answer.json()
    assert base64.b64decode(brought.pop("alive")).startswith(b"FFXL")
    return brought


def test_envelopes_are_carried_by_an_engine(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", transport="engine")
    with member_of(base / "org1") as one, member_of(base / "org2") as two:
        assert one.get("/v1/release/latest").status_code == 404
        rounds(one, 3)
        rounds(two, 2)
        made = fetch(one)
        assert (made["name"], made["number"]) == ("org1", 1)
        assert Envelope.parse(base64.b64decode(made["envelope"])).release.count == 3
        assert sync(one)["waiting"] is True
        assert bring(two, org1=made["envelope"]) == {"taken": ["org1"], "refused": {}}
        seen = sync(two)["peers"]["org1"]
        assert 0.0 < seen.pop("weight") < 0.3
        assert seen.pop("alive") == seen["came"]  # a release is a sign of life
        assert seen | {"came": 0} == {
            "release": 1,
            "records": 3,
            "came": 0,
            "silent": False,
            "refused": 0,
            "reason": "too little of our own to tell",
        }
        assert bring(two, org1=made["envelope"]) == {"taken": [], "refused": {}}
        assert bring(one, org1=made["envelope"], org2=fetch(two)["envelope"])["taken"] == ["org2"]
        assert sync(one)["waiting"] is False


def test_what_is_not_signed_by_a_member_is_refused_and_counted(tmp_path: Path) -> None:
    base = founded(tmp_path / "federation", transport="engine")
    other = founded(tmp_path / "other", transport="engine")
    with member_of(base / "org1") as one, member_of(other / "org2") as stranger:
        rounds(stranger, 1)
        envelope = fetch(stranger)["envelope"]
        assert bring(one, org2=envelope) == {"taken": [], "refused": {"org2": "federation"}}
        assert bring(one, org2="AAAA")["refused"] == {"org2": "malformed"}
        names = {f"<b>{i}</b>": envelope for i in range(100)}
        assert bring(one, **names)["refused"] == {"?": "unknown"}
        now = sync(one)
        assert now["refusals"] == {"?": {"unknown": 100}, "org2": {"federation": 1, "malformed": 1}}
        assert now["peers"]["org2"]["refused"] == 2
        assert one.put("/v1/peers", json={"envelopes": {"org2": "no base64!"}}).status_code == 422


def test_an_agent_alone_has_nothing_to_carry(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        for answer in (client.get("/v1/release/latest"), client.put("/v1/peers", json={"envelopes": {}})):
            assert answer.status_code == 409
            assert answer.json()["type"].endswith(":alone")


def test_envelopes_are_for_keys_of_their_own(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    keys = {role: new_key(place, role) for role in ("reader", "writer", "federation", "auditor", "admin")}
    with asking(place, host="0.0.0.0") as client:
        for role, key in keys.items():
            fetched = client.get("/v1/release/latest", headers=bearer(key))
            brought = client.put("/v1/peers", json={"envelopes": {}}, headers=bearer(key))
            assert fetched.status_code == (403 if role in ("reader", "writer") else 409)  # it is alone
            assert brought.status_code == (409 if role in ("federation", "admin") else 403)
        for path in ("/v1/model", "/v1/export", "/v1/decisions", "/metrics", "/"):
            assert client.get(path, headers=bearer(keys["federation"])).status_code == 403
