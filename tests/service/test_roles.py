"""What each role sees: attackers with a reader's key and a twin of the service, and an auditor."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.fairness.missing_test import Missing
from fedfairx.service import app
from fedfairx.service import exposure_cache as exposing
from fedfairx.service import service as process
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.metrics import METRICS
from fedfairx.service.pages import LINKED, PAGES, page_data
from fedfairx.service.roles import RESTRICTED, ROLES, for_role
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.schemas import ArrivalRow, ArrivalTable
from fedfairx.service.settings import place_of
from fedfairx.storage import sqlite
from fedfairx.storage.api_keys import open_keys
from in_process_client import InProcessClient
from service_helpers import settings_for

MANY = 99  # rewards that the attacker knows: with one more they are enough for a test of change
NOW = 2e9  # what all clocks say, so that twins differ in nothing but a reward
RNG = np.random.default_rng(0)
CONTEXTS = (RNG.random((MANY + 3, 3, 3)) / 2).tolist()
BASELINES = RNG.integers(3, size=MANY + 3).tolist()
REWARDS = RNG.random(MANY).tolist()
Leaf = tuple[str, str, str]

#: What can be got without changing anything: every route, whoever may use it.
READ = [operation for operation in OPERATIONS if operation.method == "GET"]
#: What tells an auditor a reward, of any service.
TELLING = {
    *("/", "/exposure", "/exposure?format=csv", "/model", "/model?format=csv", "/report"),
    *("/decisions", "/decisions/{decision_id}", "/v1/decisions?limit=1000", "/v1/decisions/{decision_id}"),
    *("/v1/model", "/v1/exposure", "/v1/export", "/v1/decisions/{decision_id}/explanation", "/metrics"),
}
#: Two rewards that the attacker must tell apart, what service it is, and what else tells them.
SERVICES: dict[str, tuple[tuple[float, float], dict[str, Any], set[str]]] = {
    "with a partner": ((0.0, 1.0), {}, {"/share?action={shown}"}),
    "private": ((0.0, 7.0), {"epsilon": 2.0, "decide_from": "own+released"}, {"/v1/privacy", "/privacy"}),
    "ranked": ((0.0, 1.0), {"slots": 2}, set()),
}


@contextmanager
def service(folder: Path, **given: Any) -> Iterator[tuple[Any, dict[str, dict[str, str]]]]:
    """One whose actions are its callers' own, so that no action tells a reward, and a key for each role."""
    place = str(folder / "agent.sqlite")
    folder.mkdir(parents=True)
    if not given:  # it has partners whom it believes by its own rewards
        with ffx.Agent.open(place, dimension=3, name="here", partners="differ") as agent:
            other = ffx.Agent(3, name="there")
            for each, slope in ((agent, 0.5), (other, 0.6)):
                each.learn(np.eye(3)[[0, 1, 2] * 4], slope * np.ones(12))
            agent.absorb({"here": agent.release(), "there": other.release()})
    with open_keys(place_of(settings_for(place))) as keys:
        headers = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    made = open_service(settings_for(place, mode="shadow", name="here", **given))
    made.log.clock = lambda: int(NOW * 1e9)
    with InProcessClient(make_app(made), base_url="http://127.0.0.1") as client:
        yield client, headers


def decide(client: Any, headers: dict[str, str], first: int, count: int, several: bool) -> list[str]:
    """Decisions among named actions, of which the caller takes its own."""
    wanted: list[dict[str, Any]] = []
    for t in range(first, first + count):
        rows = [
            {"id": name, "features": row, "group": "all"}
            for name, row in zip(("ann", "ben", "cid"), CONTEXTS[t], strict=True)
        ]
        own = [rows[(BASELINES[t] + k) % 3]["id"] for k in range(2)]
        wanted.append({"actions": rows, "baseline": own if several else own[0]})
    made = client.post("/v1/decisions/batch", json={"decisions": wanted}, headers=headers)
    assert made.status_code == 201, made.text
    return [each["decision_id"] for each in made.json()["decisions"]]


def reward(client: Any, headers: dict[str, str], first: int, given: dict[str, float], several: bool) -> None:
    """Give the rewards of decisions, the first of which is of this number; those of two slots are alike."""
    body = []
    for t, (identity, value) in enumerate(given.items(), first):
        own = [("ann", "ben", "cid")[(BASELINES[t] + k) % 3] for k in range(2)]
        one = {"rewards": dict.fromkeys(own, value)} if several else {"reward": value}
        body.append({"decision_id": identity, **one})
    assert client.post("/v1/rewards", json={"rewards": body}, headers=headers).status_code == 204


def look(client: Any, headers: dict[str, str], ids: list[str]) -> dict[str, httpx.Response]:
    """All that can be seen, by path; `ids` are those of all decisions."""
    paths = [operation.path for operation in READ] + [each.path for each in PAGES.values()]
    paths += [each.path for each in LINKED.values()]
    paths += [f"{each.path}?format=csv" for each in (PAGES | LINKED).values()]
    paths += ["/exposure?period=month", "/report?period=today", "/decisions?status=rewarded"]
    paths += ["/v1/decisions?limit=1000"]
    paths += ["/exposure?sort=-verdict", "/exposure?sort=entitled", "/exposure?sort=shortfall"]
    paths += ["/v1/export?format=csv", "/v1/exposure?since=1", "/exposure?since=2001-01-01"]
    paths += ["/share?action={shown}", "/decisions/{decision_id}?sort=share"]
    places = {"{decision_id}": ids[-1], "{shown}": "ann", "{agent}": "here"}
    found = {}
    for path in paths:
        asked = path
        for name, value in places.items():
            asked = asked.replace(name, value)
        found[path] = client.get(asked, headers=headers)
    return found


def parts(answer: httpx.Response, ids: list[str]) -> dict[str, object]:
    """Every number and word of JSON, and every line of all else, with numbers instead of random ids."""
    kind, text = answer.headers["content-type"], answer.text
    for n, identity in enumerate(ids):
        text = text.replace(identity, f"#{n}")
    if "json" in kind and "jsonl" not in kind:
        return dict(_leaves(json.loads(text)))
    return {str(n): line for n, line in enumerate(text.splitlines())}


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{place}.{key}")
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from _leaves(inner, f"{place}[{n}]")
    else:
        yield place, value


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.long
def test_an_attacker_with_a_twin(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows all contexts, all actions and all rewards but one, of which it knows that it is one of two.

    It makes twins of the service with the one and the other reward, and looks at everything, before and after
    a next decision, for a difference that a third twin repeats (random ids and private noise differ in all of
    them). To an auditor all of `TELLING` tell the reward; to a reader nothing does.
    """
    for module in (app, page_data):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW, perf_counter=lambda: NOW))
    monkeypatch.setattr(sqlite.SqliteDatabase, "space", lambda _: (10**6, 10**10))
    monkeypatch.setattr(exposing, "FRESH", -1.0)
    monkeypatch.setattr(exposing, "COST", 0.0)
    monkeypatch.setattr(process, "TICK", 1e9)  # what it writes by itself depends on how long all takes
    rewards, given, more = SERVICES[kind]
    several, roles = "slots" in given, ("reader", "auditor")

    def twin(folder: Path, last: float) -> list[dict[Leaf, object]]:
        """Each part of every answer, by role, path and place, before and after the next decision."""
        seen: list[dict[Leaf, object]] = []
        with service(folder, **given) as (client, headers):
            writer = headers["writer"]
            ids = decide(client, writer, 0, MANY + 1, several)
            reward(client, writer, 0, dict(zip(ids, [*REWARDS, last], strict=True)), several)
            for _ in range(2):
                seen.append({})
                for role in roles:
                    for path, answer in look(client, headers[role], ids).items():
                        for place, value in parts(answer, ids).items():
                            seen[-1][role, path, place] = value
                ids += decide(client, writer, MANY + 1, 1, several)  # whose policy comes from that reward
        return seen

    told: set[Leaf] = set()
    twins = (twin(tmp_path / str(n), rewards[which]) for n, which in enumerate((0, 1, 0)))
    for zero, one, again in zip(*twins, strict=True):
        for leaf in zero.keys() | one.keys():
            if zero.get(leaf) == again.get(leaf) != one.get(leaf):
                told.add(leaf)
    assert {leaf for leaf in told if leaf[0] == "reader"} == set()
    assert {path for role, path, _ in told if role == "auditor"} >= TELLING | more


def test_an_auditor_sees_what_an_admin_sees_and_changes_nothing(tmp_path: Path) -> None:
    with service(tmp_path / "here", epsilon=2.0) as (client, headers):
        (identity,) = decide(client, headers["writer"], 0, 1, False)
        reward(client, headers["writer"], 0, {identity: 0.5}, False)
        auditor, admin = (look(client, headers[role], [identity]) for role in ("auditor", "admin"))
        assert {path: each.status_code for path, each in auditor.items()} == {
            path: each.status_code for path, each in admin.items()
        }
        for path in ("/v1/model", "/v1/exposure", "/v1/decisions", "/v1/export", "/v1/privacy", "/v1/sync"):
            assert auditor[path].status_code == 200
            assert auditor[path].content == admin[path].content
        assert client.get(f"/v1/decisions/{identity}", headers=headers["auditor"]).json()["reward"] == 0.5
        for operation in OPERATIONS:
            if operation.method != "GET":
                path = re.sub(r"{\w+}", identity, operation.path)
                answer = client.request(operation.method, path, json={}, headers=headers["auditor"])
                assert answer.status_code == 403, path


@pytest.mark.parametrize("kind", ["private", "ranked"])
def test_a_reader_sees_what_was_possible_shown_and_answered(kind: str, tmp_path: Path) -> None:
    _, given, _ = SERVICES[kind]
    several = kind == "ranked"
    with service(tmp_path / "here", **given) as (client, headers):
        first, second = decide(client, headers["writer"], 0, 2, several)
        reward(client, headers["writer"], 0, {first: 0.5}, several)

        def ask(role: str, path: str) -> Any:
            return client.get(path, headers=headers[role]).json()

        for role in ("reader", "writer"):
            for identity, status in ((first, "rewarded"), (second, "pending")):
                one, whole = (ask(each, f"/v1/decisions/{identity}") for each in (role, "admin"))
                assert (one["status"], one["action"], one["seq"]) == (status, whole["action"], whole["seq"])
                assert (one["policy"], one["probability"]) == (None, None)
                assert "reward" not in one
                if several:
                    assert one["exposure"] is None
                    assert [slot["action_id"] for slot in one["shown"]] == [
                        slot["action_id"] for slot in whole["shown"]
                    ]
                    assert {slot["exposure"] for slot in one["shown"]} == {None}
                    assert not any("reward" in slot for slot in one["shown"])
            table, whole = (ask(each, "/v1/exposure") for each in (role, "admin"))
            for row, other in zip(table["actions"], whole["actions"], strict=True):
                seen = ("name", "decisions", "shown_times", "shown", "left")
                assert {name: row[name] for name in seen} == {name: other[name] for name in seen}
                assert {row[name] for name in row.keys() - {*seen}} == {None}
            assert (table["summary"], table["draws"], table["claims"]) == (None, None, None)
            assert table["decisions"] == whole["decisions"] == 2
            model = ask(role, "/v1/model")
            assert {model[name] for name in ("estimate", "sd", "low", "high", "mean_reward", "lift")} == {
                None
            }
            assert (model["observed"], model["change"]) == (2 if several else 1, None)
            assert ask(role, "/v1/privacy")["clipped"] is None
            assert [row["rewards"] for row in ask(role, "/v1/rewards")["groups"]] == [2 if several else 1]


def test_a_page_or_link_that_a_role_may_not_see_is_not_offered(tmp_path: Path) -> None:
    with service(tmp_path / "here", epsilon=2.0) as (client, headers):
        (identity,) = decide(client, headers["writer"], 0, 1, False)
        reward(client, headers["writer"], 0, {identity: 0.5}, False)
        for role in ("reader", "writer", "auditor", "admin"):
            pages = {name: client.get(each.path, headers=headers[role]) for name, each in PAGES.items()}
            pages["decision"] = client.get(f"/decisions/{identity}", headers=headers[role])
            few = {"model", "report"} if role in ("reader", "writer") else set()
            assert {name for name, page in pages.items() if page.status_code == 403} == few
            links = {
                link
                for page in pages.values()
                if page.status_code == 200
                for link in re.findall(r'href="(/[^"#]*)', page.text)
                if not link.startswith("/static/")
            }
            assert {"/exposure", "/decisions", f"/decisions/{identity}"} <= links
            for link in links:
                answer = client.get(link.replace("&amp;", "&"), headers=headers[role])
                assert answer.status_code == 200, (role, link)


def test_a_metric_that_comes_from_rewards_is_for_auditors_and_admins(tmp_path: Path) -> None:
    with service(tmp_path / "here") as (client, headers):
        (identity,) = decide(client, headers["writer"], 0, 1, False)
        reward(client, headers["writer"], 0, {identity: 0.5}, False)
        seen = {}
        for role in ("reader", "auditor"):
            text = client.get("/metrics", headers=headers[role]).text
            seen[role] = {*re.findall(r"# TYPE fedfairx_(\w+)", text)}
        assert seen["reader"] == {name for name in seen["auditor"] if not METRICS[name].restricted}
        assert {"mean_reward", "change_evidence", "records_clipped"} <= seen["auditor"] - seen["reader"]


def test_restricted_fields_are_taken_out_wherever_they_are() -> None:
    log = [ffx.Logged([0.5, 0.5], t % 2, [0, 1], reward=0.5) for t in range(40)]
    table = ffx.exposure(log, posterior=(np.full(2, 0.5), 0.1 * np.eye(2)))
    seen = for_role({"tables": [table]}, "reader")["tables"][0]
    assert [row.shown for row in seen.actions] == [row.shown for row in table.actions]
    assert (seen.over_time, seen.draws.decisions, seen.actions[0].likely) == (None, 0, None)
    assert np.isnan(seen.actions[0].estimated)
    assert np.isnan(seen.actions[0].policy)
    missing = Missing("action", "ann", 40, 0, 1.0)
    row = ArrivalRow("ann", 40, 0, 40, 0, 1.0, missing)
    arrived = ArrivalTable((row,), (), (str(missing),), 40, 60.0, 0.01, "", read=True)
    told = for_role(arrived, "writer")
    assert (told.missing, told.alarms(), told.actions[0].waiting) == (None, [], 40)
    assert table.actions[0].likely is not None  # that of others is as it was
    assert for_role(table, "auditor") is table


@pytest.mark.parametrize("kind", RESTRICTED, ids=lambda each: each.__name__)
def test_restricted_fields_are_fields(kind: type) -> None:
    assert RESTRICTED[kind].keys() <= {*kind.__annotations__}
