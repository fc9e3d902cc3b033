"""What leaves a service's log, and what is undone, over HTTP and on pages."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.cli.main import main
from fedfairx.client import Client
from fedfairx.errors import InvalidInput
from fedfairx.service.roles import ROLES
from fedfairx.service.settings import keep_seconds, load, place_of
from fedfairx.storage.api_keys import open_keys
from service_helpers import CONTEXTS, asking, decide, settings_for

DAY = 86_400
pytestmark = pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")


def client_of(client: Any) -> Client:
    """The package's client, which asks a service in this process."""
    made = Client("http://127.0.0.1")
    made._calls._http = client
    return made


def filled(place: str, days: list[int]) -> list[str]:
    """A decision with its reward so many days ago, the oldest first."""
    ids = []
    with ffx.Agent.open(place_of(settings_for(place)), dimension=3, seed=0, name="here") as agent:
        for day in days:
            agent.journal.log.clock = lambda day=day: int((time.time() - day * DAY) * 1e9)
            agent.journal.log.time = 0
            made = agent.decide(np.array(CONTEXTS), names=["ann", "ben", "cat"])
            agent.observe(made, reward=0.5, person="old" if day > 400 else "new")
            ids.append(made.id)
    return ids


def text_of(client: Any, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return str(answer.text)


# --- keep -------------------------------------------------------------------------------------------------


def test_keep_is_a_time() -> None:
    assert keep_seconds(load({"keep": "400d"}, environment={})) == 400 * DAY
    assert keep_seconds(load({}, environment={"FEDFAIRX_KEEP": "2w"})) == 14 * DAY
    assert keep_seconds(load({}, environment={})) is None
    for odd in ("400", "never", "0d", "-1d"):
        with pytest.raises(InvalidInput, match="keep must be a time such as 400d"):
            load({"keep": odd}, environment={})


def test_what_is_older_is_dropped_and_said(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    ids = filled(place, [500, 450, 420, 300, 10, 5])
    with asking(place, keep="400d") as client:
        service = client.app._app.state.service
        client.portal.call(service.default.drop_contexts, time.time() - 400 * DAY)
        before = client.get("/v1/model").json()
        assert before["observed"] == 6
        answers = [client.get(f"/v1/decisions/{identity}") for identity in ids]
        assert [answer.status_code for answer in answers] == [410] * 3 + [200] * 3
        assert answers[0].json()["type"] == "urn:fedfairx:problem:gone"
        answers = [client.get(f"/v1/decisions/{identity}/explanation") for identity in ids]
        assert [answer.status_code for answer in answers] == [410] * 3 + [200] * 3
        assert [each["decision_id"] for each in client.get("/v1/decisions").json()["decisions"]] == ids[3:]
        again = client.put(f"/v1/decisions/{ids[0]}/reward", json={"reward": 0.5})
        assert (again.status_code, again.json()["type"]) == (410, "urn:fedfairx:problem:gone")
        table = client.get("/v1/exposure").json()
        assert (table["decisions"], table["gone"].startswith("Contents that are gone: 3 rows")) == (3, True)
        assert "(400d)" in table["gone"]
        recent = client.get(f"/v1/exposure?since={time.time() - 20 * DAY}").json()
        assert (recent["decisions"], recent["gone"]) == (2, None)
        for path in ("/exposure", "/decisions", "/report"):
            assert "Contents that are gone: 3 rows from before" in text_of(client, path)
        answer = client.get("/v1/export")
        rows = [json.loads(line) for line in answer.text.splitlines()]
        assert [row["decision_id"] for row in rows] == ids[3:]
        assert [row["rolled_back"] for row in rows] == [False] * 3
        assert answer.headers["fedfairx-gone"].startswith("Contents that are gone: 3 rows")
        counts = service.default.counters.by_status(service.default.journal)
        assert counts["rewarded"] == 6  # outcomes stay
        client.portal.call(service.default.drop_contexts, time.time() - 400 * DAY)
        assert client.get("/v1/model").json() == before
    where = place if place.startswith("postgresql:") else str(Path(place).parent)
    assert main(["verify", "--data", where, "--replay"]) == 0
    said = capsys.readouterr().out
    assert "sound" in said
    assert "here: Contents that are gone: 3 rows from before" in said
    found = ffx.evaluate(where, "uniform")
    assert found.decisions == 3
    assert any("Contents that are gone: 3 rows" in note for note in found.notes())


# --- people -----------------------------------------------------------------------------------------------


def test_a_persons_records_are_deleted(place: str, tmp_path: Path) -> None:
    with asking(place, name="here") as client:
        known = client_of(client)
        ids = [decide(client)["decision_id"] for _ in range(6)]
        for at, identity in enumerate(ids[:4]):
            known.observe(identity, reward=at / 4, person="ann/ä" if at % 2 else "ben")
        assert client.get("/v1/model").json()["observed"] == 4
        deleted = known.delete_person("ann/ä", decisions=[ids[5]])
        assert (deleted["decisions"], deleted["rewards"], deleted["withdrawn"]) == (3, 2, 1)
        assert (deleted["sent"], deleted["private"], deleted["release"]) == (0, False, None)
        assert deleted["statement"].startswith("Deleted: 3 decisions and 2 rewards; 1 decision waited")
        for path in (ids[1], f"{ids[1]}/explanation"):
            assert client.get(f"/v1/decisions/{path}").status_code == 410
        assert client.get(f"/v1/decisions/{ids[4]}").json()["status"] == "pending"
        model, service = client.get("/v1/model").json(), client.app._app.state.service
        assert (model["observed"], model["pending"]) == (2, 1)
        twin = ffx.Agent(3)
        stored = service.default.journal.decisions(status="rewarded")
        for made in stored:
            twin.learn([made.context], [made.reward])
        assert model["estimate"] == pytest.approx(twin.estimate.tolist(), abs=1e-9)
        counts = service.default.counters.by_status(service.default.journal)
        assert counts == {"pending": 1, "rewarded": 2, "withdrawn": 1, "expired": 0, "deleted": 2}
        assert "6 rows deleted in 1 deletion" in text_of(client, "/decisions")
        assert known.delete_person("nobody")["rewards"] == 0
        assert client.delete("/v1/persons/ann?decisions=nothing-1").status_code == 404
        for wrong in ("x" * 201, "a%00b"):
            assert client.delete(f"/v1/persons/{wrong}").status_code == 422


def test_only_an_admin_may_delete_and_roll_back(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.sqlite")
    with open_keys(place_of(settings_for(place))) as keys:
        headers = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    with asking(place) as client:
        for role, expected in {role: 200 if role == "admin" else 403 for role in ROLES}.items():
            answers = (
                client.delete("/v1/persons/ann", headers=headers[role]),
                client.post("/v1/rollback", json={"to": time.time() + 9}, headers=headers[role]),
            )
            assert [answer.status_code for answer in answers] == [expected] * 2


def test_a_deleted_reward_is_gone_from_the_mean_at_once(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.sqlite")) as client:
        for person, reward in (("ben", 0.5), ("ann", 1.0), ("ben", 0.25)):
            identity = decide(client)["decision_id"]
            body = {"reward": reward, "person": person}
            assert client.put(f"/v1/decisions/{identity}/reward", json=body).status_code == 204
        assert client.get("/v1/model").json()["mean_reward"] == pytest.approx(1.75 / 3)
        assert client.delete("/v1/persons/ann").json()["rewards"] == 1
        assert client.get("/v1/model").json()["mean_reward"] == 0.375


# --- rollbacks --------------------------------------------------------------------------------------------


def test_a_service_returns_to_a_time(place: str) -> None:
    with asking(place) as client:
        known, log = client_of(client), client.app._app.state.service.log
        now = [4e9]
        log.clock = lambda: int(now[0] * 1e9)

        def rewarded(reward: float) -> str:
            now[0] += 10
            identity = str(decide(client)["decision_id"])
            known.observe(identity, reward=reward)
            return identity

        early = [rewarded(0.5) for _ in range(5)]
        then = client.get("/v1/model").json()
        mark = now[0] + 5
        late = [rewarded(1.0) for _ in range(5)]
        waiting = decide(client)["decision_id"]
        undone = known.roll_back(to=mark)
        assert (undone["decisions"], undone["rewards"], undone["withdrawn"]) == (6, 5, 1)
        said = "Undone: what 5 rewards taught. The log keeps 6 decisions since then, marked; 1 waited"
        assert undone["statement"].startswith(said)
        model = client.get("/v1/model").json()
        assert (model["estimate"], model["observed"]) == (then["estimate"], 5)
        seen = {each["decision_id"]: each for each in client.get("/v1/decisions").json()["decisions"]}
        assert [seen[each]["rolled_back"] for each in (*early, *late, waiting)] == [False] * 5 + [True] * 6
        assert seen[waiting]["status"] == "withdrawn"
        assert text_of(client, "/decisions").count("rolled back</span>") == 6
        assert client.post("/v1/rollback", json={"to": -1}).status_code == 422


def test_a_private_service_says_why_it_does_not(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.sqlite"), epsilon=2.0) as client:
        answer = client.post("/v1/rollback", json={"to": 0})
        assert answer.status_code == 422
        assert "a private agent can't go back" in answer.json()["detail"]


def test_the_command_returns_to_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    filled(str(tmp_path / "agent.sqlite"), [30, 20, 1])
    folder = str(tmp_path)
    to = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() - 25 * DAY))
    assert main(["rollback", "--data", folder, "--to", to, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rewards"] == 2
    assert main(["verify", "--data", folder, "--replay"]) == 0
    with ffx.Agent.open(tmp_path / "agent.sqlite") as agent:
        assert agent.observed == 1
    for flags in (["--to", "soon"], [], ["--to", "1", "--data", str(tmp_path / "none")]):
        assert main(["rollback", "--data", folder, *flags]) == 2
    assert not (tmp_path / "none").exists()
    with ffx.Agent.open(tmp_path / "agent.sqlite", name="north", dimension=2):
        pass
    capsys.readouterr()
    for flags in ([], ["--agent", "south"]):
        assert main(["rollback", "--data", folder, "--to", to, *flags]) == 2
        assert re.match(r"fedfairx: --agent must be one of '.*', 'north', got", capsys.readouterr().err)
    assert main(["rollback", "--data", folder, "--to", to, "--agent", "north"]) == 0
