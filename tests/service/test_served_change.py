"""Change over time in a service: its half-life, what its pages then say, and its test for change."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import InvalidInput
from fedfairx.fairness import change_test
from fedfairx.fairness.change_test import ChangeTest
from fedfairx.service import exposure_cache
from fedfairx.service.factory import open_service
from fedfairx.service.settings import load, place_of
from fedfairx.storage.queries import Records
from people import batches
from service_helpers import ACTIONS, asking, decide, metrics_of, settings_for

ARMS = ("ann", "ben")


def test_a_half_life_comes_from_any_source(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text('half_life = "720h"\n')
    assert load({}, environment={}, config=file).half_life == "30d"
    assert load({}, environment={"FEDFAIRX_HALF_LIFE": "1000"}, config=file).half_life == 1000.0
    assert load({"half_life": "2w"}, environment={}, config=file).half_life == "2w"
    file.write_text("half_life = 500\n")
    assert load({}, environment={}, config=file).half_life == 500.0
    assert load({}, environment={}).half_life is None
    text = r"half_life must be a number of rewards .*, got half_life='soon' \(--half-life\)"
    with pytest.raises(InvalidInput, match=text):
        load({"half_life": "soon"}, environment={})


def test_it_is_stored_and_shown(place: str) -> None:
    with asking(place, half_life="30d") as client:
        for reward in (0.0, 1.0):
            made = decide(client, actions=ACTIONS)
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": reward})
        assert "<dt>Half-life</dt><dd>30d</dd>" in client.get("/").text
    with asking(place) as client:
        found = client.get("/v1/model").json()
        assert (found["half_life"], found["observed"]) == ("30d", 2)
        few = "There are too few rewards to test whether merit changes: it takes 100."
        assert found["change"]["statement"] == few
        assert few in client.get("/").text
        assert "A reward counts half after 30d." in client.get("/report").text
    with pytest.raises(InvalidInput, match="half_life must be the stored one, '30d'"):
        open_service(settings_for(place, half_life="31d"))


def test_a_private_service_refuses_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="half_life must be left out where sums are private"):
        open_service(settings_for(str(tmp_path / "agent.db"), half_life=100, epsilon=1.0))


def test_with_a_half_life_nobody_is_judged(tmp_path: Path) -> None:
    """Equal rewards keep shares at a fifth or more: 3 of 100 decisions or fewer are rarer than 1 in 10⁵."""
    with asking(str(tmp_path / "agent.db"), half_life=100) as client:
        for _ in range(100):
            made = decide(client, actions=ACTIONS)
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 0.5})
        table = client.get("/v1/exposure").json()
        for row in table["actions"] + table["groups"]:
            assert row["verdict"] == "not judged"
            assert row["entitled"] == {"value": None, "low": 0.0, "high": 1.0}
            assert 0 < row["shown"]["low"] < row["shown"]["high"] <= 1
        assert "nothing is judged" in table["claims"][-1]
        assert table["summary"].startswith("Nobody is judged: merit is expected to change")
        assert table["summary"] in client.get("/report").text
        assert "not judged" in client.get("/exposure").text
        assert "<dd>100.0 rewards</dd>" in client.get("/").text


def taught(agent: ffx.Agent, chances: tuple[float, ...], count: int, seed: int) -> list[tuple[int, float]]:
    """Let an agent decide and observe, in one transaction; its actions and rewards."""
    rng, found = np.random.default_rng(seed), []
    with agent.transaction():
        for _ in range(count):
            made = agent.decide()
            place = agent.all_actions.index(str(made.name))
            found.append((place, float(rng.random() < chances[place])))
            agent.observe(made, reward=found[-1][1])
    return found


def looked(client: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/v1/model").json()["change"]
    return found


@pytest.mark.long
def test_a_change_is_noticed_and_still_known_after_a_restart(place: str) -> None:
    settings = settings_for(place, actions="ann,ben", reward_range="0:1")
    with ffx.Agent.open(place_of(settings), actions=ARMS, reward_range=(0, 1), seed=0) as agent:
        log = taught(agent, (0.4, 0.6), 650, 1)
    test = ChangeTest(0.5, separate=True)
    for first in range(0, 600, 100):  # whole batches alone
        test.add(
            np.eye(2)[[place for place, _ in log[first : first + 100]]],
            np.array([reward for _, reward in log[first : first + 100]]),
        )
    with asking(place, actions="ann,ben") as client:
        found = looked(client)
        assert found["evidence"] == test.change.evidence
        assert (found["alarm"], found["rewards"]) == (False, 600)
        assert f"<dt>Change</dt><dd>{found['statement']}</dd>" in client.get("/").text
        assert "Merit may have changed" not in client.get("/").text
    with ffx.Agent.open(place_of(settings)) as agent:
        taught(agent, (0.9, 0.1), 650, 2)
    for _ in range(2):  # a restart makes no difference
        with asking(place, actions="ann,ben") as client:
            found = looked(client)
            assert (found["alarm"], found["rewards"]) == (True, 1300)
            assert 500 <= found["before"] <= 800
            page = client.get("/").text
            assert "Merit may have changed" in page
            for text in (page, client.get("/report").text):
                assert "Rewards contradict a model that never changes, by " in text
            metrics = metrics_of(client)
            assert "\nfedfairx_change_alarm 1\n" in metrics
            shown = re.search(r"\nfedfairx_change_evidence (\S+)\n", metrics)
            assert shown is not None
            assert float(shown[1]) == found["evidence"] > 100


def test_it_is_read_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(str(tmp_path / "agent.db"), actions="ann,ben")
    with ffx.Agent.open(place_of(settings), actions=ARMS, seed=0) as agent:
        taught(agent, (0.4, 0.6), 250, 1)
    times, update = [], exposure_cache._Rewards.update
    monkeypatch.setattr(exposure_cache._Rewards, "update", lambda *given: times.append(1) or update(*given))
    with asking(str(tmp_path / "agent.db"), actions="ann,ben") as client:
        assert [looked(client)["rewards"] for _ in range(3)] == [200, 200, 200]
        client.get("/metrics")
        assert len(times) == 1


@pytest.mark.long
@pytest.mark.parametrize("own_record", [True, False])
def test_another_mix_of_people_is_no_change(tmp_path: Path, own_record: bool) -> None:
    """Each has a column in the test, from the batch on in which a name comes again. With features alone the
    alarm comes at 19 of 20 seeds."""
    settings = settings_for(str(tmp_path / "agent.db"), dimension=3, own_record=own_record)
    with ffx.Agent.open(place_of(settings), dimension=3, own_record=own_record, seed=0) as agent:
        rewards = exposure_cache._Rewards(agent, settings)
        for number, batch in enumerate(batches(0)):
            with agent.transaction():
                for context, who, reward in zip(
                    batch.contexts[:, :-1], batch.who, batch.rewards, strict=True
                ):
                    made = agent.decide(context[None], names=[f"person {who}"])
                    agent.observe(made, reward=float(reward))
            if number in (0, 9):
                rewards.update()  # columns come while it goes on
        rewards.update()
        assert rewards.found is not None
        change, columns = rewards.found[0], 24 if own_record else 4
        assert change.needed == max(100, 10 * columns)
        assert change.rewards == 4_000 - 4_000 % change.needed
        assert change.alarm != own_record


def test_more_names_than_columns_are_not_tested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (exposure_cache, change_test):
        monkeypatch.setattr(module, "MOST_FEATURES", 5)
    settings = settings_for(str(tmp_path / "agent.db"), dimension=2)
    with ffx.Agent.open(place_of(settings), dimension=2, seed=0) as agent:
        rewards = exposure_cache._Rewards(agent, settings)

        def told(names: list[str]) -> str:
            for t in range(100):
                made = agent.decide([[0.5, 0.1 * (t % 5)]], names=[names[t % len(names)]])
                agent.observe(made, reward=float(t % 2))
            rewards.update()
            assert rewards.found is not None
            return rewards.found[0].statement

        assert told(["ann", "ben"]).startswith("100 rewards fit a model that never changes")
        words = "It is no longer tested: there are more than 5 columns of features and names."
        found = told(["ann", "cid"])
        assert found.startswith("100 rewards fit")
        assert found.endswith(words)


def test_columns_are_in_the_order_in_which_they_came() -> None:
    columns = exposure_cache._Columns()
    assert columns.add(2, ["ann"]) == 3
    assert columns.add(3, ["ann", "ben"]) == 5  # a feature was appended
    part = Records(
        9, np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.zeros(2), np.array([1.0, 0.5]), ["ben", None]
    )
    assert columns.rows(part).tolist() == [[1.0, 2.0, 0.0, 3.0, 1.0], [4.0, 5.0, 0.0, 6.0, 0.0]]
    assert columns.places(["ben", "ann", "cid", None]).tolist() == [4, 2, -1, -1]
