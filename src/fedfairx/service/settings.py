"""The settings of a service; the help of the command line and the documentation are made from them.

A value comes from the command line, else from the environment (`FEDFAIRX_PORT`), else from a TOML file,
else it is the default. Settings of the agent are stored in its database: later starts need not repeat them,
and may not contradict them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from fedfairx.agent.half_life import UNITS, as_half_life
from fedfairx.core.slates import Slots, as_weights, read_slots
from fedfairx.errors import InvalidInput, require
from fedfairx.features import Feature, Schema, features_of
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.storage.open_log import FILE
from fedfairx.util.config import READERS, Setting, read_toml, settings_of

PREFIX = "FEDFAIRX_"
CONFIG = "FEDFAIRX_CONFIG"
LONGEST = 200  # characters of a name
WIDEST = 1_000  # numbers that describe an action: beyond, a reward can take longer than seconds
#: What the members of a federation have agreed on.
AGREED = frozenset(
    {
        "rule",
        "merit",
        "reward_range",
        "minimum_share",
        "slots",
        "epsilon",
        "delta",
        "releases",
    }
)
#: Settings of one agent; all others are the service's.
OF_AGENT = frozenset(
    {
        *("dimension", "actions", "features", "intercept", "rule", "reward_range", "merit", "minimum_share"),
        *("shared", "products"),
        *("slots", "half_life", "epsilon", "delta", "releases", "decide_from", "partners", "person_records"),
        *("window", "default_reward", "mode", "control_share", "noise_sd", "tolerance"),
        "exposure_decisions",
    }
)
#: Those of them that may change later: how an agent is run and measured, not what it has learnt by.
OF_RUNNING = frozenset(
    {
        *("window", "default_reward", "mode", "control_share", "noise_sd", "tolerance"),
        "exposure_decisions",
    }
)
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(ge=1_024)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of `fedfairx serve`.

    data: folder of the SQLite database; made if it does not exist.
    database: a PostgreSQL URL, instead of SQLite in the data folder.
    wait: wait while another process has the database or it can't be reached, instead of ending;
        docs/howto/run-a-standby.md.
    dimension: numbers that describe an action, where features have no names.
    actions: names of actions that have no features, as ann,ben,cid; instead of dimension.
    features: what describes an action: numbers with ranges, categories and booleans, as
        price=0:10,city=Rome|Oslo,new=bool.
    shared: names of the features that all actions of a decision share, and that a request has once.
    products: pairs of features that are multiplied, as price:city; none for none of them (default: each
        shared feature with each other one).
    intercept: add a constant, so that rewards need not be 0 where features are; without it, adding the same
        number to all rewards changes shares.
    rule: how shares are computed.
    reward_range: between which numbers rewards lie, as 1:5; sets the defaults of merit, prior and noise_sd.
    merit: what a reward is worth, as doubling:0.1; if not given, 7 % of the reward range doubles the share.
    minimum_share: share that every action gets in any case.
    slots: number of actions that a decision shows, or the weights of its slots, such as 1,0.63,0.5.
    half_life: after how many rewards, as 1000, or after what time, as 30d, a record counts half; all count
        alike if not given.
    name: this agent's name among the members of a federation; random if not given.
    epsilon: makes its releases private; docs/howto/choose-epsilon.md.
    delta: δ, beside epsilon.
    releases: number of releases that epsilon and delta are for.
    decide_from: what a private agent decides from; released is the strict mode, whose claim also covers how
        a record changes later decisions.
    federation: the folder of a member of a federation; docs/howto/found-a-federation.md.
    vault: folder of the member's vault with secure aggregation, which belongs into no backup; if not given,
        it is beside the member's key. docs/howto/use-secure-aggregation.md.
    partners: for a member of a federation, whether its peers' parameters may differ from its own.
    person_records: records of one person that enter, where a person is to be private.
    keep: how long contexts of decisions are kept, as 400d; all are, if not given. docs/howto/delete-data.md.
    window: seconds after which a reward is no longer waited for, also of agents made without a window;
        docs/howto/late-and-missing-rewards.md.
    default_reward: reward that is learnt when the window is past; nothing if not given.
    mode: shadow takes the caller's baseline and records what the policy would have drawn.
    control_share: share of live decisions that keep the baseline.
    noise_sd: upper limit of the rewards' sd, for exposure; if not given, half of the reward range, or 0.5.
    tolerance: what counts as within its entitlement; with 0.2, from 80 to 125 % of it.
    exposure_decisions: the latest decisions that a table of exposure is made from.
    host: address to listen on; other than loopback needs an API key first.
    port: port to listen on; 0 takes any free one.
    tls_certificate: PEM file of the certificate chain; needs an API key first.
    tls_key: PEM file of the certificate's private key.
    trusted_proxies: addresses whose X-Forwarded-* headers are believed; needs an API key first.
    root_path: path under which a proxy shows the service; needs an API key first.
    max_body: bytes of a request's body, at most.
    max_header: bytes of a request's address and headers, at most.
    max_connections: connections at once; above that, those whose clients send nothing are closed.
    header_seconds: seconds that a client has for sending a request's header.
    body_seconds: seconds that a client has for sending a request's body.
    max_actions: actions in a decision, at most.
    max_batch: decisions, rewards or withdrawals in a batch, at most.
    max_batch_work: size of a batch of decisions or rewards, times the square of the numbers that describe an
        action, at most; a batch of one, and one for actions without features, is always taken.
    max_waiting: requests that wait to be written, at most; others get 503.
    max_open: agents that are open at once, at most; those that are not used are closed first.
    idle_seconds: seconds after which an agent that nobody uses is closed; its next request opens it again.
    federations: folders of members that agents made by requests may become, by their names.
    shutdown_seconds: seconds that requests in flight have when the service is stopped.
    log_level: the least level that is logged.
    log_format: json writes each line of the log as an object.
    log_requests: also log a line for each request: operation, status, seconds and request id.
    """

    data: str = "fedfairx-data"
    database: str = ""
    wait: bool = False
    dimension: Annotated[int, Meta(ge=0, le=WIDEST)] = field(default=0, metadata={"unset": ""})
    actions: tuple[Name, ...] = ()
    features: tuple[Feature, ...] = field(default=(), metadata={"metavar": "NAME=LOW:HIGH|A|B|bool,…"})
    shared: tuple[Name, ...] = ()
    products: tuple[str, ...] | None = field(default=None, metadata={"metavar": "NAME:NAME,…"})
    intercept: bool | None = field(default=None, metadata={"unset": "yes with features, else no"})
    rule: Literal["expected-merit", "greedy", "thompson", "optimism"] = "expected-merit"
    reward_range: tuple[float, float] | None = field(default=None, metadata={"metavar": "LOW:HIGH"})
    merit: str = ""
    minimum_share: Share = 0.0
    slots: Slots = field(default=1, metadata={"metavar": "INT|NUMBER,…"})
    half_life: float | str | timedelta | None = field(default=None, metadata={"metavar": "REWARDS|TIME"})
    name: str = ""
    epsilon: Positive | None = None
    delta: Annotated[float, Meta(gt=0, le=1)] = 1e-6
    releases: Count = 100
    decide_from: DecideFrom = "own+released"
    federation: str = ""
    vault: str = ""
    partners: Literal["differ", "alike"] = "differ"
    person_records: Count | None = None
    keep: str = field(default="", metadata={"metavar": "TIME"})
    window: Positive | None = None
    default_reward: Annotated[float, Meta(ge=-1e100, le=1e100)] | None = None
    mode: Literal["live", "shadow"] = "live"
    control_share: Share = 0.0
    noise_sd: Positive | None = None
    tolerance: Annotated[float, Meta(ge=0, le=0.99)] = 0.2
    exposure_decisions: Count = 100_000
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    tls_certificate: str = ""
    tls_key: str = ""
    trusted_proxies: str = ""
    root_path: str = ""
    max_body: Bytes = 4_194_304
    max_header: Bytes = 32_768
    max_connections: Count = 800
    header_seconds: Positive = 10.0
    body_seconds: Positive = 60.0
    max_actions: Count = 1_000
    max_batch: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    max_batch_work: Count = 2_000_000
    max_waiting: Count = 10_000
    max_open: Count = 100
    idle_seconds: Positive = 600.0
    federations: tuple[str, ...] = field(default=(), metadata={"metavar": "DIR,…"})
    shutdown_seconds: Annotated[int, Meta(ge=0, le=3_600)] = 10
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_requests: bool = False
    given: frozenset[str] = frozenset()  # the names of settings that were not left at their default


@cache
def table() -> tuple[Setting, ...]:
    """All settings, in order."""
    return settings_of(Settings)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config: str | Path | None = None,
) -> Settings:
    """Read the settings from all three sources; `flags` that are None were not given."""
    environment, flags = os.environ if environment is None else environment, flags or {}
    config = config or environment.get(CONFIG) or _in_federation(flags, environment)
    known = {one.name: one for one in table()}
    variables = {
        f"{PREFIX}{name.upper()}": name for name in known
    }  # other variables with this prefix are ignored
    given: dict[str, Any] = {}
    for name, value, source in (
        *((name, value, str(config)) for name, value in (_toml(Path(config)) if config else {}).items()),
        *((variables[key], value, key) for key, value in environment.items() if key in variables),
        *((name, value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None),
    ):
        if name not in known:
            raise InvalidInput(f"{name} is not a setting ({source}); `fedfairx serve --help` lists them all")
        given[name] = known[name].read(value, source)
    return check(Settings(**given, given=frozenset(given)))


def for_agent(service: Settings, name: str, values: Mapping[str, Any], *, federation: str = "") -> Settings:
    """The settings of an agent that a request makes: its own, and those of the service, with its window.

    values: by the names in `OF_AGENT`, as a TOML file would have them.
    """
    known = {one.name: one for one in table() if one.name in OF_AGENT}
    given = {key: known[key].read(value, "in the body") for key, value in values.items()}
    shared = {item.name: getattr(service, item.name) for item in fields(Settings)}
    shared = {key: value for key, value in shared.items() if key not in OF_AGENT}
    if service.window is not None:
        given.setdefault("window", service.window)
    shared |= {"name": name, "federation": federation, "given": frozenset({*given, "name"})}
    return check(Settings(**shared | given))


def check(settings: Settings) -> Settings:
    """Check settings against each other."""
    agreed = AGREED & settings.given if settings.federation else ()
    if agreed:
        raise InvalidInput(f"{sorted(agreed)[0]} must be left out: the federation's roster states it")
    if settings.federation and settings.person_records is not None:
        raise InvalidInput(
            "person_records must be left out: a federation's terms have no bound on a person's records"
        )
    low, high = settings.reward_range or (0.0, 1.0)
    require(low < high, "reward_range", "must be two numbers, low < high, like 1:5", settings.reward_range)
    named = len(settings.features)
    fits = not named or settings.dimension in (0, named)
    require(fits, "dimension", f"must be that of the {named} features", settings.dimension)
    if named:
        schema_of(settings)
    if settings.actions:
        for other in ("dimension", "features", "shared", "intercept"):
            if getattr(settings, other):
                raise InvalidInput(f"{other} must be left out beside actions, which have no features")
        if settings.federation:
            raise InvalidInput("actions must be left out: the members of a federation agree on features")
    different = len(set(settings.actions)) == len(settings.actions)
    require(different, "actions", "must be different names", list(settings.actions))
    most = settings.max_actions
    require(len(settings.actions) <= most, "actions", f"must be at most {most}", len(settings.actions))
    if "partners" in settings.given and not settings.federation:
        raise InvalidInput("partners must be left out: it is for members of a federation")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise InvalidInput("tls_certificate and tls_key must be given together")
    if settings.mode == "shadow" and settings.control_share:
        raise InvalidInput("control_share must be 0 in mode shadow, where the baseline is always shown")
    if settings.default_reward is not None and settings.window is None:
        raise InvalidInput("default_reward must come with a window, after which it is learnt")
    keep_seconds(settings)
    private = {"delta", "releases", "decide_from", "person_records"} & settings.given
    if private and settings.epsilon is None and not settings.federation:
        raise InvalidInput(f"epsilon must be given with {', '.join(sorted(private))}")
    if settings.database and not settings.database.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("database must be a URL that begins with postgresql://")  # it may hold a password
    return settings


def keep_seconds(settings: Settings) -> float | None:
    """The seconds for which contexts are kept; None if there is no limit."""
    if not settings.keep:
        return None
    try:
        length = as_half_life(settings.keep)
    except InvalidInput:
        length = None
    text = "must be a time such as 400d (units: w, d, h, m, s; from 1s)"
    require(isinstance(length, str), "keep", text, settings.keep)
    return float(str(length)[:-1]) * UNITS[str(length)[-1]]


def schema_of(settings: Settings) -> Schema:
    """The schema of a service with features."""
    schema = Schema(
        settings.features,
        shared=settings.shared,
        products=() if settings.products == ("none",) else settings.products,
        intercept=settings.intercept is not False,
    )
    text = f"must make at most {WIDEST} numbers, with their categories and products"
    require(schema.width <= WIDEST, "features", text, schema.width)
    return schema


def place_of(settings: Settings) -> str:
    """Where the agent is stored: a PostgreSQL address, or the file in the data folder."""
    return settings.database or str(Path(settings.data) / FILE)


def key_command(settings: Settings) -> str:
    """The command that makes a key for all that this service can do; the URL may hold a password."""
    where = "--database URL" if settings.database else f"--data {shlex.quote(settings.data)}"
    return f"fedfairx keys create --role admin {where}"


def make_data_folder(settings: Settings) -> None:
    """Make the data folder, unless the database is on a server."""
    if settings.database:
        return
    try:
        Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        text = f"must be a folder, or one that can be made ({error.strerror})"
        raise InvalidInput(f"data {text}, got data={settings.data!r}") from None


def _toml(path: Path) -> dict[str, Any]:
    values = read_toml(path)
    if isinstance(values.get("federation"), dict):  # a member's own file, in its folder
        values["federation"] = str(path.parent)
        values["data"] = str(path.parent / str(values.get("data", "data")))
        if values.get("vault"):
            values["vault"] = str(path.parent / str(values["vault"]))
    return values


def _in_federation(flags: Mapping[str, object], environment: Mapping[str, str]) -> Path | None:
    """The settings file in a member's folder, unless another is named."""
    folder = flags.get("federation") or environment.get(f"{PREFIX}FEDERATION")
    if not folder:
        return None
    from fedfairx.federation.setup.member_folder import SETTINGS  # not above: `--help` need not load an agent

    return Path(str(folder)) / SETTINGS


def _slots(value: object) -> Slots:
    """Weights of slots: "3" or "1,0.63,0.5", in TOML 3 or [1, 0.63, 0.5]."""
    if not isinstance(value, str):
        return as_weights(value)  # type: ignore[arg-type]
    return read_slots(value)


READERS[tuple[Feature, ...]] = features_of
READERS[Sequence[float]] = _slots
READERS[timedelta] = as_half_life
