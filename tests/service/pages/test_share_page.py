"""The share of one action over a period: counts and averages of the log, and who may see them."""

from __future__ import annotations

import csv
import datetime
import io
import re
from typing import Any

import numpy as np
import pytest

from fedfairx.service.pages import share_page
from fedfairx.service.pages.formatting import change as change_words
from fedfairx.service.roles import ROLES
from fedfairx.service.settings import place_of
from fedfairx.storage.api_keys import open_keys
from service_helpers import asking, decide, settings_for

FEATURES = {"rating": [1, 5], "distance": [0, 10], "vehicle": ["bike", "car"]}
COURIERS = {"ann": (4.5, "bike"), "ben": (2.0, "car"), "cid": (3.0, "bike"), "dan": (3.5, "car")}


def order(rng: np.random.Generator, *names: str) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "features": {
                "rating": COURIERS[name][0],
                "distance": round(float(rng.uniform(0, 10)), 1),
                "vehicle": COURIERS[name][1],
            },
        }
        for name in names
    ]


def page_of(client: Any, name: str, **more: str) -> str:
    answer = client.get("/share", params={"action": name, **more})
    assert answer.status_code == 200, answer.text
    text: str = answer.text.replace("\u00a0", " ").replace("\u202f", " ")
    return text


def cards(text: str) -> dict[str, str]:
    found = re.findall(r"<div><dt>([^<]*)</dt><dd>([^<]*)", text)
    return {title: value.strip() for title, value in found}


@pytest.mark.parametrize("rule", ["expected-merit", "greedy"])
def test_averages_are_those_of_the_decisions_in_which_it_could_be_chosen(rule: str, place: str) -> None:
    """The oracle averages what the explanations of single decisions say: each gives the share that it would
    have been without a feature. In a decision with nobody else that is the share itself."""
    rng, shares, others, shown, without, unsure, values = np.random.default_rng(4), [], [], 0, [], [], []
    with asking(place, features=FEATURES, rule=rule) as client:
        for t in range(40):
            near = ("ann",) if t % 10 == 5 else ("ann", "ben", "cid", "dan") if t % 4 else ("ben", "cid")
            rows = order(rng, *near)
            made = decide(client, actions=rows)
            if t == 39:
                client.delete(f"/v1/decisions/{made['decision_id']}")
                continue
            best = made["action_id"] == "ann"
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": float(best)})
            told = client.get(f"/v1/decisions/{made['decision_id']}/explanation").json()
            if "ann" in near:
                (one,) = (each for each in told["actions"] if each["action_id"] == "ann")
                shares.append(one["share"])
                shown += best
            if near == ("ann",):
                without.append([1.0] * len(FEATURES))
                unsure.append(1.0)
            if len(near) == 4:
                others.append((1 - one["share"]) / 3)
                without.append([one["share"] / (1 + each["change"]) for each in one["features"]])
                unsure.append(one["share"] / (1 + (one["uncertainty_change"] or 0.0)))
                values.append([(each["value"], each["others"]) for each in one["features"]])
        text = page_of(client, "ann")
        lines = client.get("/share?action=ann&format=csv").text
        assert cards(text) == {
            "Could be chosen": str(len(shares)),
            "Was chosen": str(shown),
            "Average share": f"{100 * np.mean(shares):.1f} %",
            "Average share of the others": f"{100 * np.mean(others):.1f} %",
        }
        table = {row[0]: row[1:] for row in csv.reader(io.StringIO(lines))}
        for number, name in enumerate(FEATURES):
            value, other, _, change = table[name]
            average = np.mean([each[number] for each in without])
            assert float(change) == pytest.approx(np.mean(shares) / average - 1, abs=1e-9)
            assert float(other) == pytest.approx(np.mean([each[number][1] for each in values]))
            if name == "vehicle":
                assert value == "bike"
            else:
                assert float(value) == pytest.approx(np.mean([each[number][0] for each in values]))
        assert table["offered"][0] == str(len(shares))
        bars = re.findall(r'<rect class="(\w+)" x="[\d.]+%" y="4" width="([\d.]+)%"', text)
        widths = [float(width) for _, width in bars]
        whole = [*FEATURES, "own record"]
        written = [float(change) for name, (*_, change) in table.items() if name in whole]
        faint = [name for name in whole if abs(float(table[name][-1])) < share_page.LEAST]
        record = client.app._app.state.service.default.agent.record_of("ann")
        assert (
            f"Your own record of {record.rewards:.0f} rewards counts {100 * record.weight:.0f} % by now"
            in text
        )
        assert ("No change that could be seen came from" in text) == bool(faint)
        written = [change for change in written if abs(change) >= share_page.LEAST]
        assert [kind for kind, _ in bars] == ["less" if change < 0 else "more" for change in written]
        assert widths == sorted(widths, reverse=True)
        assert "of the decisions in which you could be chosen: " in text
        sentence = re.findall(r'<p class="because">([^<]*)</p>', text)[0]
        assert "your distance of" not in sentence.lower()  # the mean of distances that vary explains nothing
        assert "distance" not in sentence or "your varying distance " in sentence.lower()
        assert ("what is not known yet" in text) == (rule == "expected-merit")
        if rule == "expected-merit":
            words = change_words(np.mean(shares) / np.mean(unsure) - 1).replace("\u00a0", " ")
            assert f'class="number" data-label="Changed the share by">{words}</td></tr>' in text
        nobody = page_of(client, "zoe")
        assert "There is no decision in this period in which zoe could be chosen." in nobody
        assert "There is no decision" in page_of(client, "ann", period="last-month")
        assert cards(page_of(client, "ann", period="month")) == cards(text)
        month = datetime.datetime.now(datetime.UTC).strftime("%B %Y")
        assert f'<p class="kind">Your share in {month}</p>' in page_of(client, "ann", period="month")
        assert '<p class="kind">Your share</p>' in text
        assert 'href="/share?action=ann&amp;period=month"' in text


def test_only_auditors_and_admins_see_it(place: str) -> None:
    with open_keys(place_of(settings_for(place))) as keys:
        roles = {role: {"authorization": f"Bearer {keys.add(role, role)}"} for role in ROLES}
    with asking(place, actions=["ann", "ben"]) as client:
        client.post("/v1/decisions", json={"actions": ["ann", "ben"]}, headers=roles["admin"])
        for role in ("auditor", "admin"):
            assert client.get("/share?action=ann", headers=roles[role]).status_code == 200
        for path in ("/share?action=ann", "/share?action=ann&format=csv", "/share"):
            answer = client.get(path, headers=roles["reader"])
            assert answer.status_code == 403
            assert "50" not in answer.text


def test_actions_without_features_and_slots(place: str) -> None:
    with asking(place, actions=["ann", "ben", "cid"], slots=2) as client:
        for t in range(6):
            made = decide(client, actions=["ann", "ben", "cid"])
            rewards = {slot["action_id"]: float(t % 2) for slot in made["shown"]}
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"rewards": rewards})
            if t == 0:
                first = page_of(client, "ben")  # only zeros have been learnt
                assert "No change that could be seen came from expected reward." in first
                assert '<th scope="row"' not in first
        text = page_of(client, "ben")
        assert cards(text)["Could be chosen"] == "6"
        assert "the expected part of the slots" in text
        assert "expected reward" in text


def test_an_action_that_was_always_alone_has_nothing_to_compare_with(place: str) -> None:
    with asking(place, actions=["ann", "ben"]) as client:
        decide(client, actions=["ann"])
        text = page_of(client, "ann")
        assert "100 % of the decisions in which you could be chosen: there was no other action." in text
        assert cards(text)["Average share of the others"] == "–"
        assert "Choose an action" in page_of(client, "")


def test_a_long_period_is_cut_and_says_so(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_page, "MOST", 3)
    with asking(place, actions=["ann", "ben"]) as client:
        for _ in range(3):
            decide(client, actions=["ann", "ben"])
        assert "Only the latest" not in page_of(client, "ann")
        for _ in range(2):
            decide(client, actions=["ann", "ben"])
        text = page_of(client, "ann")
        assert "Only the latest 3 decisions" in text
        assert cards(text)["Could be chosen"] == "3"
