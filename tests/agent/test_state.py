"""A saved agent: exact to the bit, and anything else than a sound file is refused."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedfairx as ffx
from federation_helpers import bare
from fedfairx.core.optimism.solver import WINNER, Solver
from fedfairx.errors import AlreadyObserved, LedgerMismatch, StateError, UnknownDecision
from fedfairx.privacy import Bounds, KeyedNoise, SqliteLedger, StreamPrivatizer, calibrate
from instances import CUSTOM, merits

D = 3
KEY = bytes(range(32))
DECIDE_FROM = ("released", "released+local", "own+released")


def configuration(
    decide_from: str = "released", name: str = "agent", mechanism: str = "blt"
) -> dict[str, Any]:
    bounds = Bounds()
    return {
        "dimension": D,
        "mechanism": calibrate(
            mechanism, epsilon=4.0, delta=0.1, releases=40, sensitivity=bounds.sensitivity
        ),
        "bounds": bounds,
        "noise": KeyedNoise(KEY, agent=name, run="test"),
        "decide_from": decide_from,
    }


def rebuild(decide_from: str = "released", name: str = "agent", mechanism: str = "blt") -> Callable[..., Any]:
    return lambda stored: StreamPrivatizer.from_state(stored, **configuration(decide_from, name, mechanism))


def private(
    decide_from: str = "released", name: str = "agent", mechanism: str = "blt", **more: Any
) -> ffx.Agent:
    privatizer = StreamPrivatizer(**configuration(decide_from, name, mechanism), **more)
    return ffx.Agent(D, privatizer=privatizer, seed=2, name=name)


def live(agent: ffx.Agent, rounds: int, seed: int, keep_every: int = 5) -> None:
    """Decide, observe (not always, not at once), release and absorb."""
    rng = np.random.default_rng(seed)
    waiting = []
    for t in range(1, rounds + 1):
        waiting.append(agent.decide(rng.random((int(rng.integers(1, 7)), D))))
        if len(waiting) > 3:
            agent.observe(waiting.pop(int(rng.integers(4))), reward=float(rng.random()))
        if t % keep_every == 0:
            agent.absorb({agent.name: agent.release()})


def same_future(one: ffx.Agent, other: ffx.Agent, seed: int = 5) -> None:
    """The same decisions and releases, to the bit, whatever comes."""
    rng = np.random.default_rng(seed)
    assert bare(one) == bare(other)
    for each in (one, other):  # the same salts for the noise to come, which there are not otherwise
        if isinstance(each.privatizer, StreamPrivatizer):
            each.privatizer.ledger._random = bytes
    for t in range(30):
        x, reward = rng.random((int(rng.integers(1, 9)), D)), float(rng.random())
        ours, theirs = one.decide(x), other.decide(x)
        assert ours == theirs
        one.observe(ours, reward=reward)
        other.observe(theirs.id, reward=reward)
        if t % 7 == 0:
            released = one.release()
            assert released == other.release()
            one.absorb({one.name: released})
            other.absorb({one.name: released})
    for number in list(one._pending):
        one.observe(one._pending[number].id, reward=0.5)
        other.observe(other._pending[number].id, reward=0.5)
    assert bare(one) == bare(other)


def saved(agent: ffx.Agent, folder: Path) -> Path:
    path = folder / "agent.json"
    agent.save(path)
    return path


# --- exact to the bit --------------------------------------------------------------------------------------


EVERY_RULE: list[dict[str, Any]] = [
    {"rule": "optimism", "confidence": ffx.Confidence(regulariser=0.3, scale=0.7)},
    {"prior": ffx.Prior(mean=(0.1, -0.2, 0.3), sd=0.8), "minimum_share": 0.02},
    {"prior": ffx.Prior(noise_sd=0.2, learn=False)},
    {"rule": "thompson"},
    {"rule": "greedy"},
]


@pytest.mark.parametrize("options", EVERY_RULE)
@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1), st.integers(0, 70))
def test_a_loaded_agent_goes_on_to_the_bit(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, Any], seed: int, rounds: int
) -> None:
    agent = ffx.Agent(D, seed=seed, name="Zürich", **options)
    live(agent, rounds, seed)
    path = saved(agent, tmp_path_factory.mktemp("state"))
    same_future(ffx.Agent.load(path), agent)


@pytest.mark.parametrize("decide_from", DECIDE_FROM)
@pytest.mark.parametrize("mechanism", ["blt", "tree", "paper-tree"])
def test_a_private_agent_too(tmp_path: Path, decide_from: str, mechanism: str) -> None:
    agent = private(decide_from, mechanism=mechanism)
    other = private(decide_from, "other", mechanism)
    live(agent, 32, 0)
    live(other, 20, 1)
    agent.absorb({"other": other.release()})
    again = ffx.Agent.load(saved(agent, tmp_path), privatizer=rebuild(decide_from, mechanism=mechanism))
    assert again.privatizer.guarantee == agent.privatizer.guarantee
    same_future(again, agent)


@pytest.mark.parametrize("kind", ["exponential", "affine", "power", "logistic", "custom"])
def test_every_merit(tmp_path: Path, kind: str) -> None:
    merit, _ = merits(np.random.default_rng(4))[kind]
    agent = ffx.Agent(D, merit=merit, seed=1)
    live(agent, 12, 0)
    given = CUSTOM if kind == "custom" else None
    again = ffx.Agent.load(saved(agent, tmp_path), merit=given)
    assert again.merit == merit
    same_future(again, agent)


@pytest.mark.parametrize(
    "solver", ["pgd", Solver(rule=WINNER, floor=0.02), Solver(tolerance=1e-9, max_steps=7)]
)
def test_every_solver(tmp_path: Path, solver: Any) -> None:
    agent = ffx.Agent(D, rule="optimism", solver=solver, seed=1, shift=2.5)
    live(agent, 12, 0)
    again = ffx.Agent.load(saved(agent, tmp_path))
    assert (again.options.solver, again.options.shift, again.name) == (agent.options.solver, 2.5, agent.name)
    same_future(again, agent)


def test_decisions_that_wait_for_their_reward_still_wait(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    first, second, third = agent.decide_many(np.random.default_rng(0).random((3, 4, D)))
    agent.observe(first, reward=0.5)
    again = ffx.Agent.load(saved(agent, tmp_path))
    assert again.pending == 2
    with pytest.raises(AlreadyObserved):
        again.observe(first, reward=0.5)
    with pytest.raises(UnknownDecision):
        again.observe(f"{agent._log.prefix}-3", reward=0.5)
    again.observe(third, reward=0.1)  # the object of before the save, or its id
    again.observe(second.id, reward=0.2)
    agent.observe(third, reward=0.1)
    agent.observe(second, reward=0.2)
    same_future(again, agent)


def test_a_member_of_a_federation_can_be_replaced_by_its_copy(tmp_path: Path) -> None:
    pair = [ffx.Federation(agents=2, dimension=D, horizon=60, seed=3) for _ in range(2)]
    rng = np.random.default_rng(0)
    for t in range(60):
        x, rewards = rng.random((2, 4, D)), rng.random(2)
        if t == 30:
            pair[0].agents[1] = ffx.Agent.load(saved(pair[0].agents[1], tmp_path))
        for i in range(2):
            made = [federation.agents[i].decide(x[i]) for federation in pair]
            assert made[0] == made[1]
            for federation, decision in zip(pair, made, strict=True):
                federation.agents[i].observe(decision, reward=rewards[i])
        assert pair[0].end_round() == pair[1].end_round()


def test_saving_changes_nothing_and_a_saved_copy_saves_the_same(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    live(agent, 20, 0)
    path = saved(agent, tmp_path)
    first = path.read_bytes()
    ffx.Agent.load(path).save(path)
    assert path.read_bytes() == first
    agent.save(path)
    assert path.read_bytes() == first


def test_numbers_keep_their_last_bit(tmp_path: Path) -> None:
    agent = ffx.Agent(1, seed=0)
    agent._model.learner.statistics[:] = [np.nextafter(1.0, 2.0), -0.0]
    agent._model.learner.fresh[:] = [5e-324, 1.7976931348623157e308]
    again = ffx.Agent.load(saved(agent, tmp_path))
    assert again._model.learner.statistics.tobytes() == agent._model.learner.statistics.tobytes()
    assert again._model.learner.fresh.tobytes() == agent._model.learner.fresh.tobytes()


# --- the file ----------------------------------------------------------------------------------------------


def test_the_file_is_json_with_a_schema_for_its_owner_alone(tmp_path: Path) -> None:
    agent = private()
    live(agent, 10, 0)
    path = saved(agent, tmp_path)
    document = json.loads(path.read_text())
    assert (document["format"], document["schema"]) == ("fedfairx-agent", 8)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent.json"]
    assert KEY.hex() not in path.read_text()
    assert agent.privatizer.noise._subkey.hex() not in path.read_text()  # type: ignore[attr-defined]


def test_no_address_of_a_function_is_in_the_file(tmp_path: Path) -> None:
    agent = ffx.Agent(D, merit=CUSTOM, seed=0)
    assert str(CUSTOM.address()) not in saved(agent, tmp_path).read_text()


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    agent = ffx.Agent(D, seed=0)
    path = saved(agent, tmp_path)
    before = path.read_bytes()
    live(agent, 5, 0)

    def crash(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, {"write": "fdopen", "fsync": "fsync", "replace": "replace"}[moment], crash)
    with pytest.raises(OSError, match="no space left"):
        agent.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent.json"]


def test_the_file_is_durable_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real: (steps.append(_n), _r(*a))[1])
    ffx.Agent(D, seed=0).save(tmp_path / "agent.json")
    assert steps == ["fsync", "replace", "fsync"]  # the file, the name, the folder


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "agent.json", tmp_path / "link.json"
    ffx.Agent(D, seed=0).save(target)
    link.symlink_to(target)
    ffx.Agent(D, seed=1).save(link)
    assert link.is_symlink()
    assert ffx.Agent.load(target).decide(np.eye(D)) == ffx.Agent(D, seed=1).decide(np.eye(D))


# --- what is refused ---------------------------------------------------------------------------------------


def sound() -> dict[str, Any]:
    agent = ffx.Agent(D, seed=0)
    live(agent, 12, 0)
    with tempfile.TemporaryDirectory() as folder:
        return dict(json.loads(saved(agent, Path(folder)).read_text())["agent"])


def written(path: Path, body: Any, **envelope: Any) -> Path:
    """A file of this body whose digest is right."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(
        json.dumps({"format": "fedfairx-agent", "schema": 8, "digest": digest, "agent": body} | envelope)
    )
    return path


def test_the_helper_writes_what_can_be_read(tmp_path: Path) -> None:
    ffx.Agent.load(written(tmp_path / "a.json", sound()))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the file is not JSON: damaged, cut short"),
        (b"\x80\x04\x95pickled", "the file is not JSON"),
        (b"{" * 100_000, "the file is not JSON"),
        (b"[1, 2, 3]", "the file is JSON but not an agent's state: format must be 'fedfairx-agent'"),
        (b'{"format": "other"}', "the file is JSON but not an agent's state"),
        (b'{"format": "fedfairx-agent"}', "the file has no schema number"),
        (b'{"format": "fedfairx-agent", "schema": true}', "the file has no schema number"),
        (
            b'{"format": "fedfairx-agent", "schema": 9}',
            "the file has schema 9, and this fedfairx reads schema 8: update it",
        ),
        (
            b'{"format": "fedfairx-agent", "schema": 2}',
            "the file has schema 2, and this fedfairx reads schema 8: an earlier version wrote the file",
        ),
        (b'{"format": "fedfairx-agent", "schema": 8}', "the file is damaged or was changed by hand"),
        (b'{"format": "fedfairx-agent", "schema": 8, "agent": {"x": NaN}}', "the file is damaged"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "agent.json"
    path.write_bytes(content)
    with pytest.raises(StateError) as refused:
        ffx.Agent.load(path)
    assert str(refused.value).startswith(text)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    agent = ffx.Agent(1, seed=0)
    agent.observe(agent.decide([[0.5], [0.25]]), reward=0.75)
    path = saved(agent, tmp_path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(content) - 2, 150, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(7))
        path.write_bytes(bytes(damaged))
        if json_equal(content, damaged):
            continue  # white space, or a number written otherwise
        with pytest.raises(StateError):
            ffx.Agent.load(path)
    for length in range(0, len(content) - 2, 97):
        path.write_bytes(content[:length])
        with pytest.raises(StateError, match="the file is not JSON"):
            ffx.Agent.load(path)


def json_equal(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(bytes(other)))
    except ValueError:
        return False


def changed(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        part: Any = body
        for key in keys[:-1]:
            part = part[key]
        if value is ...:
            del part[keys[-1]]
        else:
            part[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("dimension",), ..., "dimension"),
        (("dimension",), 0, "dimension"),
        (("dimension",), "3", "dimension"),
        (("dimension",), 10**400, "agent"),
        (("dimension",), 10**9, "own"),
        (("shift",), 10**400, "agent"),
        (("learner", "count"), 10**400, "agent"),
        (("learner", "updates"), 10**30, "learner.updates"),
        (("learner", "inverse", 0), 10**400, "agent"),
        (("next_number",), 10**30, "next_number"),
        (("privatizer", "total", 0), "x", "privatizer"),
        (("name",), 5, "name"),
        (("learner",), [], "learner"),
        (("learner", "statistics"), [1.0], "learner.statistics"),
        (("learner", "statistics", 0), None, "learner.statistics"),
        (("learner", "inverse"), [0.0] * 8, "learner.inverse"),
        (("learner", "count"), -1.0, "learner.count"),
        (("random", "state"), "zz", "random"),
        (("random", "state"), hex(2**128), "random"),
        (("random", "generator"), "MT19937", "random.generator"),
        (("rule",), "best", "rule"),
        (("prior", "sd"), 0.0, "sd"),
        (("merit", "kind"), "linear", "merit.kind"),
        (("merit", "steepness"), -1.0, "steepness"),
        (("pending",), {}, "pending"),
        (("pending", 0), 3, "pending"),
        (("pending", 0, "number"), 10**6, "pending"),
        (("pending", 0, "shown"), [77], "pending"),
        (("pending", 0, "values"), [], "pending"),
        (("latest", "agent"), "00ff", "latest"),
        (("latest", "agent"), "xy", "latest"),
        (("private",), 1, "private"),
        (("decide_from",), "released", "privatizer"),
        (("privatizer", "total"), ..., "privatizer"),
        (("privatizer", "schema"), 3, "exact sums"),
        (("partners",), "sometimes", "partners"),
        (("minimum_share",), 1.5, "minimum_share"),
    ],
)
def test_a_file_that_says_something_impossible(
    tmp_path: Path, keys: tuple[Any, ...], value: Any, named: str
) -> None:
    body = sound()
    changed(*keys, value=value)(body)
    with pytest.raises(StateError, match=named):
        ffx.Agent.load(written(tmp_path / "a.json", body))


@pytest.mark.parametrize(("what", "value"), [("rule", -1), ("rule", 99), ("max_steps", 0)])
def test_a_file_whose_solver_can_not_be(tmp_path: Path, what: str, value: int) -> None:
    path = saved(ffx.Agent(D, rule="optimism", solver="pgd"), tmp_path)
    body = json.loads(path.read_bytes())["agent"]
    body["solver"][what] = value
    with pytest.raises(StateError, match="must be a solver's rule, and at least one step"):
        ffx.Agent.load(written(path, body))


def test_errors_show_no_number_of_the_state(tmp_path: Path) -> None:
    body = sound()
    secret = body["learner"]["statistics"][0]
    body["learner"]["statistics"][0] = f"{secret}"
    with pytest.raises(StateError) as refused:
        ffx.Agent.load(written(tmp_path / "a.json", body))
    assert f"{secret}"[:6] not in str(refused.value)


def test_a_missing_file_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ffx.Agent.load(tmp_path / "none.json")


def test_keys_and_functions_must_be_given(tmp_path: Path) -> None:
    path = saved(private(), tmp_path)
    with pytest.raises(
        StateError, match="this agent is private and its keys are not in the file: give privatizer="
    ):
        ffx.Agent.load(path)
    with pytest.raises(LedgerMismatch, match="noise differ"):
        ffx.Agent.load(path, privatizer=rebuild(name="someone else"))
    with pytest.raises(LedgerMismatch, match="decide_from differ"):
        ffx.Agent.load(path, privatizer=rebuild("released+local"))
    with pytest.raises(StateError, match="no privatizer could be made from the stored state: TypeError"):
        ffx.Agent.load(path, privatizer=lambda stored: StreamPrivatizer(stored))  # type: ignore[arg-type,call-arg]
    fresh = lambda _stored: StreamPrivatizer(**configuration("released+local"))  # noqa: E731
    with pytest.raises(
        StateError, match="privatizer must decide from 'released', as when the agent was saved"
    ):
        ffx.Agent.load(path, privatizer=fresh)
    path = saved(ffx.Agent(D, merit=CUSTOM), tmp_path)
    with pytest.raises(StateError, match="merit is a function of your own: give it as merit="):
        ffx.Agent.load(path)
    other = ffx.merit.Custom(math.exp, minimum_merit=0.1, lipschitz_constant=3.0)
    with pytest.raises(StateError, match="merit must be declared as when the agent was saved"):
        ffx.Agent.load(path, merit=other)
    path = saved(ffx.Agent(D, merit=ffx.merit.Exponential(4.0)), tmp_path)
    assert ffx.Agent.load(path, merit=ffx.merit.Exponential(4.0)).merit == ffx.merit.Exponential(4.0)
    with pytest.raises(StateError, match=r"merit is in the file, and it is Exponential\(steepness=4,"):
        ffx.Agent.load(path, merit=ffx.merit.Exponential(5.0))


def test_what_a_durable_ledger_holds_is_not_saved_twice(tmp_path: Path) -> None:
    agent = private(ledger=SqliteLedger(tmp_path / "ledger.db", create=True))
    with pytest.raises(StateError, match="durable ledger"):
        agent.save(tmp_path / "agent.json")
    assert not (tmp_path / "agent.json").exists()


def test_a_broken_agent_is_not_saved(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    agent._model.learner.statistics[0] = math.nan
    with pytest.raises(StateError, match="it holds NaN or infinity"):
        agent.save(tmp_path / "agent.json")
    assert not any(tmp_path.iterdir())
