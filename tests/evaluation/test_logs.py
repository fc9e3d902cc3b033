"""Logs from databases, exports and frames: the same decisions, and how likely each action was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfairx import Agent, evaluate
from fedfairx.core.merit import Exponential
from fedfairx.decision import DecisionNote
from fedfairx.errors import InvalidInput, StateError
from fedfairx.evaluation.logs import logged, read_log, taken_from
from fedfairx.service.export import LINES, record, write_parquet

KINDS = ("jsonl", "csv", "parquet")


@pytest.fixture(params=["features", "names", "slots"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A database of one agent: live decisions, a baseline in some, some without a reward."""
    rng, path = np.random.default_rng(0), tmp_path / "agent.sqlite"
    names = request.param == "names"
    shape: Any = {"actions": ["ann", "ben", "cid"]} if names else {"dimension": 2}
    options: Any = {"slots": (1.0, 0.5)} if request.param == "slots" else {}
    opened = Agent.open(path, name="north", reward_range=(0.0, 2.0), seed=1, **shape, **options)
    with opened as agent, agent.transaction():
        for step in range(60):
            note = DecisionNote(groups=["x", None, "y"])
            if step % 4 == 1:
                mode = ("shadow", "control", "live")[step % 3]
                share = 0.0 if mode == "shadow" else 0.3
                note = note._replace(mode=mode, baseline=[2, 0] if options else 2, control_share=share)
            decision = agent.decide(None if names else rng.random((3, 2)), note=note)
            if step % 10:
                agent.observe(decision, rewards=rng.random(len(decision.actions)).tolist())
            elif step % 20:
                agent.observe(decision, rewards=[None] * len(decision.actions))
    return path


def written(path: Path, kind: str) -> Path:
    out = path.with_name(f"export.{kind}")
    with Agent.open(path) as agent:
        rows, contexts = agent.journal.decisions(), agent.dimension > 0
        if kind == "parquet":
            write_parquet(rows, out, contexts=contexts)
        else:
            out.write_bytes(b"".join(LINES[kind](rows, contexts=contexts)))
    return out


def assert_same(one: Any, other: Any, *, contexts: bool) -> None:
    assert len(one) == len(other) == 60
    for first, second in zip(one, other, strict=True):
        assert np.asarray(first.policy) == pytest.approx(np.asarray(second.policy))
        for name in ("action", "drawn", "reward", "slots"):
            assert getattr(first, name) == getattr(second, name)
        assert list(first.groups) == list(second.groups)
        if contexts:
            assert np.asarray(first.contexts) == pytest.approx(np.asarray(second.contexts))


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_says_the_same_as_the_database(stored: Path, kind: str) -> None:
    log = list(read_log(stored).decisions)
    featureless = log[0].contexts is None
    found = list(read_log(written(stored, kind)).decisions)
    assert_same(log, found, contexts=not featureless)
    one, other = (evaluate(each, ["uniform"], reward_range=(0.0, 2.0)) for each in (log, found))
    assert one["uniform"].ips == other["uniform"].ips


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_frame_says_the_same_as_the_database(stored: Path, library: str) -> None:
    frames = pytest.importorskip(library)
    log = list(read_log(stored).decisions)
    found = read_log(frames.read_parquet(written(stored, "parquet")))
    assert_same(log, list(found.decisions), contexts=log[0].contexts is not None)


def test_a_database_has_the_options_of_its_agent(stored: Path) -> None:
    found = read_log(stored).options
    assert found is not None
    assert found.reward_range == (0.0, 2.0)
    assert found.merit == Exponential.for_range(0.0, 2.0)
    assert read_log(stored.parent).options == found  # its folder
    with pytest.raises(InvalidInput, match="agent"):
        read_log(stored, agent="south")


def test_reading_beside_the_owner_changes_nothing(stored: Path) -> None:
    with Agent.open(stored) as agent:  # holds the lock, as a service does
        before = agent.state()
        head = agent.journal.end()
        evaluate(stored, ["uniform"])
        assert agent.journal.end() == head
        assert agent.state() == before


def test_a_log_is_read_as_it_was_while_its_owner_writes(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedfairx.storage.database.PAGE", 10)
    with Agent.open(place, actions=["ann", "ben"], seed=0) as agent:
        made = [agent.decide() for _ in range(25)]
        found = iter(read_log(place).decisions)
        log = [next(found)]
        for decision in made:
            agent.observe(decision, reward=1.0)
            agent.decide()
        log += found
    assert [each.reward for each in log] == [None] * 25


def test_propensities_agree_with_what_the_agent_stored(stored: Path) -> None:
    log = list(read_log(stored).decisions)
    with Agent.open(stored) as agent:
        for each, made in zip(log, agent.journal.decisions(), strict=True):
            chances = np.asarray(each.policy)
            assert chances[made.action] == pytest.approx(made.propensity)
            for slot in made.slots:
                assert chances[slot.action] == pytest.approx(slot.exposure)
            assert chances.sum() == pytest.approx(1.5 if made.slots else 1.0)


def test_the_probability_of_each_action_with_a_baseline() -> None:
    policy = np.array([0.2, 0.8])
    assert taken_from(policy, "live", [None], 0.0).tolist() == [0.2, 0.8]
    assert taken_from(policy, "shadow", [0], 0.0).tolist() == [1.0, 0.0]
    assert taken_from(policy, "live", [0], 0.5) == pytest.approx([0.6, 0.4])
    assert taken_from(policy, "control", [0], 0.5) == pytest.approx([0.6, 0.4])
    exposure = np.array([0.9, 0.4, 0.2])
    assert taken_from(exposure, "control", [2, 0], 0.5, [1.0, 0.5]) == pytest.approx([0.7, 0.2, 0.6])


def test_damaged_and_incomplete_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text('{"policy": [1.0], "action": 0, "reward": 0.5}\n{"pol')
    with pytest.raises(StateError, match="line 2"):
        list(read_log(file).decisions)
    with pytest.raises(InvalidInput, match="policy, action"):
        logged({"action": 0, "reward": 1.0})
    with pytest.raises(InvalidInput, match="control_share"):
        logged({"policy": [1.0], "action": 0, "baseline": 0, "mode": "live"})


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"PAR1 cut short")
    with pytest.raises(StateError, match=r"log\.parquet is damaged"):
        list(read_log(tmp_path / "log.parquet").decisions)


def test_a_row_is_a_whole_number() -> None:
    with pytest.raises(InvalidInput, match="action a row of it"):
        logged({"policy": [0.5, 0.5], "action": 1.7, "reward": 0.25})


def test_a_row_needs_only_what_it_must_have() -> None:
    found = logged({"policy": [0.5, 0.5], "action": 1.0, "reward": 0.25, "contexts": float("nan")})
    assert (found.action, found.reward, found.contexts) == (1, 0.25, None)


@pytest.mark.parametrize(
    "change",
    [
        {"policy": "0.5"},
        {"policy": "half"},
        {"policy": 0.5},
        {"action": "ann"},
        {"reward": "good"},
        {"contexts": [1.0, 2.0]},
        {"shown": 3},
    ],
)
def test_rows_of_other_kinds_are_refused(change: dict[str, Any]) -> None:
    row = {"policy": [0.5, 0.5], "action": 1, "reward": 0.25} | change
    with pytest.raises(InvalidInput, match="policy must be"):
        evaluate([row], "uniform")


def test_frames_may_be_lazy_or_read_from_csv(stored: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    log = list(read_log(stored).decisions)
    for frame in (
        pandas.read_csv(written(stored, "csv")),
        pandas.read_csv(written(stored, "csv"), dtype_backend="numpy_nullable"),
        polars.scan_parquet(written(stored, "parquet")),
    ):
        assert_same(log, list(read_log(frame).decisions), contexts=log[0].contexts is not None)


def test_every_column_of_a_row_is_in_the_export(stored: Path) -> None:
    with Agent.open(stored) as agent:
        assert "control_share" in record(next(agent.journal.decisions()))
