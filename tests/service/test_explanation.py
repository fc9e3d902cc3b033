"""Why an action has its share, over HTTP: sums that give the stored policy, by the names of features."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import knowledge
from fedfairx.agent.own_record import OwnRecord
from fedfairx.demo.couriers import FEATURES as DEMO
from fedfairx.demo.couriers import SHARED, Couriers
from fedfairx.service.pages.decision_pages import SEEN
from fedfairx.service.roles import ROLES
from fedfairx.service.settings import place_of
from fedfairx.service.share_sentence import LEAST, OWN_RECORD, changed, percent, written
from fedfairx.storage.api_keys import open_keys
from service_helpers import ACTIONS, asking, decide, settings_for

NEW = OwnRecord(0.0, 0.0, 0.0, 0.0)
FEATURES = {"price": [0, 10], "distance": [0, 5]}
NAMED = [
    {"id": "ann", "features": {"price": 3, "distance": 1}, "group": "small"},
    {"id": "ben", "features": {"price": 8, "distance": 4}, "group": "large"},
    {"id": "cat", "features": {"price": 5, "distance": 2}},
]
ROWS = [[0.9, 0.1, 0.5], [0.2, 0.6, 0.5], [0.4, 0.3, 0.5]]


def reward(client: Any, made: dict[str, Any], value: float) -> None:
    client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": value})


def explain(client: Any, made: dict[str, Any], **more: Any) -> Any:
    return client.get(f"/v1/decisions/{made['decision_id']}/explanation", **more)


def check(told: dict[str, Any], policy: list[float], features: list[str]) -> None:
    """Parts add up to log merits, and these give the policy."""
    logs, arms = [], len(policy)
    for one in told["actions"]:
        assert [each["feature"] for each in one["features"]] == features
        total = sum(each["contribution"] for each in one["features"]) + one["uncertainty"]
        assert total == pytest.approx(one["log_merit"], abs=1e-9)
        unsure = [each["uncertainty"] for each in one["features"]]
        if None not in unsure:
            assert sum(unsure) == pytest.approx(one["uncertainty"], abs=1e-9)
        logs.append(total * (arms - 1) / arms)  # less the mean of all, and not of the others
    merits = np.exp(logs)
    assert (merits / merits.sum()).tolist() == pytest.approx(policy, abs=1e-9)
    assert [one["share"] for one in told["actions"]] == pytest.approx(policy)
    assert told["average"] == pytest.approx(1 / arms)


def test_contributions_are_by_feature_and_of_that_time(place: str) -> None:
    with asking(place, features=FEATURES, intercept=True) as client:
        for t in range(12):
            reward(client, decide(client, actions=NAMED), float(t % 3 > 0))
        made = decide(client, actions=NAMED)
        now = explain(client, made).json()
        check(now, made["policy"], ["price", "distance", "own record"])
        assert now["unit"] == "log merit"
        prices = [(one["features"][0]["value"], one["features"][0]["others"]) for one in now["actions"]]
        assert prices == [(3.0, 6.5), (8.0, 4.0), (5.0, 5.5)]
        later = [decide(client, actions=NAMED) for _ in range(3)]
        for one in [made, *later]:  # the model moves on, and what is said of the decision stays
            reward(client, one, 1.0)
        after = explain(client, made).json()
        check(after, made["policy"], ["price", "distance", "own record"])
        for before, again in zip(now["actions"], after["actions"], strict=True):
            assert again["sentence"] == before["sentence"]
            for one, other in zip(before["features"], again["features"], strict=True):
                assert one["uncertainty"] is not None
                assert other.keys() == one.keys()
                for key in ("contribution", "change", "uncertainty", "uncertainty_change"):
                    assert other[key] == pytest.approx(one[key], abs=1e-9)
        page = client.get(f"/decisions/{made['decision_id']}").text
        assert "Why this share" in page
        taken = after["actions"][made["action"]]["features"]  # what chance has drawn may be all but known
        assert ("Not known yet" in page) == any(abs(each["uncertainty_change"]) >= SEEN for each in taken)
        lines = client.get(f"/decisions/{made['decision_id']}?format=csv").text
        table = list(csv.reader(io.StringIO(lines)))
        kinds = ["", " contribution", " change", " uncertainty", " uncertainty_change"]
        columns = [f"{name}{kind}" for name in ("price", "distance", "own record") for kind in kinds]
        assert table[0] == ["action", "taken", "share", "log_merit", "uncertainty", "sentence", *columns]
        assert [row[0] for row in table[1:]] == ["ann", "ben", "cat"]


@pytest.mark.parametrize("own_record", [True, False])
def test_too_many_steps_are_not_repeated(
    own_record: bool, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedfairx.agent.replay.MOST_STEPS", 0)
    with asking(place, features=FEATURES, own_record=own_record) as client:
        rewarded: set[int] = set()
        while len(rewarded) < 2:  # rewards of one action tell no difference
            made = decide(client, actions=NAMED)
            reward(client, made, (1.0, 0.0, 0.5)[made["action"]])
            rewarded.add(made["action"])
        for _ in range(8):
            made = decide(client, actions=NAMED)
            reward(client, made, 0.0)
        told = explain(client, made).json()
        check(told, made["policy"], ["price", "distance", "own record"][: 2 + own_record])
        assert {each["uncertainty"] for one in told["actions"] for each in one["features"]} == {None}
        assert {one["record"] for one in told["actions"]} == {None}
        if own_record:
            assert "was not known yet counts with the own record" in told["statement"]
            assert {one["uncertainty"] for one in told["actions"]} == {0.0}
        else:
            assert "not split by feature" in told["statement"]
            assert "what is not known yet" in client.get(f"/decisions/{made['decision_id']}").text


def test_a_model_that_peers_have_changed_is_repeated(place: str) -> None:
    with asking(place, dimension=3) as client:
        agent, peer = client.app._app.state.service.default.agent, ffx.Agent(3, name="peer")
        peer.learn(ROWS, [1.0, 0.0, 1.0])
        agent.absorb({"peer": peer.release()})
        made = decide(client, contexts=ROWS)
        now = explain(client, made).json()
        check(now, made["policy"], ["x1", "x2"])
        assert now["actions"][0]["features"][0]["uncertainty"] is not None
        reward(client, made, 1.0)
        later = explain(client, made).json()
        check(later, made["policy"], ["x1", "x2"])
        for one, other in zip(now["actions"], later["actions"], strict=True):
            for key in ("uncertainty", "contribution"):
                expected = one["features"][0][key]
                assert other["features"][0][key] == pytest.approx(expected, abs=1e-9)


def test_a_log_that_was_learnt_counts_too(place: str) -> None:
    with asking(place, dimension=3) as client:
        agent = client.app._app.state.service.default.agent
        agent.learn([*ROWS, *ROWS], [1.0, 0.0, 1.0, 0.5, 0.5, 0.0], weights=[1.0, 0.5, 1.0, 0.5, 1.0, 1.0])
        made = decide(client, contexts=ROWS)
        now = explain(client, made).json()
        reward(client, made, 1.0)
        later = explain(client, made).json()
        for one, other in zip(now["actions"], later["actions"], strict=True):
            assert other["sentence"] == one["sentence"]
            assert other["features"][0]["uncertainty"] is not None


def test_what_all_actions_have_alike_is_left_out_and_products_count_with_what_differs(place: str) -> None:
    """By default each feature is multiplied with those of the situation, one column for each level."""
    features = {
        "rating": [1, 5],
        "vehicle": ["bike", "car", "van"],
        "weather": ["dry", "rain"],
        "night": "bool",
    }
    rows = [
        {"id": "ann", "features": {"rating": 4.8, "vehicle": "van"}},
        {"id": "ben", "features": {"rating": 2.0, "vehicle": "bike"}},
        {"id": "cid", "features": {"rating": 3.0, "vehicle": "bike"}},
    ]
    situation = {"weather": "rain", "night": False}
    with asking(place, features=features, shared=["weather", "night"]) as client:
        for t in range(40):
            made = decide(client, actions=rows, context=situation)
            reward(client, made, float((t + made["action"]) % 3 == 0))
        made = decide(client, actions=rows, context=situation)
        told = explain(client, made).json()
        check(told, made["policy"], ["rating", "vehicle", "own record"])
        assert told["alike"] == ["weather", "night"]
        ann, ben, _ = (one["features"][:2] for one in told["actions"])
        assert [each["value"] for each in (*ann, *ben)] == [4.8, "van", 2.0, "bike"]
        assert [each["others"] for each in (*ann, *ben)] == pytest.approx([2.5, 0.0, 3.9, 0.5])
        text = client.get(f"/decisions/{made['decision_id']}?of=0").text
        table = text[text.index('<table class="why') : text.index('<table class="options')]
        assert table.count('<th scope="row"') == 3
        assert "e−" not in table
        assert told["actions"][0]["sentence"] in text


@pytest.fixture
def much_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reward for each number of the model is enough for a sentence to say what features do."""
    monkeypatch.setattr(knowledge, "ENOUGH", 1)


@pytest.mark.usefixtures("much_known")
@pytest.mark.parametrize("rule", ["greedy", "expected-merit"])
def test_numbers_in_the_sentence_are_those_of_shares_computed_again(rule: str, place: str) -> None:
    """The oracle sets one feature, with its products, to the mean of the others and computes shares again.

    For "greedy" the agent itself computes them; for "expected-merit" the uncertainty stays as it is.
    """
    city = Couriers(seed=3)
    with asking(place, features=DEMO, shared=SHARED, rule=rule) as client:
        for _ in range(60):
            order = city.order()
            made = decide(client, **order.request)
            reward(client, made, order.reward(made["action"]))
        order = city.order()
        made = decide(client, **order.request)
        told = explain(client, made).json()
        agent = client.app._app.state.service.default.agent
        schema, theta = agent.schema, agent.estimate
        contexts, steepness = schema.encode(order.rows, order.context).contexts, agent.merit.steepness
        policy, labels = np.array(made["policy"]), [each["id"] for each in order.request["actions"]]
        uncertainty = np.log(policy) - steepness * contexts @ theta
        for place_of_it, one in enumerate(told["actions"]):
            for part in one["features"]:
                if part["feature"] == OWN_RECORD:
                    records = [agent.record_of(name) or NEW for name in labels]
                    effects = np.array([record.effect for record in records])
                    moved_by = effects[place_of_it] - np.delete(effects, place_of_it).mean()
                    assert part["contribution"] == pytest.approx(steepness * moved_by, abs=1e-9)
                    record = records[place_of_it]
                    assert part["value"] == one["record"]["rewards"] == record.rewards
                    assert one["record"]["weight"] == pytest.approx(record.weight)
                    continue
                own = [part["feature"] in features for features in schema.column_features]
                moved = contexts.copy()
                moved[place_of_it, own] = np.delete(contexts, place_of_it, axis=0)[:, own].mean(axis=0)
                merits = np.exp(steepness * moved @ theta + uncertainty)
                again = agent.policy(moved, names=labels) if rule == "greedy" else merits / merits.sum()
                change = policy[place_of_it] / again[place_of_it] - 1
                assert part["change"] == pytest.approx(change, abs=1e-7)
            largest = max(one["features"], key=lambda part: abs(np.log1p(part["change"])))
            value = largest["value"]
            if largest["feature"] == OWN_RECORD:
                assert f"own record of {written(value)} reward" in one["sentence"]
                continue
            said = rf"\({written(value)}\)" if isinstance(value, str) else f"of {written(value)}"
            name = f"{largest['feature']} {said}"
            ratio = one["share"] * len(policy) - 1
            assert one["sentence"].casefold().startswith(percent(one["share"]))
            assert ("about average" in one["sentence"]) == (abs(ratio) <= 0.1)
            words = rf"\. Its {name}( \([^)]*\))? {changed(largest['change'])}"
            assert re.search(words, one["sentence"]) or abs(np.log1p(largest["change"])) < np.log1p(LEAST)


def test_an_auditor_sees_the_reward(place: str) -> None:
    with open_keys(place_of(settings_for(place))) as keys:
        roles = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    with asking(place) as client:
        body = {"actions": ACTIONS}
        made = client.post("/v1/decisions", json=body, headers=roles["admin"]).json()
        path = f"decisions/{made['decision_id']}"
        assert client.get(f"/v1/{path}", headers=roles["auditor"]).json()["reward"] is None
        assert "none has come" in client.get(f"/{path}", headers=roles["auditor"]).text
        client.put(f"/v1/{path}/reward", json={"reward": 0.625}, headers=roles["admin"])
        assert client.get(f"/v1/{path}", headers=roles["auditor"]).json()["reward"] == 0.625
        assert "0.625" in client.get(f"/{path}", headers=roles["auditor"]).text
        assert "reward" not in client.get(f"/v1/{path}", headers=roles["reader"]).json()
        assert "0.625" not in client.get(f"/{path}", headers=roles["reader"]).text


def test_actions_without_features_have_their_expected_reward(place: str) -> None:
    with asking(place, actions=["ann", "ben", "cid"]) as client:
        first = explain(client, decide(client, actions=["ann", "ben", "cid"])).json()
        assert (
            first["actions"][0]["sentence"]
            == "33\u00a0% of this decision: about average. Nothing learnt so far tells the actions apart."
        )
        for t in range(8):
            reward(client, decide(client, actions=["ann", "ben", "cid"]), float(t % 2))
        client.put("/v1/actions/dan")
        made = decide(client, actions=["cid", "ann"])
        told = explain(client, made).json()
        check(told, made["policy"], ["expected reward"])
        assert [one["action_id"] for one in told["actions"]] == ["cid", "ann"]
        cid, ann = (one["features"][0] for one in told["actions"])
        assert (cid["value"], cid["others"]) == pytest.approx((ann["others"], ann["value"]))
        client.put("/v1/actions/eve")  # the model grows: what was decided is still explained
        reward(client, made, 1.0)
        again = explain(client, made).json()
        check(again, made["policy"], ["expected reward"])
        assert again["actions"][0]["features"][0]["uncertainty"] == pytest.approx(
            cid["uncertainty"], abs=1e-9
        )


def test_actions_that_do_not_differ_and_a_single_one(place: str) -> None:
    same = [{"id": name, "features": {"price": 3, "distance": 1}} for name in ("ann", "ben")]
    with asking(place, features=FEATURES) as client:
        for rows, words in (
            (same, "50\u00a0% of this decision: about average. It does not differ"),
            (same[:1], "no other"),
        ):
            made = decide(client, actions=rows)
            (told, *_) = explain(client, made).json()["actions"]
            assert words in told["sentence"]
            assert told["features"] == []
            assert client.get(f"/decisions/{made['decision_id']}").status_code == 200


def test_ranked_actions_without_features_are_split_again_later(place: str) -> None:
    names = ["ann", "ben", "cid", "dan"]
    with asking(place, actions=names, slots=[1.0, 0.5]) as client:
        told = []
        for t in range(6):
            made = decide(client, actions=names)
            told.append((made, explain(client, made).json()))
            rewards = {slot["action_id"]: float(t % 2) for slot in made["shown"]}
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"rewards": rewards})
        for made, before in told:
            after = explain(client, made).json()
            for one, other in zip(before["actions"], after["actions"], strict=True):
                (part,), (again,) = one["features"], other["features"]
                assert again["uncertainty"] == pytest.approx(part["uncertainty"], abs=1e-9)
                assert other["sentence"] == one["sentence"]


def test_while_little_is_known_no_effect_is_stated_as_a_fact(place: str) -> None:
    """Until there are four rewards for each number of the model, on every page and in the API."""
    with asking(place, features=FEATURES) as client:  # a model of three numbers
        agent = client.app._app.state.service.default.agent
        early = decide(client, actions=NAMED)
        for t in range(12):
            told = explain(client, made := decide(client, actions=NAMED)).json()
            known = {"rewards": t, "numbers": 3, "enough": 12, "little": True}
            assert told["knowledge"] == client.get("/v1/model").json()["knowledge"] == known
            assert repr(agent).endswith(f"{t} observed, 2 pending, luck as much as merit before 12)")
            for one in told["actions"]:  # rewards of one action tell no difference
                assert not re.search(r"Its (price|distance)", one["sentence"])
                guess = f"After {t} reward{'s' * (t != 1)} this follows luck as much as merit"
                assert guess in one["sentence"] or (
                    t < 11 and "Nothing learnt so far tells the actions apart" in one["sentence"]
                )
            for path in ("/", "/model", f"/decisions/{made['decision_id']}"):
                text = client.get(path).text
                assert "for a model of 3 numbers: before about 12 they follow luck as much as merit" in text
            text = client.get("/share?action=ann").text
            assert f"the last on {t}. In {t + 2} of them" in text
            assert "What the model guessed" in text or t < 2
            reward(client, made, (1.0, 0.0, 0.5)[made["action"]])
        made = decide(client, actions=NAMED)
        told = explain(client, made).json()
        assert told["knowledge"] == {"rewards": 12, "numbers": 3, "enough": 12, "little": False}
        assert any(re.search(r"Its (price|distance)", one["sentence"]) for one in told["actions"])
        for path in ("/", "/model", f"/decisions/{made['decision_id']}"):
            text = client.get(path).text
            assert "Shares rest on 12 rewards." in text
            assert "luck" not in text
        assert repr(agent).endswith("12 observed, 2 pending)")
        assert explain(client, early).json()["knowledge"]["rewards"] == 0  # what was known then


def test_rewards_of_a_program_count_and_messages_are_none(place: str) -> None:
    """What a decision rested on is read from the log: a model_version counts messages too, or nothing."""
    schema, rows = ffx.features.Schema({"price": (0, 10)}), {"ann": {"price": 2}, "ben": {"price": 7}}
    peer, one = ffx.Agent(schema=schema, name="peer", seed=1), [{"price": 5}]
    with ffx.Agent.open(place_of(settings_for(place)), schema=schema, seed=0) as agent:
        agent.learn(2 * one, [0.0, 1.0])
        first = agent.decide(rows)
        for turn in range(9):
            agent.observe(agent.decide(rows), reward=turn % 2)
            peer.learn(one, [0.5])
            peer.release()
        agent.absorb({"peer": peer.release()})
        later = agent.decide(rows)
        for turn in range(20):
            agent.observe(agent.decide(rows), reward=turn % 2)
        others = round(agent.knowledge.others)
    with asking(place, features={"price": [0, 10]}) as client:
        for made, own in ((first, 2), (later, 11)):
            assert explain(client, {"decision_id": made.id}).json()["knowledge"]["rewards"] == own + others
        text = client.get("/share?action=ann").text
        assert f"rested on {2 + others} rewards, the last on {30 + others}." in text


def test_who_is_no_auditor_or_admin_sees_no_explanation(place: str) -> None:
    """Contributions tell contexts, and earlier rewards."""
    with open_keys(place_of(settings_for(place))) as keys:
        roles = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    with asking(place) as client:
        body = {"actions": ACTIONS}
        made = client.post("/v1/decisions", json=body, headers=roles["admin"]).json()
        for role in ("auditor", "admin"):
            assert explain(client, made, headers=roles[role]).status_code == 200
        for role in ("reader", "writer", "federation"):
            assert explain(client, made, headers=roles[role]).status_code == 403
        text = client.get(f"/decisions/{made['decision_id']}", headers=roles["reader"]).text
        assert "which are for auditors and admins" in text
        assert "ann" in text
        assert "Changed the share" not in text
        assert (
            "share"
            not in client.get(f"/decisions/{made['decision_id']}?format=csv", headers=roles["reader"]).text
        )
        assert explain(client, {"decision_id": "none"}, headers=roles["admin"]).status_code == 404
        assert client.get("/decisions/none", headers=roles["reader"]).status_code == 404


@pytest.mark.parametrize("rule", ["expected-merit", "greedy", "thompson", "optimism"])
def test_every_rule_and_contexts_without_names_have_a_sentence(rule: str, place: str) -> None:
    with asking(place, rule=rule, intercept=True) as client:
        for t in range(30):
            reward(client, decide(client, contexts=ROWS), float(t % 3 > 0))
        made = decide(client, contexts=ROWS)
        told = explain(client, made).json()
        assert told["alike"] == ["x3"]
        for one, share in zip(told["actions"], made["policy"], strict=True):
            assert [each["feature"] for each in one["features"]] == ["x1", "x2"]
            assert one["sentence"].casefold().startswith(percent(share))
            assert (one["features"][0]["uncertainty"] is not None) == (rule == "expected-merit")
        assert (rule in told["statement"]) == (rule in ("thompson", "optimism"))
        assert "Why this share: action" in client.get(f"/decisions/{made['decision_id']}").text


@pytest.mark.usefixtures("much_known")
def test_another_merit_says_what_is_expected(place: str) -> None:
    with asking(place, merit="power:exponent=2") as client:
        for t in range(30):
            reward(client, decide(client, contexts=ROWS), float(t % 3 > 0))
        made = decide(client, contexts=ROWS)
        told = explain(client, made).json()
        assert told["unit"] == "reward"
        for one in told["actions"]:
            assert {each["change"] for each in one["features"]} == {None}
            assert "the expected reward by 0." in one["sentence"]
        assert "Added to the expected reward" in client.get(f"/decisions/{made['decision_id']}").text


def test_several_slots_are_explained_too(place: str) -> None:
    with asking(place) as client:
        made = decide(client, actions=ACTIONS, slots=[1.0, 0.6])
        told = explain(client, made).json()
        assert [one["share"] for one in told["actions"]] == pytest.approx(made["exposure"])
        assert told["average"] == pytest.approx(1.6 / len(ACTIONS))
        for one in told["actions"]:
            assert (
                one["sentence"]
                .casefold()
                .startswith(f"{percent(one['share'] / 1.6)} of this decision's 2 slots: ")
            )
        assert "Why this weight" in client.get(f"/decisions/{made['decision_id']}").text
        first = {slot["action_id"]: float(slot["slot"] == 1) for slot in made["shown"]}
        client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"rewards": first})
        seen = client.get(f"/v1/decisions/{made['decision_id']}").json()
        assert ([slot["reward"] for slot in seen["shown"]], seen["reward"]) == ([1.0, 0.0], 1.0)
        again = explain(client, made).json()
        assert [one["sentence"] for one in again["actions"]] == [one["sentence"] for one in told["actions"]]
