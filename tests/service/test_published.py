"""What each role can work out of the rewards, by trying: an attacker with a twin of the service."""

from __future__ import annotations

import itertools
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
from fedfairx.fairness.change_test import ChangeTest
from fedfairx.service import app, published
from fedfairx.service import exposure_cache as exposing
from fedfairx.service.app import make_app
from fedfairx.service.auth import ROLES
from fedfairx.service.factory import open_service
from fedfairx.service.pages import DECISION, PAGES, page_data
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.settings import place_of
from fedfairx.storage import sqlite
from fedfairx.storage.api_keys import open_keys
from in_process_client import InProcessClient
from service_helpers import asking, settings_for

STEPS = 4
ROUNDS = 9  # that have contexts and a choice of the caller
NOW = 2e9  # what all clocks say, so that twins differ in nothing but a reward
RNG = np.random.default_rng(0)
CONTEXTS = (RNG.random((ROUNDS, 3, 3)) / 2).tolist()
BASELINES = RNG.integers(3, size=ROUNDS).tolist()
Leaf = tuple[str, str]

#: What can be got without changing anything: every route, whoever may use it.
READ = [operation for operation in OPERATIONS if operation.method == "GET"]
#: Some of it that tells an admin every reward.
TELLING = ("/v1/model", "/v1/decisions", "/v1/exposure", "/exposure")
#: Two rewards that the attacker must tell apart, and what service it is.
SERVICES: dict[str, tuple[tuple[float, float], dict[str, Any]]] = {
    "with a partner": ((0.0, 1.0), {}),
    "private": ((0.0, 7.0), {"epsilon": 2.0, "decide_from": "own+released"}),
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


def decide(client: Any, headers: dict[str, dict[str, str]], t: int) -> str:
    body = {"contexts": CONTEXTS[t], "baseline": BASELINES[t]}
    return str(client.post("/v1/decisions", json=body, headers=headers["writer"]).json()["decision_id"])


def look(client: Any, headers: dict[str, str], only: tuple[str, ...] = ()) -> dict[str, httpx.Response]:
    """All that can be seen, or some of it, by path."""
    decisions = client.get("/v1/decisions", headers=headers).json().get("decisions", [])
    last = decisions[-1]["decision_id"] if decisions else "none"
    paths = [operation.path.replace("{decision_id}", last) for operation in READ]
    paths += [path for path, _ in PAGES.values()] + ["/exposure?period=month", "/report?period=today"]
    paths += [DECISION.replace("{decision_id}", last), "/exposure?format=csv", "/model?format=csv"]
    paths += ["/decisions?format=csv", "/decisions?status=rewarded"]
    paths += ["/v1/export?format=csv", "/v1/exposure?since=1"]
    chosen = [path for path in paths if not only or path in only]
    return {path.replace(last, "{decision_id}"): client.get(path, headers=headers) for path in chosen}


def parts(seen: dict[str, httpx.Response], paths: list[str]) -> dict[Leaf, object]:
    """Every number and word of JSON, and every line of all else."""
    found: dict[Leaf, object] = {}
    for path in paths:
        answer = seen[path]
        if "json" in answer.headers["content-type"] and "jsonl" not in answer.headers["content-type"]:
            found |= dict(_leaves(path, answer.json()))
        else:
            found |= {(path, str(n)): line for n, line in enumerate(answer.text.splitlines())}
    return found


def _leaves(name: str, value: object, place: str = "") -> Iterator[tuple[Leaf, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(name, inner, f"{place}.{key}")
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from _leaves(name, inner, f"{place}[{n}]")
    else:
        yield (name, place), value


def step(client: Any, headers: dict[str, dict[str, str]], t: int, identity: str, value: float) -> str:
    """A reward, and the next decision, whose policy comes from it."""
    path = f"/v1/decisions/{identity}/reward"
    assert client.put(path, json={"reward": value}, headers=headers["writer"]).status_code == 204
    return decide(client, headers, t + 1)


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.long
def test_an_attacker_with_a_twin(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows all contexts, all actions and all rewards but the last, which it must tell: one of two.

    It makes twins of the service with the one and the other reward, keeps what a third twin repeats (no
    random ids, no private noise), and sees which of them is like the real service. Where both are, it
    guesses, and so is right in all of four with probability 1/16; the guesses are fixed. An admin's key
    tells all of them, with what `TELLING` has alone, and what a reader sees anywhere is the same whatever the
    reward was.
    """
    minutes = itertools.count()
    for module in (app, page_data):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW, perf_counter=lambda: NOW))
    monkeypatch.setattr(sqlite.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**10))
    rewards, given = SERVICES[kind]
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=STEPS).tolist()
    looked: dict[str, tuple[str, ...]] = {"admin": TELLING, "reader": ()}
    right = dict.fromkeys(looked, 0)
    told: dict[str, set[Leaf]] = {role: set() for role in looked}

    def looks(client: Any, headers: dict[str, dict[str, str]]) -> dict[str, dict[str, httpx.Response]]:
        """Of a minute in which no time passes: tables are computed once, and for the admin first."""
        now = 60.0 * next(minutes)
        monkeypatch.setattr(exposing, "time", SimpleNamespace(monotonic=lambda: now))
        return {role: look(client, headers[role], only) for role, only in looked.items()}

    def twin(folder: Path, numbers: list[int]) -> dict[str, dict[str, httpx.Response]]:
        with service(folder, **given) as (client, headers):
            identity = decide(client, headers, 0)
            for t, number in enumerate(numbers):
                identity = step(client, headers, t, identity, rewards[number])
            return looks(client, headers)

    with service(tmp_path / "real", **given) as (client, headers):
        identity = decide(client, headers, 0)
        for t in range(STEPS):
            identity = step(client, headers, t, identity, rewards[truth[t]])
            zero, one, again = (
                twin(tmp_path / f"{t}-{n}", [*truth[:t], last]) for n, last in enumerate((0, 1, 0))
            )
            twins = zero, one, again, looks(client, headers)
            for role in looked:
                differ = [path for path in zero[role] if zero[role][path].text != one[role][path].text]
                first, second, third, real = (parts(each[role], differ) for each in twins)
                tell = {
                    leaf
                    for leaf, value in first.items()
                    if third.get(leaf) == value and second.get(leaf) != value
                }
                like_first = sum(first[leaf] == real.get(leaf) for leaf in tell)
                like_second = sum(second.get(leaf) == real.get(leaf) for leaf in tell)
                sure = like_first != like_second
                right[role] += (int(like_second > like_first) if sure else int(rng.integers(2))) == truth[t]
                told[role] |= tell
    assert right["admin"] == STEPS
    assert {path for path, _ in told["admin"]} == {*TELLING}
    assert right["reader"] < STEPS
    assert told["reader"] == set()


@pytest.fixture
def batches_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (published, "LEAST", 4),
        (published, "FOR_EACH", 1),
        (exposing, "FRESH", 0.0),
        (exposing, "COST", 0.0),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.long
def test_a_reader_s_table_moves_by_batches(tmp_path: Path, batches_of_four: None) -> None:
    """Whoever looks in between, in whatever period, and across a restart."""
    place = str(tmp_path / "agent.sqlite")
    with open_keys(place_of(settings_for(place))) as keys:
        roles = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    seen: dict[str, list[str]] = {
        path: []
        for path in (
            "/v1/exposure",
            "/exposure",
            "/exposure?period=today",
            "/exposure?format=csv",
            "/model?format=csv",
        )
    }
    exact = []
    for count in (3, 2, 6):  # in three lives
        with asking(place, mode="shadow", noise_sd=0.01) as client:
            for t in range(count):
                step(client, roles, t, decide(client, roles, t), float(t % 2))
                for path in seen:
                    text = client.get(path, headers=roles["reader"]).text
                    seen[path].append(re.sub(r"<footer>.*", "", text))
                exact.append(client.get("/v1/exposure", headers=roles["admin"]).text)
    assert len(set(exact)) == 11
    for path, texts in seen.items():
        assert len(set(texts[3:7])) == 1, path  # after 4 to 7 rewards
        assert len(set(texts[7:11])) == 1, path
        assert texts[3] != texts[7]
    table = json.loads(seen["/v1/exposure"][-1])
    for row in table["actions"]:
        assert row["policy"] is None
        for share in (*row["entitled"].values(), *row["estimate"].values()):
            assert share == round(share, 3)
    assert 0 < table["actions"][0]["entitled"]["value"] < 1
    assert table["draws"]["p_value"] in (1.0, 0.1, 0.01)


def test_before_the_first_batch_a_reader_sees_who_was_shown(tmp_path: Path) -> None:
    with service(tmp_path / "here", epsilon=2.0) as (client, headers):
        step(client, headers, 0, decide(client, headers, 0), 1.0)
        found = client.get("/v1/exposure", headers=headers["reader"]).json()
        assert found["decisions"] == 2
        for row in found["actions"]:
            assert row["entitled"] == {"value": None, "low": 0.0, "high": 1.0}
            assert row["verdict"] == "too little data"
            assert row["likely"]["verdict"] == "not known yet"
            assert {row["likely"][name] for name in ("below", "in_line", "above")} == {None}
            assert 0 < row["estimate"]["low"] < row["estimate"]["value"] < row["estimate"]["high"] < 1
        model = client.get("/v1/model", headers=headers["reader"]).json()
        assert model["estimate"] == [0.0, 0.0, 0.0]  # the prior
        assert model["sd"] == pytest.approx([0.3, 0.3, 0.3])
        assert (model["low"], model["high"]) == (pytest.approx([-0.588] * 3), pytest.approx([0.588] * 3))
        admin = client.get("/v1/model", headers=headers["admin"]).json()
        for low, value, high in zip(admin["low"], admin["estimate"], admin["high"], strict=True):
            assert low < value - 0.588 < value + 0.588 < high  # the sizes are not known either
        for role, exact in (
            ("reader", False),
            ("writer", False),
            ("admin", True),
        ):  # each would tell a reward
            for seen in client.get("/v1/decisions", headers=headers[role]).json()["decisions"]:
                one = client.get(f"/v1/decisions/{seen['decision_id']}", headers=headers[role]).json()
                assert ("reward" in one) == exact
                one.pop("reward", None)
                assert one == seen
                assert (seen["probability"] is not None, seen["policy"] is not None) == (exact, exact)


def test_a_batch_is_what_it_sums(place: str, batches_of_four: None) -> None:
    """Sums over the rewards of whole batches; those of a part don't count, nor does what was withdrawn."""
    with ffx.Agent.open(place, dimension=3, seed=0) as agent:
        rng = np.random.default_rng(0)
        chosen, rewards = [], []
        found = published.Published(agent.journal, first=0, test=ChangeTest(0.5))
        for t in range(11):
            made = agent.decide(rng.random((5, 3)))
            agent.forget(agent.decide(rng.random((2, 3))))
            agent.observe(made, reward=float(rng.random()))
            whole = agent.journal.decision(made.id)
            chosen.append(whole.contexts[whole.action])
            rewards.append(whole.reward)
            if t in (1, 5, 10):
                found.update(3, found.next_end(3))
                x, y = np.array(chosen[: (t + 1) // 4 * 4]), np.array(rewards[: (t + 1) // 4 * 4])
                assert found.sums.gram == pytest.approx(x.T @ x if x.size else np.zeros((3, 3)))
                assert found.sums.moment == pytest.approx(x.T @ y if x.size else np.zeros(3))
        assert found.end == 8 * 4  # a round has four steps


@pytest.mark.parametrize("sd", [0.0123, 0.99, 3.0, 2e-9])
def test_estimates_are_rounded_to_what_is_known(sd: float) -> None:
    """By a twentieth to a half of the sd."""
    values = np.linspace(-5.0, 5.0, 997) * sd
    means, sds = published.coarse_estimates(values, np.full(997, sd))
    off = np.abs(means - values)
    assert off.max() <= 0.25 * sd * (1 + 1e-9)
    assert off.max() >= 0.02 * sd
    assert sds == pytest.approx(sd, rel=0.26)
    assert len(set(np.round(means / sd, 6))) < 220


def test_an_admin_alone_chooses_a_window(tmp_path: Path) -> None:
    with service(tmp_path / "here", epsilon=2.0) as (client, headers):
        for query in ("since=1", "until=3e9", "since=1&until=2"):
            asked = f"/v1/exposure?{query}"
            assert client.get(asked, headers=headers["reader"]).status_code == 403
            assert client.get(asked, headers=headers["admin"]).status_code == 200
        for page in ("/exposure", "/report"):
            asked = f"{page}?since=2026-01-01"
            assert client.get(asked, headers=headers["reader"]).status_code == 403
            assert client.get(asked, headers=headers["admin"]).status_code == 200


def test_rounding_keeps_what_intervals_hold() -> None:
    arms = [[1.0, 0.0], [0.0, 1.0]]
    log = [ffx.Logged([0.5, 0.5], t % 2, contexts=arms, reward=0.5) for t in range(3_000)]
    table = ffx.exposure(log, noise_sd=0.1)
    rounded = published.coarse(table)
    for before, after in zip(table.actions, rounded.actions, strict=True):
        assert after.entitled.low <= before.entitled.low <= before.entitled.high <= after.entitled.high
        assert after.entitled.high - after.entitled.low < before.entitled.high - before.entitled.low + 0.002
        assert after.entitled.value == pytest.approx(before.entitled.value, abs=0.0005)
        assert after.shown == before.shown
    assert rounded.draws.as_the_policy_said == table.draws.as_the_policy_said
