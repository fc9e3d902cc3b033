"""Bad input: the right error, that names parameter, rule and value, shows no data, and changes nothing."""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.client import AsyncClient, Client
from fedfairx.core.statistics import pack
from fedfairx.errors import FedFairXError, InvalidInput, MessageRefused
from fedfairx.features import Schema
from fedfairx.privacy import NonPrivate, Release

D = 3
SECRET = 0.7310585786300049  # stands in every context and reward below, and in no error
NAN, INF = math.nan, math.inf


def filled(*shape: int) -> np.ndarray:
    return np.full(shape, SECRET)


def with_bad(value: float) -> np.ndarray:
    rows = filled(4, D)
    rows[2, 1] = value
    return rows


def agent() -> ffx.Agent:
    """An agent with a past: a shared release, fresh data, and a decision that waits."""
    made = ffx.Agent(D, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(6):
        made.observe(made.decide(rng.random((3, D))), reward=float(rng.random()))
    made.absorb({made.name: made.release(), "other": other_release()})
    made.observe(made.decide(rng.random((3, D))), reward=0.25)
    made.decide(rng.random((3, D)))
    return made


def sums(first: float, off: float, diagonal: float, moment: float) -> np.ndarray:
    """Packed sums of a Gram matrix with these entries, the first apart."""
    gram = np.full((D + 1, D + 1), off) + np.diag([first - off, *[diagonal - off] * D])
    return pack(gram, np.array([moment, *[0.2] * D]))


def other_release(number: int = 1, values: np.ndarray | None = None, count: int = 3, **more: Any) -> Release:
    packed = sums(1.0, 0.1, 1.0, 0.2) if values is None else values
    return dataclasses.replace(Release(number, packed, count, NonPrivate().digest()), **more)


def assert_unchanged(disturbed: ffx.Agent) -> None:
    """From here on it decides and learns as one that was never disturbed, to the bit."""
    twin = agent()
    rng = np.random.default_rng(9)
    assert disturbed.pending == twin.pending == 1
    for _ in range(5):
        x = rng.random((4, D))
        ours, theirs = disturbed.decide(x), twin.decide(x)
        assert ours == theirs
        disturbed.observe(ours, reward=0.5)
        twin.observe(theirs, reward=0.5)
    assert disturbed.release() == twin.release()
    disturbed.absorb({})
    twin.absorb({})
    assert (disturbed.gram == twin.gram).all()


def assert_shows_no_data(error: BaseException) -> None:
    text = "".join(traceback.format_exception_only(error)) + repr(error) + repr(error.__cause__)
    assert "0.7310" not in text
    assert "0.731" not in text
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None


SOUND = "must be finite and at most 1e+100 in size"
CONTEXTS: list[tuple[Any, str]] = [
    (
        with_bad(NAN),
        f"contexts[2][1] {SOUND}, got nan",
    ),
    (with_bad(INF), f"contexts[2][1] {SOUND}, got infinity"),
    (with_bad(-INF), f"contexts[2][1] {SOUND}, got infinity"),
    (with_bad(1e200), f"contexts[2][1] {SOUND}, got a larger number"),
    (filled(4, D + 1), "contexts must have shape (K, 3) with K >= 1, got contexts=array of shape (4, 4)"),
    (filled(D), "contexts must have shape (K, 3) with K >= 1, got contexts=array of shape (3,)"),
    (filled(2, 4, D), "contexts must have shape (K, 3) with K >= 1, got contexts=array of shape (2, 4, 3)"),
    (filled(0, D), "contexts must have shape (K, 3) with K >= 1, got contexts=array of shape (0, 3)"),
    ([], "contexts must have shape (K, 3) with K >= 1, got contexts=array of shape (0,)"),
    (SECRET, "contexts must have shape (K, 3) with K >= 1"),
    ([[SECRET] * 3, [SECRET] * 2], "contexts[1] must be 3 numbers, as the rows before, got 2"),
    ([[SECRET, "high", SECRET]], "contexts[0][1] must be a number, got a string"),
    (
        [[1, 2, 3], [SECRET, 10**400, 1]],
        "contexts[1][1] must be a number, got a number that is too large",
    ),
    (
        [[1, 2, 3], [SECRET, 1j, SECRET]],
        "contexts[1][1] must be a number, got a complex number",
    ),
    (filled(2, D) * 1j, "contexts[0][0] must be a number, got a complex number"),
    (
        np.array([[SECRET, np.complex64(1j), 0]], dtype=object),
        "contexts[0][1] must be a number, got a complex",
    ),
    (None, "contexts must be given: an array of shape (K, 3)"),
    ({"a": SECRET}, "contexts must be a (K, d) array of numbers"),
]


@pytest.mark.parametrize(("bad", "text"), CONTEXTS)
def test_contexts(bad: Any, text: str) -> None:
    disturbed = agent()
    with pytest.raises(InvalidInput) as refused:
        disturbed.decide(bad)
    assert str(refused.value).startswith(text)
    assert_shows_no_data(refused.value)
    with pytest.raises(InvalidInput) as refused:
        disturbed.decide_many([filled(2, D), bad])
    assert str(refused.value).startswith(f"contexts[1]{text.removeprefix('contexts')}")
    assert_shows_no_data(refused.value)
    with pytest.raises(InvalidInput) as refused:
        disturbed.policy(bad)
    assert str(refused.value).startswith(text)
    assert_unchanged(disturbed)


NAMES: list[tuple[Any, str]] = [
    (["a", "b"], "names must be 4 strings, one for each action, got names=2"),
    ("abcd", "names must be 4 strings, one for each action"),
    (["a", "b", "c", 4], "names must be 4 strings, one for each action"),
]


@pytest.mark.parametrize(("bad", "text"), NAMES)
def test_names(bad: Any, text: str) -> None:
    disturbed = agent()
    with pytest.raises(InvalidInput) as refused:
        disturbed.decide(filled(4, D), names=bad)
    assert str(refused.value).startswith(text)
    assert_unchanged(disturbed)


LOGS: list[tuple[Any, Any, str]] = [
    (with_bad(NAN), [SECRET] * 4, f"contexts[2][1] {SOUND}, got nan"),
    (filled(4, D), [SECRET] * 3, "rewards must be as many as the 4 records, got rewards=3"),
    (filled(4, D), SECRET, "rewards must be 4 numbers, got float"),
    (
        filled(2, D),
        [SECRET, NAN],
        "reward must be finite, got reward=NaN or infinity",
    ),
    (filled(2, D), [SECRET, None], "reward must be a number, got reward of type NoneType in row 1"),
    (filled(2, D + 1), [SECRET] * 2, "contexts must have shape (K, 3)"),
]


@pytest.mark.parametrize(("contexts", "rewards", "text"), LOGS)
def test_logs(contexts: Any, rewards: Any, text: str) -> None:
    disturbed = agent()
    with pytest.raises(InvalidInput) as refused:
        disturbed.learn(contexts, rewards)
    assert str(refused.value).startswith(text)
    assert_shows_no_data(refused.value)
    with pytest.raises(InvalidInput, match="person must be left out"):
        disturbed.learn(filled(1, D), [SECRET], persons=["Ada"])
    assert_unchanged(disturbed)


REWARDS: list[tuple[Any, str]] = [
    (NAN, "reward must be finite, got reward=NaN or infinity"),
    (INF, "reward must be finite"),
    (-INF, "reward must be finite"),
    (10**400, "reward must be finite"),
    (1e200, "reward must be at most 707.107 in size"),
    (None, "reward must be a number, got reward of type NoneType"),
    (f"{SECRET} euros", "reward must be a number, got reward of type str"),
    ([SECRET, SECRET], "reward must be a number, got reward of type list"),
    (SECRET * 1j, "reward must be a number, got reward of type complex"),
    (np.complex64(SECRET * 1j), "reward must be a number, got reward of type complex64"),
    (np.array(SECRET * 1j), "reward must be a number, got reward of type ndarray"),
]


@pytest.mark.parametrize(("bad", "text"), REWARDS)
def test_rewards(bad: Any, text: str) -> None:
    disturbed = agent()
    waiting = next(iter(disturbed._pending.values())).id
    with pytest.raises(InvalidInput) as refused:
        disturbed.observe(waiting, reward=bad)
    assert str(refused.value).startswith(text)
    assert_shows_no_data(refused.value)
    with pytest.raises(InvalidInput) as refused:
        disturbed.observe_many([waiting], [bad])
    assert_shows_no_data(refused.value)
    assert_unchanged(disturbed)


NEGATIVE = sums(-50.0, 0.1, 1.0, SECRET)
ROUNDED = sums(-50.0, 0.0, 1e12, SECRET)  # by itself it could be rounding
MESSAGES: list[tuple[str, Callable[[], Any], str]] = [
    (
        "other",
        lambda: other_release(2, filled(5)),
        "release of 'other' must have 14 numbers (dimension 4), got 5",
    ),
    (
        "other",
        lambda: other_release(2, filled(3, 3)),
        "release of 'other' must have 14 numbers (dimension 4)",
    ),
    ("other", lambda: other_release(2, np.full(14, NAN)), "release of 'other' must be finite"),
    ("other", lambda: other_release(2, np.full(14, INF)), "release of 'other' must be finite"),
    ("other", lambda: other_release(2, np.full(14, 1e300)), "release of 'other' must be finite"),
    (
        "other",
        lambda: other_release(0),
        "release of 'other' must have number >= 1 and count >= 0, got number=0",
    ),
    ("other", lambda: other_release(2, count=-1), "release of 'other' must have number >= 1 and count >= 0"),
    (
        "other",
        lambda: other_release(2, mechanism="00" * 32),
        "release of 'other' was made by another mechanism",
    ),
    (
        "other",
        lambda: other_release(1, filled(14)),
        "release 1 of 'other' was seen before with other content",
    ),
    ("third", lambda: other_release(1, NEGATIVE), "release of 'third' must hold sums of records: its Gram"),
    ("third", lambda: other_release(1, ROUNDED), "the releases together must make a positive definite V"),
    ("third", lambda: filled(14), "release of 'third' must be a Release, got ndarray"),
    ("third", lambda: None, "release of 'third' must be a Release, got NoneType"),
    (5, other_release, "the sender of a release must be named by a string, got int"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("name", "make", "text"), MESSAGES)
def test_messages(name: str, make: Callable[[], Any], text: str) -> None:
    disturbed = agent()
    with pytest.raises(MessageRefused) as refused:
        disturbed.absorb({"fine": other_release(), name: make()})
    assert str(refused.value).startswith(text)
    assert_shows_no_data(refused.value)
    assert_unchanged(disturbed)


AGENTS: list[tuple[dict[str, Any], str]] = [
    ({"dimension": 0}, "dimension must be an integer >= 1, got dimension=0"),
    ({"dimension": -3}, "dimension must be an integer >= 1, got dimension=-3"),
    ({"dimension": 2.5}, "dimension must be an integer >= 1, got dimension=2.5"),
    ({"dimension": True}, "dimension must be an integer >= 1, got dimension=True"),
    (
        {"merit": 10.0},
        "merit must be a merit function of fedfairx.merit, such as Exponential(10)",
    ),
    ({"prior": 0.5}, "prior must be a Prior, got prior=0.5"),
    ({"confidence": 0.1}, "confidence must be a Confidence, got confidence=0.1"),
    ({"confidence": 0.1, "rule": "optimism"}, "confidence must be a Confidence, got confidence=0.1"),
    ({"privatizer": 2.0}, "privatizer must be a privatizer, as fedfairx.privacy.private(…) makes them, got"),
    ({"privatizer": NonPrivate()}, "privatizer must be a privatizer"),
    ({"name": 5}, "name must be a string, got name=5"),
    ({"shift": -1.0}, "shift must be a finite number >= 0 and <= 1e+100, got shift=-1.0"),
    ({"shift": NAN}, "shift must be a finite number >= 0 and <= 1e+100, got shift=nan"),
    ({"rule": "optimism", "solver": "newton"}, "solver must be one of fixed-point, pgd, got solver='newton'"),
    ({"seed": -1}, "seed must be an integer >= 0"),
]


@pytest.mark.parametrize(("options", "text"), AGENTS)
def test_agents(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ffx.Agent(**{"dimension": D, **options})
    assert str(refused.value).startswith(text)


FEDERATIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"decide_from": "released", "algorithm": "fed-fairx-linucb", "epsilon": None},
        "decide_from is for private algorithms, and fed-fairx-linucb is not private",
    ),
    ({"agents": 0}, "agents must be an integer >= 1, got agents=0"),
    ({"agents": -2}, "agents must be an integer >= 1, got agents=-2"),
    ({"dimension": 0}, "dimension must be an integer >= 1, got dimension=0"),
    ({"horizon": 0}, "horizon must be an integer >= 1, got horizon=0"),
    ({"horizon": -5}, "horizon must be an integer >= 1, got horizon=-5"),
    ({"epsilon": 0.0}, "epsilon must be"),
    ({"epsilon": -1.0}, "epsilon must be"),
    ({"epsilon": NAN}, "epsilon must be"),
    ({"epsilon": None}, "epsilon must be given for priv-fairx-linucb, got epsilon=None"),
    ({"delta": 0.0}, "delta must be a finite number > 0 and < 1, got delta=0.0"),
    ({"delta": 1.0}, "delta must be a finite number > 0 and < 1, got delta=1.0"),
    ({"delta": 1.5}, "delta must be a finite number > 0 and < 1, got delta=1.5"),
    ({"delta": -0.1}, "delta must be a finite number > 0 and < 1, got delta=-0.1"),
    ({"mechanism": "laplace"}, "mechanism must be one of"),
    ({"decide_from": "guesses"}, "decide_from must be one of"),
    ({"algorithm": "thompson"}, "algorithm must be one of"),
    ({"schedule": "weekly"}, "schedule must be one of"),
    ({"seed": -1}, "seed must be an integer >= 0"),
    ({"merit": [ffx.merit.Exponential()]}, "merit must be one merit, or one for each of 2 agents"),
    ({"algorithm": "fed-fairx-linucb"}, "epsilon is for private algorithms"),
    ({"algorithm": "b1", "decide_from": "released"}, 'decide_from must be "released+local" for B1'),
]


@pytest.mark.parametrize(("options", "text"), FEDERATIONS)
def test_federations(options: dict[str, Any], text: str) -> None:
    sound = {
        "agents": 2,
        "dimension": D,
        "horizon": 10,
        "algorithm": "priv-fairx-linucb",
        "epsilon": 1.0,
        "delta": 1e-6,
        "seed": 0,
    }
    with pytest.raises(FedFairXError) as refused:
        ffx.Federation(**{**sound, **options})
    assert isinstance(refused.value, InvalidInput)
    assert str(refused.value).startswith(text)


def couriers() -> ffx.Agent:
    return ffx.Agent(schema=Schema({"rating": (1, 5), "vehicle": ["bike", "car"]}), seed=0)


def named() -> ffx.Agent:
    return ffx.Agent(actions=["ann", "ben"], seed=0)


def rewarded(reward: Any) -> None:
    plain = ffx.Agent(D, seed=0)
    plain.observe(plain.decide(filled(2, D)), reward=reward)


SOUND, MISSPELT = {"rating": 3, "vehicle": "bike"}, {"ratng": 3, "vehicle": "bike"}
BY_NAME = "or give each action's features by name: rating, vehicle"
FIRST_TRIES: list[tuple[Callable[[], Any], str]] = [
    (lambda: Client("127.0.0.1:8000"), "url must begin with http:// or https://, got url='127.0.0.1:8000'"),
    (lambda: Client("localhost"), "url must begin with http:// or https://, got url='localhost'"),
    (lambda: Client([]), "url must be at least one address"),
    (
        lambda: Client("http://127.0.0.1:9", retries=0).decide(),
        "http://127.0.0.1:9 did not answer: [Errno 111] Connection refused.",
    ),
    (
        lambda: ffx.Agent(),
        "dimension must be an integer >= 1, got dimension=None; or give",
    ),
    (lambda: ffx.Agent("3"), "dimension must be an integer >= 1, got dimension='3'"),  # type: ignore[arg-type]
    (lambda: ffx.Agent(filled(2, 2)), "dimension must be an integer >= 1, got dimension='a list'"),  # type: ignore[arg-type]
    (lambda: ffx.Agent(0, actions=["ann"]), "dimension must be an integer >= 1, got dimension=0"),
    (
        lambda: ffx.Agent(3, actions=["ann"]).decide(np.zeros((2, 3))),
        "names must be given: the rows are 2, and 1 actions are offered",
    ),
    (
        lambda: ffx.Agent(actions=["ann", "ben"], epsilon=2),
        "epsilon is for private algorithms, and fed-fairx-bayes is not private, got epsilon=2.0; "
        "give algorithm='priv-fairx-bayes', or leave it out",
    ),
    (
        lambda: ffx.Agent(3, algorithm="fed-fairx-linucb", epsilon=2),
        "epsilon is for private algorithms, and fed-fairx-linucb is not private, got epsilon=2.0; "
        "give algorithm='priv-fairx-linucb', or leave it out",
    ),
    (lambda: ffx.Agent(actions=[]), "actions must be at least one name, got actions=[]"),
    (lambda: ffx.Agent(actions="ann"), "actions must be a list of names, which are strings"),
    (lambda: ffx.Agent(actions=[1, 2]), "actions must be a list of names, which are strings"),  # type: ignore[list-item]
    (lambda: ffx.Agent(actions=["ann", "ann"]), "actions must have different names, got 'ann' as actions[0]"),
    (
        lambda: ffx.Agent(actions=["ann", "ben"], minimum_share=0.6),
        "minimum_share must be at most 1/2 with 2 actions, got minimum_share=0.6",
    ),
    (
        lambda: ffx.Agent(actions=["ann", "ben"], minimum_share=0.4).add_actions("cid"),
        "minimum_share must be at most 1/3 with 3 actions, got minimum_share=0.4",
    ),
    (lambda: ffx.Agent(3, minimum_share=1.0), "minimum_share must be a finite number >= 0 and < 1"),
    (
        lambda: ffx.Agent(schema={"rating": (1, 5)}),  # type: ignore[arg-type]
        "schema must be a features.Schema, got schema='dict'; give fedfairx.features.Schema({",
    ),
    (lambda: Schema({"rating": float}), "features must be like {'price': (0, 10)"),
    (lambda: Schema({"rating": (5, 1)}), "features.rating must be two finite numbers, low < high"),
    (lambda: Schema(["rating"]), "features must be like {'price': (0, 10)"),
    (
        lambda: couriers().decide([MISSPELT]),
        "actions[0].ratng is unknown: did you mean rating?",
    ),
    (
        lambda: couriers().decide([SOUND, SOUND | MISSPELT]),
        "actions[1].ratng is unknown: did you mean rating?",
    ),
    (
        lambda: couriers().decide([{**SOUND, "price": 3}]),
        "actions[0].price is unknown: features are",
    ),
    (lambda: ffx.Agent(3).decide(), "contexts must be given: an array of shape (K, 3)"),
    (lambda: couriers().decide(), f"contexts must be given: an array of shape (K, 5); {BY_NAME}"),
    (
        lambda: couriers().decide(filled(2, 3)),
        "contexts must have shape (K, 5) with K >= 1, got contexts=array of shape (2, 3); " + BY_NAME,
    ),
    (
        lambda: couriers().decide(["ann", "ben"]),
        f"contexts[0] must be a list of numbers, got a string; {BY_NAME}",
    ),
    (lambda: couriers().decide([{"vehicle": "bike"}]), "actions[0].rating must be given, got none"),
    (lambda: couriers().decide([{**SOUND, "rating": "3"}]), "actions[0].rating must be a finite number"),
    (lambda: couriers().decide(SOUND), "actions.rating must be features by name, got a number"),
    (
        lambda: named().decide(["ann", "bob"]),
        "actions[1] must be one that this agent has and has",
    ),
    (lambda: named().decide("ann"), "actions must be a list of names"),
    (lambda: named().decide(slots=3), "slots must be at most as many as the 2 actions, got slots=3"),
    (lambda: named().decide(slots=0), "slots must be a number of slots >= 1"),
    (lambda: named().observe("ann", reward=1.0), "decision must be one that this agent made"),
    (
        lambda: named().observe(0, reward=1.0),
        "decision must be a Decision or its id, got decision",
    ),  # type: ignore[arg-type]
    (lambda: named().observe(named().decide()), "reward must be a number, got reward of type NoneType"),
    (lambda: rewarded("1"), "reward must be a number, got reward of type str"),
    (lambda: rewarded(b"1"), "reward must be a number, got reward of type bytes"),
    (lambda: rewarded([1.0]), "reward must be a number, got reward of type list"),
    (lambda: rewarded({"ann": 1.0}), "reward must be a number, got reward of type dict"),
    (lambda: ffx.Agent(3, seed="today"), "seed must be an integer >= 0 or a numpy.random.SeedSequence"),  # type: ignore[arg-type]
    (lambda: ffx.Federation(agents=2, dimension=3, horizon=9, seed="x"), "seed must be an integer >= 0"),  # type: ignore[arg-type]
    (lambda: ffx.Agent(3, rule="ucb"), "rule must be one of expected-merit, greedy, thompson, optimism"),
    (lambda: ffx.Agent(3, merit="exponential"), "merit must be a merit function of fedfairx.merit, such as"),  # type: ignore[arg-type]
    (
        lambda: ffx.Agent(3, half_life="2 weeks"),
        "half_life must be a number of rewards above 0, or a time",
    ),
    (lambda: ffx.Agent.open("/", dimension=3), "/ is a folder: name the database in it, such as agent.db"),
    (lambda: ffx.Agent.load("missing.db"), "there is no file missing.db"),
    (lambda: Client(5), "url must begin with http:// or https://, got url=5"),  # type: ignore[arg-type]
    (lambda: Client("http://"), "url must name a host, got url='http://'"),
    (lambda: Client("http://h", key=5), "key must be text, as keys create printed it, got key='int'"),  # type: ignore[arg-type]
    (lambda: Client("http://h", "schlüssel"), "key must be text, as keys create printed it"),
    (lambda: Client("http://h", agent=""), "agent must be a name, or left out, got agent=''"),
    (lambda: Client("http://h", timeout=0), "timeout must be a number of seconds above 0, got timeout=0"),
    (lambda: Client("http://h", timeout="1s"), "timeout must be a number of seconds above 0"),  # type: ignore[arg-type]
    (lambda: Client("http://h", retries=-1), "retries must be an integer >= 0, got retries=-1"),
    (lambda: Client("ftp://h"), "url must begin with http:// or https://, got url='ftp://h'"),
    (
        lambda: ffx.Agent(3, merit=ffx.merit.Exponential),  # type: ignore[arg-type]
        "merit must be a merit function of fedfairx.merit, such as Exponential(10), got merit=<class",
    ),
    (
        lambda: ffx.Agent(3, half_life=-1),
        "half_life must be a number of rewards above 0, or a time",
    ),
    (lambda: ffx.Agent(3, reward_range=(1, 0)), "reward_range must be two numbers, low < high"),
    (lambda: ffx.Agent(3, slots=0), "slots must be a number of slots >= 1, or their weights"),
    (lambda: ffx.merit.Exponential("10"), "steepness must be a finite number > 0, got steepness='10'"),  # type: ignore[arg-type]
    (
        lambda: named().add_actions(["cid"]),  # type: ignore[arg-type]
        "actions must be a list of names, which are strings that are not empty, got a list as actions[0]",
    ),
    (
        lambda: named().retire_actions(["ann"]),  # type: ignore[arg-type]
        "actions must be a list of names, which are strings that are not empty, got a list as actions[0]",
    ),
    (lambda: named().retire_actions("zoe"), "actions[0] must be one that this agent has and has not retired"),
    (lambda: named().retire_actions("ann", "ben"), "actions must leave one that is offered"),
    (lambda: ffx.Agent.open(5), "place must be a file, such as agent.db, or an address that begins with"),  # type: ignore[arg-type]
    (lambda: ffx.Agent.open(""), "place must be a file, such as agent.db, or an address that begins with"),
    (
        lambda: ffx.Agent.open("mysql://h/d", dimension=2),
        "place must be a file, such as agent.db, or",
    ),
    (lambda: Schema({"city": ["Rome", "Rome"]}), "features.city must have levels that are different texts"),
    (lambda: Schema({"price": (0, 0)}), "features.price must be two finite numbers, low < high"),
    (lambda: Schema({"a": (0, 1)}, shared="a"), "shared must be a list of names, got shared='a'"),
    (lambda: Schema({"a": (0, 1)}, products=["a b"]), 'products must be two features each, as "a:b", of a'),
    (
        lambda: couriers().decide([SOUND], context={"hour": 3}),
        "context must be left out: no feature is shared",
    ),
    (
        lambda: couriers().decide([SOUND | {"vehicle": ["bike"]}]),
        "actions[0].vehicle must be text, got a list",
    ),
    (lambda: ffx.Agent(2).decide([1, 2]), "contexts must have shape (K, 2) with K >= 1"),
    (lambda: ffx.Agent(2).decide(["ann", "ben"]), "contexts[0] must be a list of numbers, got a string"),
]


def test_a_client_is_shown_by_its_address() -> None:
    assert repr(Client("http://127.0.0.1:8000/", "ffx_secret")) == "Client('http://127.0.0.1:8000')"
    assert (
        repr(Client(["http://a", "http://b"], agent="shop")) == "Client('http://a', 'http://b', agent='shop')"
    )
    assert repr(AsyncClient("http://a")) == "AsyncClient('http://a')"


@pytest.mark.parametrize(("call", "text"), FIRST_TRIES, ids=[text[:50] for _, text in FIRST_TRIES])
def test_first_tries(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(FedFairXError) as refused:
        call()
    assert str(refused.value).removeprefix(f"{Path.cwd()}/").startswith(text)


def test_an_option_that_is_misspelt() -> None:
    with pytest.raises(TypeError, match=r"there is no option epsilonn: did you mean epsilon\?"):
        ffx.Agent(3, epsilonn=1)  # type: ignore[call-arg]
