"""An option is described once: every way in has the same limits, and gives the same verdict."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.by_name import MERITS, as_merit, as_schedule
from fedfairx.agent.options import Keywords, Options, SharedOptions, described
from fedfairx.agent.schedules import SCHEDULES
from fedfairx.agent.settings import StoredSettings, plain_value, read_value
from fedfairx.cli.federate import AGREED, ARMS, Init
from fedfairx.cli.main import parser
from fedfairx.cli.serve import Serve
from fedfairx.cli.simulate import settings as simulation_settings
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Affine
from fedfairx.core.posterior import Prior
from fedfairx.errors import FedFairXError, InvalidInput
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.member_folder import SETTINGS
from fedfairx.privacy import Bounds, Budget, Centring, SimulatedNoise
from fedfairx.service import schemas
from fedfairx.service.fast_path import decode
from fedfairx.service.problems import ProblemError
from fedfairx.service.settings import OF_AGENT, Settings, for_agent, load, table
from fedfairx.util.config import Scope, option, plain_settings, settings_of


class Ends(NamedTuple):
    """Values of an option: just inside its limits, just outside, and of a wrong type."""

    inside: list[Any]
    outside: list[Any]
    wrong: list[Any]


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


def below(value: float) -> float:
    return math.nextafter(value, -math.inf)


NUMBER = ["0.5", [0.5], True, "x", 10**400, math.nan, math.inf]
WHOLE = ["5", [5], True, "x", 1.5]
TEXTS = [5, [1.5], True]
TINY, LARGE = 5e-324, 1e100
COUNT = Ends([1, 2**53], [0, -1, 2**53 + 1], WHOLE)
POSITIVE_NUMBER = Ends([TINY, LARGE], [0, -1.0, above(LARGE)], NUMBER)
#: The limits, written by hand: what the description must say.
TABLE: dict[str, Ends] = {
    # what an agent is
    "dimension": Ends([1, 400], [0, -1, 401], WHOLE),
    "actions": Ends([["a"], ["a", "b" * 200]], [[], [""], ["b" * 201], ["a", "a"]], [[1, 2]]),
    "features": Ends([{"a": [0, 1]}, {"a": ["x", "y"], "b": "bool"}], [{}, {"a": [1, 0]}, {"a": []}], [[1]]),
    "shared": Ends([["b"], []], [["b" * 201], [""]], [[1]]),
    "products": Ends([["a:b"], []], [["a:" + "b" * 400]], [[1], 5]),
    "intercept": Ends([True, False], [2], ["x", [True]]),
    "own_record": Ends([True, False], [2], ["x", [True]]),
    "person_records": COUNT,
    "shift": Ends([0, LARGE], [below(0.0), above(LARGE)], NUMBER),
    # what a federation agrees on
    "rule": Ends(["expected-merit", "optimism"], ["best", "Greedy", ""], TEXTS),
    "merit": Ends(["doubling:0.1", "affine:slope=2"], ["doubling:0", "x", "x" * 201], TEXTS),
    "reward_range": Ends(
        [[-1e30, 1e30], [0, 1e-20]],
        [[-above(1e30), 0], [0, above(1e30)], [1, 1]],
        [5, [1], ["0", "2"], [0, 10**400]],
    ),
    "minimum_share": Ends([0, below(1.0)], [below(0.0), 1.0, 1.5], NUMBER),
    "slots": Ends(
        [1, [1, 0], [1.0, 0.5]],
        [0, 100_001, [], [above(1.0)], [0.5, 1], [1, -0.1]],
        [1.5, True, ["x"], [True], [1, 10**400]],
    ),
    "epsilon": POSITIVE_NUMBER,
    "delta": Ends([TINY, below(1.0)], [0, 1.0, -0.1, 2], NUMBER),
    "releases": COUNT,
    "mechanism": Ends(["blt", "tree"], ["x"], [5, [1.5]]),
    "algorithm": Ends(["priv-fairx-bayes", "b2"], ["x"], [5, [1.5]]),
    "aggregation": Ends(["plain", "secure"], ["x", ""], TEXTS),
    "colluding": COUNT,
    # each member's own
    "decide_from": Ends(["own+released", "released"], ["x"], TEXTS),
    "partners": Ends(["alike", "differ"], ["x", ""], TEXTS),
    "half_life": Ends([1e-5, 1e12, "1s", "30d", "1e3"], [0, -1, above(1e12), "0.5s", "30y"], [[5], True]),
    # how it is run
    "window": POSITIVE_NUMBER,
    "default_reward": Ends([-LARGE, LARGE], [-above(LARGE), above(LARGE)], NUMBER),
    "mode": Ends(["live", "shadow"], ["dead", ""], TEXTS),
    "control_share": Ends([0, 1], [below(0.0), above(1.0)], NUMBER),
    "noise_sd": POSITIVE_NUMBER,
    "tolerance": Ends([0, 0.99], [below(0.0), above(0.99)], NUMBER),
    "exposure_decisions": COUNT,
}
#: Options that hold objects, which have limits of their own.
OBJECTS = {"prior", "confidence", "bounds", "centring", "solver", "schedule"}
#: What an option must come with.
NEEDS: dict[str, dict[str, Any]] = {
    **{name: {"epsilon": 1.0} for name in ("delta", "releases", "decide_from", "person_records")},
    "default_reward": {"window": 1.0},
    "shared": {"features": {"a": [0, 1], "b": [0, 1], "b" * 200: [0, 1]}},
    "products": {"features": {"a": [0, 1], "b": [0, 1]}},
}
PRIVATE: dict[str, Any] = {"algorithm": "priv-fairx-bayes", "epsilon": 1.0}
SECURE: dict[str, Any] = {**PRIVATE, "aggregation": "secure"}
OF_OPTIONS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("epsilon", "delta", "decide_from", "algorithm", "aggregation"), PRIVATE),
    "colluding": SECURE,
}
FOUNDED: dict[str, dict[str, Any]] = {
    **NEEDS,
    **{name: {"aggregation": "secure", "round_count": 2} for name in ("colluding", "decide_from")},
}
IN_SERVICE = {each.name for each in table()}


def text_of(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={_kind_of(kind)}" for name, kind in value.items())
    return ",".join(map(text_of, value)) if isinstance(value, list) else str(value)


def _kind_of(kind: Any) -> str:
    if isinstance(kind, str) or not kind:
        return str(kind)
    return ":".join(map(str, kind)) if isinstance(kind[0], int) else "|".join(kind)


def toml_of(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} = {toml_of(kind)}' for name, kind in value.items())}}}"
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


@functools.cache
def commands() -> Any:
    return parser()


# --- the ways in ---------------------------------------------------------------------------------------


def _with_needs(name: str, value: Any, folder: Path) -> dict[str, Any]:
    given = {**NEEDS.get(name, {}), name: value}
    if name == "partners":
        (folder / SETTINGS).touch()
        given["federation"] = str(folder)
    return given


def by_keyword(name: str, value: Any, folder: Path) -> None:
    given = as_merit(value) if name == "merit" and value in TABLE["merit"].inside else value  # an object
    Options(**OF_OPTIONS.get(name, {}) | {name: given})


def by_federation(name: str, value: Any, folder: Path) -> None:
    ffx.Federation(agents=3, dimension=2, horizon=20, **OF_OPTIONS.get(name, {}) | {name: value})


def by_opening(name: str, value: Any, folder: Path) -> None:
    """As a program keeps an agent in a file."""
    ffx.Agent.open(folder / "agent.db", dimension=2, **{name: value}).close()


def by_budget(name: str, value: Any, folder: Path) -> None:
    """As a program makes a durable agent private."""
    Budget(**{"epsilon": 1.0, "releases": 3} | {name: value})


def by_expiry(name: str, value: Any, folder: Path) -> None:
    """As a program sets the window of a durable agent; a private one takes any reward."""
    agent = ffx.Agent(2, **PRIVATE, privatizer=_privatizer())
    agent.set_window(**NEEDS.get(name, {}) | {name: value})


@functools.cache
def _privatizer() -> Any:
    return Options(**PRIVATE).privatizer(2, releases=3, noise=SimulatedNoise(0, agent=0))


def by_stored_settings(name: str, value: Any, folder: Path) -> None:
    """As an agent's file or database has them; what is private is stored elsewhere."""
    options = Options().for_agent(featureless=False)
    values = plain_value(StoredSettings.of("a", 2, None, options, None)) | {"prior": None}
    StoredSettings.options(read_value(values | {name: value}, StoredSettings, "settings"))


def by_flag(name: str, value: Any, folder: Path) -> None:
    written = [(key, text_of(each)) for key, each in _with_needs(name, value, folder).items()]
    argv = [f"--{key.replace('_', '-')}={text}" for key, text in written]
    load(Serve.read(commands().parse_args(["serve", *argv])).settings, environment={})


def by_environment(name: str, value: Any, folder: Path) -> None:
    given = _with_needs(name, value, folder)
    load({}, environment={f"FEDFAIRX_{key.upper()}": text_of(each) for key, each in given.items()})


def by_toml(name: str, value: Any, folder: Path) -> None:
    given = _with_needs(name, value, folder)
    file = folder / "service.toml"
    file.write_text("".join(f"{key} = {toml_of(each)}\n" for key, each in given.items()))
    load({}, environment={}, config=file)


def by_request(name: str, value: Any, folder: Path) -> None:
    """As the route does, without opening the agent."""
    body = json.dumps({**NEEDS.get(name, {}), name: value}).encode()
    values = msgspec.to_builtins(decode(body, schemas.AgentSettings))
    for_agent(Settings(), "a", values, federation=str(folder) if name == "partners" else "")


def by_simulation_flag(name: str, value: Any, folder: Path) -> None:
    flag = f"--{name.replace('_', '-')}={text_of(value)}"
    found = simulation_settings(commands().parse_args(["simulate", flag]), None)
    Options(**OF_OPTIONS.get(name, {}) | found["run"])


def by_simulation_file(name: str, value: Any, folder: Path) -> None:
    file = folder / "mine.toml"
    file.write_text(f"[run]\n{name} = {toml_of(value)}\n")
    found = simulation_settings(commands().parse_args(["simulate"]), file)
    Options(**OF_OPTIONS.get(name, {}) | found["run"])


def by_founding(name: str, value: Any, folder: Path) -> None:
    """As `fedfairx federate init` makes terms."""
    given = {"horizon": 20, **FOUNDED.get(name, {}), name: value}
    argv = [f"--{key.replace('_', '-')}={text_of(each)}" for key, each in given.items()]
    args = commands().parse_args(["federate", "init", "--agents=a,b,c", "--out=x", *argv])
    Init.read(args).terms(3)


def by_terms(name: str, value: Any, folder: Path) -> None:
    """As a member of a federation reads them from the roster."""
    stated = _terms(name).to_dict()
    place = next(
        part for part in (stated, stated.get("privacy"), stated.get("aggregation")) if part and name in part
    )
    place[name] = value
    try:
        Terms.from_dict(stated)
    except FedFairXError as error:
        if "privacy.digest" not in str(error):  # which is that of the value before
            raise


@functools.cache
def _terms(name: str) -> Terms:
    given = SECURE | {"rounds": Rounds(begin=0, count=2)} if name in STATED_TOGETHER else PRIVATE
    given = given | ({"partners": "alike"} if name == "decide_from" else {})
    return Terms(dimension=2, agents=3, horizon=20, **given)


STATED_TOGETHER = ("colluding", "decide_from", "partners")
STATED = ("reward_range", "minimum_share", "epsilon", "delta", "mechanism", "algorithm", *STATED_TOGETHER)
EVERYWHERE = ("rule", "reward_range", "minimum_share", "slots")
Way = Callable[[str, Any, Path], None]
WAYS: dict[Way, set[str]] = {
    by_keyword: {each.name for each in described()} - OBJECTS,
    by_federation: {*EVERYWHERE, "epsilon", "delta", "algorithm"},
    by_opening: {*EVERYWHERE, "half_life", "window", "shift"},
    by_budget: {"epsilon", "delta", "releases", "mechanism", "decide_from", "person_records"},
    by_expiry: {"window", "default_reward"},
    by_stored_settings: {item.name for item in fields(StoredSettings)}
    & {each.name for each in described()} - OBJECTS - {"merit", "slots"},
    by_flag: OF_AGENT & IN_SERVICE,
    by_environment: OF_AGENT & IN_SERVICE,
    by_toml: OF_AGENT & IN_SERVICE,
    by_request: set(OF_AGENT),
    by_simulation_flag: {each.name for each in described()} - OBJECTS - {"merit", "slots", "half_life"},
    by_simulation_file: {each.name for each in described()} - OBJECTS - {"merit", "slots", "half_life"},
    by_founding: {*ARMS, *AGREED} - {"schedule"},
    by_terms: set(STATED),
}
WRITTEN = (by_flag, by_environment, by_simulation_flag, by_founding)


def cases() -> Iterator[Any]:
    for name, ends in TABLE.items():
        for verdict, values in zip((True, False, False), ends, strict=True):
            for value in values:
                for way, names in WAYS.items():
                    if name in names and not _another(way, ends, name, value):
                        id = f"{name}-{str(value)[:20]}-{way.__name__}"
                        yield pytest.param(way, name, value, verdict, id=id)


def _another(way: Way, ends: Ends, name: str, value: Any) -> bool:
    """Whether a value is another one as text or no JSON at all, or too much for these three members."""
    if way is by_request and isinstance(value, float) and not math.isfinite(value):
        return True
    if way not in WRITTEN:
        return name == "colluding" and way is by_terms and value == 2**53
    if name == "colluding" and way is by_founding and value == 2**53:
        return True
    same = {text_of(each) for each in ends.inside} | {"0.5", "5", "1.5", "True"}
    listed = isinstance(value, list) and name in ("actions", "shared", "products", "features", "reward_range")
    return value in ("", [], {}, [""]) or (value in ends.wrong and (text_of(value) in same or listed))


@pytest.mark.parametrize(("way", "name", "value", "verdict"), list(cases()))
def test_every_way_in_gives_the_same_verdict(
    way: Way, name: str, value: Any, verdict: bool, tmp_path: Path
) -> None:
    if verdict:
        way(name, value, tmp_path)
        return
    with pytest.raises((FedFairXError, ProblemError)) as refused:
        way(name, value, tmp_path)
    assert name in str(getattr(refused.value, "detail", refused.value))


def test_every_option_of_an_agent_is_tried() -> None:
    assert TABLE.keys() == OF_AGENT | {each.name for each in described()} - OBJECTS
    assert {name for names in WAYS.values() for name in names} == TABLE.keys()


# --- objects -------------------------------------------------------------------------------------------


SIZE = Ends([1e-30, 1e30, 1], [below(1e-30), above(1e30), 0], NUMBER)
ABOVE_0 = Ends([TINY, 1e300], [0, -1.0], NUMBER)
#: The numbers of options that hold objects, by the tables of `fedfairx simulate`.
IN_OBJECTS: dict[str, tuple[Any, dict[str, Ends]]] = {
    "prior": (
        Prior,
        {
            "mean": Ends([-1e30, 1e30, [0.0, 1e30]], [above(1e30), [0, above(1e30)]], ["x", True, 10**400]),
            "sd": SIZE,
            "noise_sd": SIZE,
        },
    ),
    "confidence": (
        Confidence,
        {
            **dict.fromkeys(("regulariser", "parameter_norm", "scale"), SIZE),
            "noise_sd": Ends([0, 1e30], [below(0.0), above(1e30)], NUMBER),
            "failure": Ends([1e-30, below(1.0)], [below(1e-30), 1], NUMBER),
        },
    ),
    "bounds": (Bounds, dict.fromkeys(("context_norm", "reward", "gram_share", "record_norm"), ABOVE_0)),
}


@pytest.mark.parametrize(
    ("table", "name"), [(table, name) for table, (_, names) in IN_OBJECTS.items() for name in names]
)
def test_a_number_of_an_object_has_the_same_limits_by_every_way_in(
    table: str, name: str, tmp_path: Path
) -> None:
    kind, all_ends = IN_OBJECTS[table]
    ends, file = all_ends[name], tmp_path / "mine.toml"

    def in_file(value: Any) -> Any:
        file.write_text(f"[{table}]\n{name} = {toml_of(value)}\n")
        return simulation_settings(commands().parse_args(["simulate"]), file)[table]

    def as_flag(value: Any) -> Any:
        flag = f"--{table}-{name.replace('_', '-')}={text_of(value)}"
        return simulation_settings(commands().parse_args(["simulate", flag]), None)[table]

    ways: list[Callable[[Any], Any]] = [lambda value: {name: value}, in_file, as_flag]
    for way in ways:
        for value in ends.inside:
            assert getattr(kind(**way(value)), name) == (tuple(value) if isinstance(value, list) else value)
        wrong = [value for value in ends.wrong if way is not as_flag or text_of(value) != "0.5"]
        for value in (*ends.outside, *wrong):
            with pytest.raises(InvalidInput, match=f"^{name} must be"):
                kind(**way(value))


OBJECTS_OF_NUMBERS = (
    *(Prior(), Confidence(), Bounds(), Centring.unit_box(2), ffx.Scenario(), Budget(epsilon=1.0, releases=3)),
    *MERITS.values(),
    *SCHEDULES.values(),
)


@pytest.mark.parametrize("value", OBJECTS_OF_NUMBERS, ids=lambda value: type(value).__name__)
def test_a_field_of_an_object_refuses_another_type(value: Any) -> None:
    for name in plain_settings(type(value)):
        for wrong in ({}, [[]], object(), 10**400, math.nan):
            with pytest.raises(InvalidInput, match=f"^{name} must be"):
                replace(value, **{name: wrong})


def test_a_merit_and_a_schedule_by_name_have_the_limits_of_the_object() -> None:
    assert as_merit("affine:slope=2,reward_range=0:3") == Affine(slope=2.0, reward_range=(0.0, 3.0))
    for text, error in (
        ("affine:slope=-1", "slope must be a finite number >= 0, got slope='-1'"),
        ("affine:slope=nan", "slope must be a finite number >= 0, got slope='nan'"),
        ("power:exponent", "power takes parameters as name=number, got 'exponent'"),
        ("power:steepness=1", "power has no parameter 'steepness'; it has: exponent, offset, reward_range"),
    ):
        with pytest.raises(InvalidInput, match=f"^{re.escape(error)}$"):
            as_merit(text)
    with pytest.raises(InvalidInput, match=r"^gap must be a whole number >= 1 .*, got gap='1\.5'$"):
        as_schedule("paper:gap=1.5")


# --- what is made from the description -----------------------------------------------------------------


def test_keywords_for_editors_are_the_fields() -> None:
    """If this fails, the class must be what the text of the first line is."""
    wider = {"merit": "Merit | Sequence[Merit] | None", "centring": "Centring | Literal['scenario'] | None"}
    wanted = {
        item.name: wider.get(item.name, item.type)
        for kind in (SharedOptions, Options)
        for item in fields(kind)
    }
    written = {name: each.__forward_arg__ for name, each in Keywords.__annotations__.items()}
    assert written == wanted, "\n".join(f"    {name}: {kind}" for name, kind in wanted.items())


def paragraphs(kind: type) -> dict[str, str]:
    """All that a docstring says of each parameter."""
    found = re.findall(r"^([a-z_]+): (.+(?:\n    .+)*)", inspect.getdoc(kind) or "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


def test_an_agent_explains_its_options_as_they_are_explained() -> None:
    """Either docstring may add sentences."""
    told, wanted = paragraphs(ffx.Agent), paragraphs(Options)
    shared = told.keys() & wanted.keys()
    assert shared == {*SHORT, "prior"}
    for name in shared:
        assert told[name].startswith(wanted[name]) or wanted[name].startswith(told[name]), name


SHORT = ("rule", "merit", "reward_range", "minimum_share", "slots", "partners", "half_life")


def test_scopes() -> None:
    """What a member may choose, what a federation agrees on, and what may change later."""
    of = {scope: {each.name for each in (*table(), *described()) if each.scope is scope} for scope in Scope}
    assert of[Scope.MEMBER] == {"decide_from", "partners", "half_life", "own_record"}
    assert of[Scope.RUNNING] == {
        *("window", "default_reward", "mode", "control_share", "noise_sd", "tolerance", "exposure_decisions")
    }
    assert of[Scope.AGENT] == {*ARMS, "actions", "intercept", "person_records", "shift"}
    shared = {"rule", "merit", "reward_range", "minimum_share", "slots", "epsilon", "delta", "releases"}
    shared.add("intercept")  # of arrays; that of features is an agent's own
    assert of[Scope.AGREED] & IN_SERVICE == shared


@pytest.mark.parametrize("name", ["half_life", "decide_from", "partners", "shift"])
def test_terms_refuse_what_they_do_not_state(name: str) -> None:
    value = {"half_life": "30d", "decide_from": "released", "partners": "differ", "shift": 3.0}[name]
    given = {"algorithm": "fed-fairx-bayes"} if name == "half_life" else PRIVATE
    with pytest.raises(InvalidInput, match=f"^{name} must be left "):
        Terms(dimension=2, agents=3, horizon=20, **given, **{name: value})


def test_numbers_of_numpy_are_numbers() -> None:
    options = Options(minimum_share=np.float32(0.25), shift=np.int64(3))  # type: ignore[arg-type]
    assert (options.minimum_share, options.shift) == (0.25, 3.0)
    assert [type(value) for value in (options.minimum_share, options.shift)] == [float, float]


def test_an_error_of_a_reader_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^merit: a name must be text .* got int \(.*service.toml\)$"):
        by_toml("merit", 5, tmp_path)


@pytest.mark.parametrize("text", [" ", ",", "0:", "0:1:2"])
def test_text_that_is_no_pair_is_no_reward_range(text: str) -> None:
    for flags, environment in (({"reward_range": text}, {}), ({}, {"FEDFAIRX_REWARD_RANGE": text})):
        with pytest.raises(InvalidInput, match=r"^reward_range must be 2 values, each"):
            load(flags, environment=environment)


def test_names_are_closed_unless_there_may_be_an_object() -> None:
    @dataclass
    class Some:
        """Some.

        one: of two names.
        other: a name or an object.
        """

        one: str = option("a", choices=("a", "b"))
        other: str | Path = option("a", choices=("a", "b"))

    one, other = settings_of(Some)
    with pytest.raises(InvalidInput, match=r"^one must be one of a, b, got one='c'$"):
        one.read("c")
    assert other.read("c") == Path("c")
    assert one.example == ""
    assert one.choices == other.choices == ("a", "b")


def test_a_body_is_refused_before_it_is_used() -> None:
    """The document of the API has the limits, and names the place."""
    with pytest.raises(ProblemError) as refused:
        decode(b'{"dimension": 2, "minimum_share": 1}', schemas.AgentSettings)
    assert "minimum_share" in refused.value.detail


@pytest.mark.parametrize("value", ["nan", "inf", math.nan, -math.inf])
def test_a_number_without_limits_is_finite(value: object) -> None:
    @dataclass
    class Some:
        """Some.

        one: a number, or two.
        """

        one: float | tuple[float, ...] = 0.0

    (one,) = settings_of(Some)
    for given in (value, f"1,{value}", (1.0, value)):
        with pytest.raises(InvalidInput, match=r"^one must be a finite number or a list of"):
            one.read(given, text=True)
