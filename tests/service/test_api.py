"""Decisions and rewards over HTTP, on both kinds of database."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet
import pytest

import fedfairx as ffx
from fedfairx.service import decisions, service
from fedfairx.service.metrics import EDGES, Metrics
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.settings import Settings
from service_helpers import ACTIONS, CONTEXTS, asking, decide, metrics_of, until


def put(client, identity, reward):
    return client.put(f"/v1/decisions/{identity}/reward", json={"reward": reward})


def test_a_decision_and_its_reward(place: str) -> None:
    with asking(place) as client:
        made = decide(client)
        assert set(made) == {
            "decision_id", "action", "action_id", "probability", "policy", "model_version", "mode",
        }  # fmt: skip
        assert made["probability"] == made["policy"][made["action"]]
        assert made["action_id"] is None
        assert sum(made["policy"]) == pytest.approx(1.0)
        assert made["mode"] == "live"
        assert put(client, made["decision_id"], 0.5).status_code == 204
        assert put(client, made["decision_id"], 0.5).status_code == 204  # the same again
        other = put(client, made["decision_id"], 0.25)
        assert other.status_code == 409
        assert other.headers["content-type"] == "application/problem+json"
        assert put(client, "nobody-7", 0.5).status_code == 404
        model = client.get("/v1/model").json()
        assert (model["observed"], model["pending"], model["model_version"]) == (1, 0, 1)


def test_the_same_key_answers_the_same_decision(place: str) -> None:
    with asking(place) as client:
        first = decide(client, key="k-1")
        assert decide(client, key="k-1") == first
        other = client.post(
            "/v1/decisions", json={"contexts": CONTEXTS[:2]}, headers={"idempotency-key": "k-1"}
        )
        assert other.status_code == 409
        assert other.json()["type"].endswith(":key-reused")
        assert client.get("/v1/model").json()["pending"] == 1
    with asking(place) as client:  # and after a restart
        assert decide(client, key="k-1") == first


def test_a_key_that_is_no_key(place: str) -> None:
    with asking(place) as client:
        for bad in ("", "two words", "x" * 201, "ä"):
            headers = {"idempotency-key": bad.encode("latin-1")}
            answer = client.post("/v1/decisions", json={"contexts": CONTEXTS}, headers=headers)
            assert answer.status_code == 422, bad


def test_names_groups_and_exclusions(place: str) -> None:
    with asking(place) as client:
        made = decide(client, actions=ACTIONS, excluded=["ann"])
        assert made["policy"][0] == 0.0
        assert made["action_id"] in ("ben", "cat")
        assert ACTIONS[made["action"]]["id"] == made["action_id"]
        seen = client.get(f"/v1/decisions/{made['decision_id']}").json()
        assert seen["action_ids"] == ["ben", "cat"]
        assert seen["action_id"] == made["action_id"]
        assert seen["group"] == {"ben": "large", "cat": None}[made["action_id"]]
        unnamed = decide(client, excluded=[0, 1])
        assert unnamed["action"] == 2
        assert unnamed["policy"] == [0.0, 0.0, 1.0]
        assert client.get(f"/v1/decisions/{unnamed['decision_id']}").json()["action_ids"] is None
        for bad in (["nobody"], [7], ["ann", "ben", "cat"]):
            answer = client.post("/v1/decisions", json={"actions": ACTIONS, "excluded": bad})
            assert answer.status_code == 422
        twice = client.post("/v1/decisions", json={"actions": [ACTIONS[0], ACTIONS[0]]})
        assert twice.status_code == 422
        assert "different ids" in twice.json()["detail"]


def test_batches_are_whole(place: str) -> None:
    with asking(place, max_batch=3) as client:
        body = {"decisions": [{"contexts": CONTEXTS}] * 3}
        answer = client.post("/v1/decisions/batch", json=body, headers={"idempotency-key": "b"})
        made = answer.json()["decisions"]
        again = client.post("/v1/decisions/batch", json=body, headers={"idempotency-key": "b"})
        assert again.json()["decisions"] == made
        assert len({one["decision_id"] for one in made}) == 3
        assert (
            client.post("/v1/decisions/batch", json={"decisions": [{"contexts": CONTEXTS}] * 4}).status_code
            == 413
        )
        bad = {"decisions": [{"contexts": CONTEXTS}, {"contexts": [[1.0]]}]}
        assert client.post("/v1/decisions/batch", json=bad).status_code == 422
        assert client.get("/v1/model").json()["pending"] == 3

        def rewards(*pairs):
            return {"rewards": [{"decision_id": made[i]["decision_id"], "reward": r} for i, r in pairs]}

        unknown = rewards((0, 1.0))
        unknown["rewards"].append({"decision_id": "nobody-1", "reward": 1.0})
        assert client.post("/v1/rewards", json=unknown).status_code == 404
        assert client.post("/v1/rewards", json=rewards((0, 1.0), (0, 1.0))).status_code == 422
        assert client.get("/v1/model").json()["observed"] == 0
        assert client.post("/v1/rewards", json=rewards((0, 1.0), (1, 0.5))).status_code == 204
        assert client.post("/v1/rewards", json=rewards((1, 0.5), (2, 0.0))).status_code == 204  # one is new
        assert client.post("/v1/rewards", json=rewards((1, 0.5), (2, 0.5))).status_code == 409
        assert client.get("/v1/model").json()["observed"] == 3


def test_a_batch_is_bounded_by_the_work_that_it_is(tmp_path: Path) -> None:
    """12 rewards of 500 features once took six seconds, for which all other agents waited."""
    with asking(str(tmp_path / "agent.db"), dimension=399) as client:  # and the intercept

        def send(count: int) -> int:
            body = {
                "rewards": [{"decision_id": f"nobody-{number}", "reward": 1.0} for number in range(count)]
            }
            answer = client.post("/v1/rewards", json=body)
            if answer.status_code == 413:
                rule = "The size of a batch × d² must be at most 2000000 (max_batch_work), got"
                assert f"{rule} {count} × 400² = {count * 160_000}." in answer.text
            return int(answer.status_code)

        assert [send(count) for count in (1, 12, 13, 16)] == [404, 404, 413, 413]
        many = {"decisions": [{"contexts": [[0.01] * 399]}] * 13}
        assert client.post("/v1/decisions/batch", json=many).status_code == 413
        named = {"decisions": [{"actions": [{"id": "a", "features": [0.01] * 399}]}] * 13}
        assert client.post("/v1/decisions/batch", json=named).status_code == 413
        few = {"decisions": many["decisions"][:12]}
        made = client.post("/v1/decisions/batch", json=few).json()["decisions"]
        made += client.post("/v1/decisions/batch", json=few).json()["decisions"]
        withdrawn = {"decision_ids": [one["decision_id"] for one in made]}
        assert client.post("/v1/withdrawals", json=withdrawn).status_code == 204
    with asking(str(tmp_path / "other" / "agent.db"), dimension=20) as client:
        body = {"decisions": [{"contexts": [[0.1] * 20] * 2}] * 1_000}
        made = client.post("/v1/decisions/batch", json=body).json()["decisions"]
        rewards = [{"decision_id": one["decision_id"], "reward": 1.0} for one in made]
        assert client.post("/v1/rewards", json={"rewards": rewards}).status_code == 204
    names = [f"worker-{k:03d}" for k in range(200)]
    with asking(str(tmp_path / "named" / "agent.db"), actions=names, dimension=None) as client:
        made = client.post("/v1/decisions/batch", json={"decisions": [{}] * 1_000}).json()["decisions"]
        rewards = [{"decision_id": one["decision_id"], "reward": 1.0} for one in made]
        assert client.post("/v1/rewards", json={"rewards": rewards}).status_code == 204
    with asking(str(tmp_path / "third" / "agent.db"), max_batch_work=1) as client:
        assert client.post("/v1/decisions/batch", json={"decisions": [{"contexts": CONTEXTS}]}).is_success


def test_a_decision_that_was_never_shown(place: str) -> None:
    with asking(place) as client:
        identity = decide(client)["decision_id"]
        assert client.delete(f"/v1/decisions/{identity}").status_code == 204
        assert client.delete(f"/v1/decisions/{identity}").status_code == 204
        assert put(client, identity, 1.0).status_code == 409
        assert client.delete("/v1/decisions/nobody-1").status_code == 404
        rewarded = decide(client)["decision_id"]
        put(client, rewarded, 1.0)
        assert client.delete(f"/v1/decisions/{rewarded}").status_code == 409


def test_withdrawals_in_a_batch_are_whole(place: str) -> None:
    with asking(place, max_batch=3) as client:
        made = [decide(client)["decision_id"] for _ in range(5)]
        put(client, made[0], 1.0)

        def withdraw(*identities):
            return client.post("/v1/withdrawals", json={"decision_ids": identities})

        for status, kind, identities in (
            (404, "unknown-decision", [made[1], "nobody-1"]),
            (409, "conflict", [made[1], made[0]]),  # it has its reward
            (422, "invalid", [made[1], made[1]]),
            (422, "invalid", []),
            (413, "too-large", made[1:]),
        ):
            refused = withdraw(*identities)
            assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (status, kind)
            assert client.get("/v1/model").json()["pending"] == 4
        assert withdraw(made[1], made[2]).status_code == 204
        assert withdraw(made[2], made[3]).status_code == 204  # one is new
        assert withdraw(made[1], made[2], made[3]).status_code == 204  # none is
        assert client.get("/v1/model").json()["pending"] == 1
        assert put(client, made[2], 1.0).status_code == 409
        assert "\nfedfairx_withdrawn_total 3\n" in metrics_of(client)
    with asking(place) as client:  # and after a restart
        statuses = [client.get(f"/v1/decisions/{one}").json()["status"] for one in made]
        assert statuses == ["rewarded", "withdrawn", "withdrawn", "withdrawn", "pending"]


def test_a_thousand_withdrawals_and_no_more(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        body = {"decisions": [{"contexts": CONTEXTS}] * 1000}
        made = client.post("/v1/decisions/batch", json=body).json()["decisions"]
        identities = [one["decision_id"] for one in made]
        more = {"decision_ids": [*identities, decide(client)["decision_id"]]}
        assert client.post("/v1/withdrawals", json=more).status_code == 413
        assert client.post("/v1/withdrawals", json={"decision_ids": identities}).status_code == 204
        assert client.get("/v1/model").json()["pending"] == 1


def test_shadow_takes_the_baseline_and_learns_from_it(place: str) -> None:
    with asking(place, mode="shadow") as client:
        made = decide(client, actions=ACTIONS, baseline="cat")
        assert (made["action_id"], made["mode"], made["probability"]) == ("cat", "shadow", 1.0)
        put(client, made["decision_id"], 1.0)
        (row,) = map(json.loads, client.get("/v1/export").text.splitlines())
        assert row["drawn"] in (0, 1, 2)
        assert row["baseline"] == row["action"] == 2
        assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 422
        estimate = client.get("/v1/model").json()["estimate"]
        assert (
            estimate[0] == pytest.approx(estimate[1]) == pytest.approx(estimate[2])
        )  # cat's context is even


def test_a_baseline_is_found_among_those_that_are_not_excluded(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.sqlite"), mode="shadow") as client:
        for baseline, excluded in (("ben", ["ann"]), ("cat", ["ann"]), ("cat", ["ben"])):
            made = decide(client, actions=ACTIONS, baseline=baseline, excluded=excluded)
            assert (made["action_id"], made["mode"]) == (baseline, "shadow")
            assert made["action"] == [each["id"] for each in ACTIONS].index(baseline)


def test_a_control_share_is_the_share_of_the_baseline() -> None:
    """Seeded; 10 % of 1 000 is within 70 and 130 with probability 0.998."""
    random.seed(0)
    settings = Settings(control_share=0.1)
    modes = Counter(decisions._draw_mode(settings) for _ in range(1_000))
    assert 70 <= modes["control"] <= 130
    assert modes["control"] + modes["live"] == 1_000
    assert {decisions._draw_mode(Settings()) for _ in range(100)} == {"live"}
    assert {decisions._draw_mode(Settings(mode="shadow", control_share=0.1)) for _ in range(9)} == {"shadow"}


def test_a_control_share_keeps_the_baseline(place: str) -> None:
    """200 decisions with a share of one half: 64 to 136 of them but for one in 10⁷ runs."""
    with asking(place, control_share=0.5) as client:
        body = {"decisions": [{"contexts": CONTEXTS, "baseline": 0}] * 200}
        made = client.post("/v1/decisions/batch", json=body).json()["decisions"]
        control = [one for one in made if one["mode"] == "control"]
        assert 64 <= len(control) <= 136
        assert all(one["action"] == 0 for one in control)
        for one in made:
            expected = 0.5 * one["policy"][one["action"]] + 0.5 * (one["action"] == 0)
            assert one["probability"] == pytest.approx(expected)


def test_named_features_are_clipped_and_counted(place: str) -> None:
    with asking(place, features="price=0:10,rating=1:5", intercept=True) as client:
        actions = [
            {"id": "a", "features": {"price": 5.0, "rating": 3.0}},
            {"id": "b", "features": {"price": -4.0, "rating": 9.0}},
        ]
        decide(client, actions=actions)
        (row,) = map(json.loads, client.get("/v1/export").text.splitlines())
        root = 3**0.5
        assert row["contexts"] == [
            pytest.approx([0.0, 0.0, 1 / root]),
            pytest.approx([-1 / root, 1 / root, 1 / root]),
        ]
        assert "\nfedfairx_features_clipped_total 2\n" in metrics_of(client)
        for features, word in (
            ({"price": 1.0}, "rating"),
            ({"price": 1.0, "rating": 1.0, "x": 1.0}, "actions[0].features.x is unknown"),
        ):
            answer = client.post("/v1/decisions", json={"actions": [{"id": "a", "features": features}]})
            assert answer.status_code == 422
            assert word in answer.json()["detail"]


def test_pages_of_decisions(place: str) -> None:
    with asking(place) as client:
        made = [decide(client)["decision_id"] for _ in range(5)]
        put(client, made[1], 1.0)
        first = client.get("/v1/decisions", params={"limit": 3}).json()
        second = client.get("/v1/decisions", params={"limit": 3, "after": first["next"]}).json()
        assert [one["decision_id"] for one in first["decisions"] + second["decisions"]] == made
        assert second["next"] is None
        rewarded = client.get("/v1/decisions", params={"status": "rewarded"}).json()["decisions"]
        assert [one["decision_id"] for one in rewarded] == [made[1]]
        text = client.get("/v1/decisions").text
        assert "contexts" not in text
        assert 'reward"' not in text
        for bad in ({"limit": 0}, {"status": "odd"}, {"wrong": 1}, {"since": "NaN"}, {"until": "null"}):
            assert client.get("/v1/decisions", params=bad).status_code == 422
        assert client.get("/v1/decisions?limit=2&limit=3").status_code == 422


def test_a_number_in_a_query_is_one(tmp_path: Path) -> None:
    """Of every endpoint: what a float may be and a time or a count may not."""
    asked = 0
    with asking(str(tmp_path / "agent.sqlite")) as client:
        for operation in OPERATIONS:
            numbers = [each for each in operation.parameters if each.place == "query"]
            for each in numbers:
                if each.schema["type"] in ("number", "integer"):
                    for bad in ("nan", "NaN", "-nan", "inf", "-Infinity", "1e999", "-1", "0x10", "", "٣"):
                        answer = client.request(operation.method, operation.path, params={each.name: bad})
                        assert answer.status_code == 422, (operation.path, each.name, bad)
                        asked += 1
    assert asked >= 60


def test_exports_agree(place: str) -> None:
    with asking(place) as client:
        for _ in range(3):
            put(client, decide(client, actions=ACTIONS)["decision_id"], 0.5)
        decide(client)
        lines = [json.loads(line) for line in client.get("/v1/export?format=jsonl").text.splitlines()]
        table = pyarrow.parquet.read_table(io.BytesIO(client.get("/v1/export?format=parquet").content))
        assert table.to_pylist() == lines
        rows = list(csv.DictReader(io.StringIO(client.get("/v1/export?format=csv").text)))
        assert [json.loads(row["policy"]) for row in rows] == [line["policy"] for line in lines]
        assert [row["decision_id"] for row in rows] == [line["decision_id"] for line in lines]
        between = [0.5 * (one["time"] + two["time"]) for one, two in pairwise(lines)]
        window = client.get("/v1/export", params={"since": between[0], "until": between[2]}).text
        assert [json.loads(line) for line in window.splitlines()] == lines[1:3]


@pytest.mark.parametrize("wanted", ["bytes=4-7", "bytes=999999999-", "lines=1"])
def test_an_export_is_sent_whole_and_leaves_no_file(
    place: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever part is asked for: it holds contexts and rewards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with asking(place) as client:
        decide(client)
        answer = client.get("/v1/export?format=parquet", headers={"Range": wanted})
        assert answer.status_code == 200
        assert int(answer.headers["content-length"]) == len(answer.content)
        assert answer.headers["x-request-id"]
        assert pyarrow.parquet.read_table(io.BytesIO(answer.content)).num_rows == 1
    assert not list(folder.iterdir())


def test_a_csv_computes_nothing(place: str) -> None:
    """A text that would be taken for a formula has an apostrophe in front; numbers are as they are."""
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "\nx", "'x", "x=1", "-"]
    with asking(place) as client:
        for name in names:
            actions = [{"id": name, "features": [-0.1, 0.2, 0.3], "group": name}]
            put(client, decide(client, actions=actions)["decision_id"], -0.5)
        text = client.get("/v1/export?format=csv").text
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        lines = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
    assert [line["action_id"] for line in lines] == names
    for row, name in zip(rows, names, strict=True):
        written = name if name == "x=1" else f"'{name}"
        assert (row["action_id"], row["group"]) == (written, written)
        assert row["reward"] == "-0.5"
        assert json.loads(row["contexts"]) == [[-0.1, 0.2, 0.3, 1.0]]


def test_after_a_restart_the_model_is_the_same_to_the_bit(place: str) -> None:
    with asking(place) as client:
        for number in range(20):
            put(client, decide(client)["decision_id"], number / 20)
        waiting = decide(client)["decision_id"]
        before = client.get("/v1/model").json()
    with asking(place) as client:
        assert client.get("/v1/model").json() == before
        assert put(client, waiting, 1.0).status_code == 204
    folder = place if place.startswith("postgresql:") else place.replace("agent.db", "agent.sqlite")
    with ffx.Agent.open(folder) as agent:
        assert agent.observed == 21


@pytest.mark.long
def test_a_window_passes(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "TICK", 0.05)
    with asking(place, window=0.2, default_reward=0.0) as client:
        identity = decide(client)["decision_id"]
        until(lambda: client.get(f"/v1/decisions/{identity}").json()["status"] == "expired")
        assert put(client, identity, 1.0).status_code == 409
        assert client.get("/v1/model").json()["observed"] == 1


def test_what_is_said_of_privacy_and_sync(place: str) -> None:
    with asking(place, name="here") as client:
        privacy, sync = client.get("/v1/privacy").json(), client.get("/v1/sync").json()
        assert privacy["private"] is False
        assert privacy["statement"].startswith("NOT PRIVATE")
        assert sync.pop("name") == "here"
        assert not any(sync.values())


def test_a_private_service_says_what_it_promises(place: str) -> None:
    with asking(place, epsilon=2.0, releases=10, person_records=1, name="here") as client:
        identity = decide(client)["decision_id"]
        body = {"reward": 7.0, "person": "p\u00e9"}
        assert client.put(f"/v1/decisions/{identity}/reward", json={"reward": 7.0}).status_code == 422
        assert (
            client.put(f"/v1/decisions/{identity}/reward", json=body | {"person": "\x00"}).status_code == 422
        )
        assert client.put(f"/v1/decisions/{identity}/reward", json=body).status_code == 204
        privacy = client.get("/v1/privacy").json()
        assert (privacy["private"], privacy["releases"], privacy["spent"]) == (True, 10, 0)
        assert privacy["epsilon"] == pytest.approx(2.0)
        assert privacy["clipped"] == 1
        assert "\nfedfairx_budget_releases 10\n" in metrics_of(client)


def test_a_bucket_holds_what_takes_as_long_as_its_edge() -> None:
    metrics = Metrics()
    for seconds in (0.0001, EDGES[0], EDGES[3], EDGES[-1], 99.0):
        metrics.request("decide", 201, seconds)
    found = re.findall(r'_bucket{operation="decide",le="(\S+)"} (\d+)', "\n".join(metrics.lines()))
    assert found == [
        (str(edge), str(2 + (k >= 3) + (k == len(EDGES) - 1))) for k, edge in enumerate(EDGES)
    ] + [("+Inf", "5")]


def test_metrics_count(place: str) -> None:
    with asking(place) as client:
        put(client, decide(client)["decision_id"], 1.0)
        decide(client)
        text = metrics_of(client)
        for line in (
            'fedfairx_decisions_total{mode="live"} 2',
            "fedfairx_rewards_total 1",
            "fedfairx_pending 1",
            'fedfairx_requests_total{operation="decide",status="201"} 2',
            'fedfairx_request_seconds_count{operation="reward"} 1',
        ):
            assert f"\n{line}\n" in text
        from prometheus_client.parser import text_string_to_metric_families

        assert len(list(text_string_to_metric_families(text))) > 10


def test_a_setting_that_contradicts_the_database_is_refused(place: str) -> None:
    with asking(place):
        pass
    with pytest.raises(ffx.errors.InvalidInput, match="dimension must be"), asking(place, dimension=4):
        pass
    with pytest.raises(ffx.errors.InvalidInput, match="rule must be"), asking(place, rule="greedy"):
        pass
    with asking(place, dimension=None) as client:  # what is kept need not be said again
        decide(client)


NAMED = "price=0:10,rating=1:5"


def test_features_are_kept_and_others_refused(place: str) -> None:
    actions = [{"id": "a", "features": {"price": 5.0, "rating": 3.0}}]
    with asking(place, features=NAMED, intercept=True) as client:
        decide(client, actions=actions)
    for others, kept, got in (
        (
            {"features": "rating=1:5,price=0:10"},
            "price=0.0:10.0,rating=1.0:5.0",
            "got .*rating=1.0:5.0,price",
        ),
        ({"features": "price=0:20,rating=1:5"}, "price=0.0:10.0,rating=1.0:5.0", "got .*price=0.0:20.0"),
        ({"features": ""}, "price=0.0:10.0,rating=1.0:5.0", ""),
        ({"features": NAMED, "intercept": False}, "intercept=true", "got .*intercept=false"),
    ):
        said = f"must be .*{kept}.*{got}"
        with pytest.raises(ffx.errors.InvalidInput, match=said), asking(place, **others):
            pass
    for same in ({"features": NAMED, "intercept": True}, {"dimension": 2}, {"dimension": None}):
        with asking(place, **same) as client:
            decide(client, actions=actions)
            model = client.get("/v1/model").json()
            assert (model["features"], model["intercept"], model["dimension"]) == (
                ["price", "rating"],
                True,
                3,
            )
            rows = [json.loads(line) for line in client.get("/v1/export").text.splitlines()]
            assert rows[-1]["contexts"] == rows[0]["contexts"]


def test_an_agent_without_names_gets_none_later(place: str) -> None:
    with asking(place, dimension=2):
        pass
    none = "numbers without names, got features=price"
    with pytest.raises(ffx.errors.InvalidInput, match=none), asking(place, features=NAMED):
        pass


def test_an_agent_that_no_service_made_keeps_what_it_is_told_first(place: str) -> None:
    where = place if place.startswith("postgresql:") else place.replace("agent.db", "agent.sqlite")
    ffx.Agent.open(where, dimension=2, intercept=False).close()
    with asking(place, features=NAMED, intercept=False):
        pass
    others = "rating=1:5,price=0:10"
    with pytest.raises(ffx.errors.InvalidInput, match="schema must be"), asking(place, features=others):
        pass
