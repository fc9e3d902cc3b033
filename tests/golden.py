"""Digests of what the package computes, to the bit: `python tests/golden.py` compares, `--write` stores them.

They hold for one kind of processor and one set of libraries, which the file names: elsewhere the last bits
may differ. A change that is to keep every bit keeps the file; one that is to change some writes it again and
says why.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import fedfairx as ffx
from fedfairx.agent.algorithms import algorithms
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.roster.roster import create_roster
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Budget, SimulatedNoise, mechanisms, private

FILE = Path(__file__).with_suffix(".json")
WORLD = ffx.Scenario(agents=3, arms=5, dimension=3, horizon=300)
RULES = ("expected-merit", "greedy", "thompson", "optimism")
LIVES: dict[str, dict[str, Any]] = {
    "ranking": {"dimension": 3, "rule": "thompson", "slots": [1.0, 0.63, 0.5], "half_life": 40},
    "optimism": {"dimension": 3, "rule": "optimism", "confidence": ffx.Confidence()},
    "partners": {"dimension": 3, "partners": "differ", "reward_range": (0, 1)},
    "actions": {"actions": ["ann", "ben", "cid", "dora"], "slots": 2},
    "private": {"dimension": 3, "budget": Budget(epsilon=2.0, releases=9, person_records=40)},
}
LIBRARIES = ("numpy", "numba", "llvmlite", "scipy")


def digest(*parts: object) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return found.hexdigest()


def machine() -> dict[str, str]:
    """What the bits may depend on beside the code."""
    cpu = ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = ("model name", "CPU implementer", "CPU part", "Features", "flags")
        chosen = [line for line in lines if line.split("\t")[0].strip(": ") in names]
        cpu = hashlib.sha256("\n".join(sorted(set(chosen))).encode()).hexdigest()[:16]
    found = {"machine": platform.machine(), "processor": cpu, "python": platform.python_version()}
    return found | {name: version(name) for name in LIBRARIES}


def simulations() -> dict[str, str]:
    """Two seeds of every algorithm."""
    found = {}
    for name in algorithms():
        private_one = name.startswith(("priv-", "b1", "b2"))
        how = {"epsilon": 2.0, "delta": 1e-6} if private_one else {}
        result = ffx.simulate(WORLD, algorithm=name, seeds=2, exposure=True, **how)
        found[name] = digest(result.fairness_regret, result.reward_regret, result.syncs, result.shown)
    return found


def decisions() -> dict[str, str]:
    """Fifty decisions of every rule and of actions without features, and what is learnt from them."""
    found = {}
    for rule in RULES:
        region = {"confidence": ffx.Confidence()} if rule == "optimism" else {}
        agent, rng, made = ffx.Agent(3, rule=rule, seed=5, **region), np.random.default_rng(1), []
        for _ in range(50):
            decision = agent.decide(rng.random((4, 3)) / 2)
            agent.observe(decision, reward=float(rng.random()))
            made += [decision.policy, np.array([decision.action])]
        found[rule] = digest(*made, agent.estimate, np.array([agent.noise_sd]))
    agent, rng = (
        ffx.Agent(actions=["ann", "ben", "cid"], reward_range=(1, 5), seed=5),
        np.random.default_rng(1),
    )
    made = []
    for _ in range(50):
        decision = agent.decide()
        agent.observe(decision, reward=float(rng.integers(1, 6)))
        made += [decision.policy, np.array([decision.action])]
    found["actions"] = digest(*made, agent.estimate)
    return found


def releases() -> dict[str, str]:
    """The second release of an agent with each mechanism, and what it then decides from."""
    found = {}
    for name in mechanisms():
        noise = SimulatedNoise(3)
        made = private(3, epsilon=2.0, delta=1e-6, releases=9, noise=noise, mechanism=name)
        agent = ffx.Agent(3, name="a", privatizer=made, seed=0, intercept=False)
        rng = np.random.default_rng(2)
        for _ in range(2):
            contexts = rng.random((20, 3)) / 2
            agent.learn(contexts, rng.random(20))
            release = agent.release()
        agent.absorb({"a": release})
        found[name] = digest(release.to_bytes(), agent.estimate)
    return found


def messages() -> dict[str, str]:
    """Terms, and an envelope under fixed keys."""
    terms = Terms(dimension=3, agents=2, horizon=500, epsilon=2.0, delta=1e-6)
    exact = Terms(dimension=3, agents=2, horizon=500, algorithm="fed-fairx-bayes", reward_range=(1, 5))
    keys = [SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32)) for n in range(1, 4)]
    with patch("secrets.token_hex", return_value="0" * 32):
        roster = create_roster(keys[0], terms, {"one": keys[1].public, "two": keys[2].public})
    agent = terms.agent("one", noise=SimulatedNoise(1), seed=0)
    contexts = np.random.default_rng(3).random((30, 3)) / 2
    agent.learn(contexts, contexts.sum(axis=1))
    envelope = SignedCodec(roster, "one", keys[1]).close(agent.release())
    return {"terms": terms.digest, "exact terms": exact.digest, "envelope": digest(envelope)}


def live(agent: ffx.Agent, budget: Budget | None) -> None:
    """Take steps of most kinds: decisions, late rewards, replaced and deleted ones, releases, other names."""
    rng = np.random.default_rng(4)
    intercept = bool(agent.constant)
    if budget is not None and intercept:
        budget = budget.with_intercept()
    noise = None if budget is None else budget.privatizer(3 + intercept, noise=SimulatedNoise(3))
    peer = ffx.Agent(3, name="south", privatizer=noise, seed=1, intercept=intercept)
    for turn in range(3):
        made = [agent.decide(None if agent.actions else rng.random((4, 3)) / 2) for _ in range(16)]
        for place, each in enumerate(made[3:]):
            agent.observe(each.id, rewards=rng.random(len(each.actions)).tolist(), person=f"{turn} {place}")
        agent.observe(made[5].id, rewards=dict.fromkeys(made[5].actions, 0.25), replace=True)
        agent.forget(made[0].id)
        if agent.actions:
            agent.learn(["ann", "cid"], [0.5, 0.75])
            agent.add_actions(f"eve {turn}")
            agent.retire_actions(agent.actions[1])
        else:
            persons = None if budget is None else [f"{turn} p", f"{turn} q"]
            agent.learn(rng.random((2, 3)) / 2, [0.5, 0.75], persons=persons)
            peer.learn(rng.random((2, 3)) / 2, rng.random(2), persons=persons)
            agent.release()
            agent.absorb({"south": peer.release()})
        agent.delete_person(f"{turn} 8")


def known(agent: ffx.Agent) -> str:
    """What an agent knows, and what it then decides."""
    rng = np.random.default_rng(6)
    parts = [agent.gram, agent.moment, agent.estimate, np.array([agent.noise_sd])]
    with agent.transaction():
        for _ in range(5):
            made = agent.decide(None if agent.actions else rng.random((4, 3)) / 2)
            parts += [made.exposure, made.theta, np.array(made.actions)]
    return digest(*parts)


def replays() -> dict[str, str]:
    """What durable agents know after all their steps are read again from the first."""
    found = {}
    for name, kind in LIVES.items():
        with TemporaryDirectory() as folder:
            place = Path(folder) / "agent.db"
            with ffx.Agent.open(place, name="a", seed=5, **kind) as agent:
                live(agent, kind.get("budget"))
            with closing(sqlite3.connect(place)) as database, database:
                database.execute("DELETE FROM snapshots WHERE seq > (SELECT MIN(seq) FROM snapshots)")
            with ffx.Agent.open(place) as agent:
                found[name] = known(agent)
    return found


def compute() -> dict[str, dict[str, str]]:
    return {
        "simulations": simulations(),
        "decisions": decisions(),
        "releases": releases(),
        "messages": messages(),
        "replays": replays(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store what is computed now")
    found = {"machine": machine()} | compute()
    if parser.parse_args().write:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    differing = [
        f"{part}: {name}"
        for part in found
        for name in found[part].keys() | stored[part].keys()
        if found[part].get(name) != stored[part].get(name)
    ]
    print("\n".join(sorted(differing)) or "every bit is the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
