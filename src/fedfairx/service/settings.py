"""The settings of a service; the help of the command line and the documentation are made from them.

A value comes from the command line, else from the environment (`FEDFAIRX_PORT`), else from a TOML file,
else it is the default. Settings of the agent are stored in its database: later starts need not repeat them,
and may not contradict them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from fedfairx.agent.half_life import UNITS, as_half_life
from fedfairx.agent.options import Expiry, Options, SharedOptions
from fedfairx.agent.reward_limits import check_order
from fedfairx.core.partners import DIFFER
from fedfairx.core.rules import RULES
from fedfairx.errors import InvalidInput, require
from fedfairx.features import Feature, Schema, features_of
from fedfairx.privacy.budget import Budget
from fedfairx.privacy.guarantee import DECIDE_FROM
from fedfairx.storage.open_log import FILE
from fedfairx.util.config import (
    COUNT,
    LONGEST,
    NAME,
    NONE,
    NUMBER,
    POSITIVE,
    READERS,
    SHARE,
    Limits,
    Scope,
    Setting,
    ends,
    explained,
    option,
    read_toml,
    settings_of,
    with_default,
)

AGENT, AGREED, MEMBER, RUNNING, PROCESS = Scope
PREFIX = "FEDFAIRX_"
CONFIG = "FEDFAIRX_CONFIG"
WIDEST = 400  # numbers that describe an action: beyond, one reward makes all agents wait for more than 0.1 s
BYTES = Limits(ge=1_024, le=2**53)
PAIR = Limits(min_length=1, max_length=2 * LONGEST + 1)
_Text = Annotated[str, Meta(**ends(str, NAME))]
_Number = Annotated[float, Meta(**ends(float, NUMBER))]
#: The range of a number, the levels of a category, or "bool".
_Kind = Annotated[list[_Number | _Text], Meta(min_length=1)] | Literal["bool"]
READERS[tuple[Feature, ...]] = features_of, ((Annotated[dict[str, _Kind], Meta(min_length=1)], NONE),)


@dataclass(frozen=True, kw_only=True)
class Settings(SharedOptions, Expiry):
    """All settings of `fedfairx serve`; `Options` and `Expiry` explain those that they have too.

    data: folder of the SQLite database; made if it does not exist.
    database: a PostgreSQL URL, instead of SQLite in the data folder.
    wait: wait while another process has the database, instead of ending; docs/howto/run-a-standby.md.
    dimension: numbers that describe an action, where features have no names.
    actions: names of actions, each judged by its own rewards and, beside dimension or features, by these.
    features: what describes an action: numbers with ranges, categories and booleans.
    shared: names of the features that all actions of a decision share, and that a request has once.
    products: pairs of features that are multiplied, each like price:city; none for none of them (default:
        each shared feature with each other one).
    intercept: add a constant, so that rewards need not be 0 where features are; without it, adding the same
        number to all rewards changes shares. Named actions need none.
    name: this agent's name among the members of a federation; random if not given.
    releases: number of releases that epsilon and delta are for.
    federation: the folder of a member of a federation; docs/howto/found-a-federation.md.
    vault: folder of the member's vault with secure aggregation, which belongs into no backup; if not given,
        it is beside the member's key. docs/howto/use-secure-aggregation.md.
    person_records: records of one person that enter, where a person is to be private.
    keep: how long contexts of decisions are kept, as 400d; all are, if not given. docs/howto/delete-data.md.
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

    rule: str | None = with_default(SharedOptions, "rule", RULES[0])
    decide_from: str | None = with_default(SharedOptions, "decide_from", DECIDE_FROM[0])
    partners: str = with_default(SharedOptions, "partners", DIFFER)
    data: str = "fedfairx-data"
    database: str = ""
    wait: bool = False
    dimension: int | None = option(None, AGENT, Limits(ge=1, le=WIDEST))
    actions: tuple[str, ...] = option((), AGENT, NAME._replace(min_items=1), like="ann,ben,cid")
    features: tuple[Feature, ...] = option(
        (), AGENT, like="price=0:10,city=Rome|Oslo,new=bool", metavar="NAME=LOW:HIGH|A|B|bool,…"
    )
    shared: tuple[str, ...] = option((), AGENT, NAME)
    products: tuple[str, ...] | None = option(None, AGENT, PAIR, metavar="NAME:NAME,…")
    intercept: bool | None = option(None, AGENT, unset="yes")
    name: str = ""
    releases: int = with_default(Budget, "releases", 100)
    federation: str = ""
    vault: str = ""
    person_records: int | None = with_default(Budget, "person_records", None)
    keep: str = option("", metavar="TIME")
    mode: Literal["live", "shadow"] = option("live", RUNNING)
    control_share: float = option(0.0, RUNNING, SHARE)
    noise_sd: float | None = option(None, RUNNING, POSITIVE)
    tolerance: float = option(0.2, RUNNING, Limits(ge=0, le=0.99))
    exposure_decisions: int = option(100_000, RUNNING, COUNT)
    host: str = "127.0.0.1"
    port: int = option(8000, PROCESS, Limits(ge=0, le=65_535))
    tls_certificate: str = ""
    tls_key: str = ""
    trusted_proxies: str = ""
    root_path: str = ""
    max_body: int = option(4_194_304, PROCESS, BYTES)
    max_header: int = option(32_768, PROCESS, BYTES)
    max_connections: int = option(800, PROCESS, COUNT)
    header_seconds: float = option(10.0, PROCESS, POSITIVE)
    body_seconds: float = option(60.0, PROCESS, POSITIVE)
    max_actions: int = option(1_000, PROCESS, COUNT)
    max_batch: int = option(1_000, PROCESS, Limits(ge=1, le=10_000))
    max_batch_work: int = option(2_000_000, PROCESS, COUNT)
    max_waiting: int = option(10_000, PROCESS, COUNT)
    max_open: int = option(100, PROCESS, COUNT)
    idle_seconds: float = option(600.0, PROCESS, POSITIVE)
    federations: tuple[str, ...] = option((), metavar="DIR,…")
    shutdown_seconds: int = option(10, PROCESS, Limits(ge=0, le=3_600))
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_requests: bool = False
    given: frozenset[str] = frozenset()  # the names of settings that were not left at their default


@cache
def table() -> tuple[Setting, ...]:
    """All settings, by their scope."""
    settings = settings_of(Settings, texts=explained(Options))
    return tuple(each for scope in Scope for each in settings if each.scope is scope)


def names_of(*scopes: Scope) -> frozenset[str]:
    """The settings of these scopes."""
    return frozenset(each.name for each in table() if each.scope in scopes)


#: Settings of one agent; all others are the service's.
OF_AGENT = names_of(*Scope) - names_of(PROCESS)
#: Those of them that may change later: how an agent is run and measured, not what it has learnt by.
OF_RUNNING = names_of(RUNNING)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config: str | Path | None = None,
) -> Settings:
    """Read the settings from all three sources; `flags` that are None were not given."""
    environment, flags = os.environ if environment is None else environment, flags or {}
    config = config or environment.get(CONFIG) or _in_federation(flags, environment)
    settings = {one.name: one for one in table()}
    variables = {
        f"{PREFIX}{name.upper()}": name for name in settings
    }  # other variables with this prefix are ignored
    values: dict[str, Any] = {}
    for name, value, source in (
        *((name, value, str(config)) for name, value in (_toml(Path(config)) if config else {}).items()),
        *((variables[key], value, key) for key, value in environment.items() if key in variables),
        *((name, value, f"--{name.replace('_', '-')}") for name, value in flags.items() if value is not None),
    ):
        if name not in settings:
            raise InvalidInput(f"{name} is not a setting ({source}); `fedfairx serve --help` lists them all")
        values[name] = settings[name].read(value, source, text=source != str(config))
    return check(Settings(**values, given=frozenset(values)))


def for_agent(service: Settings, name: str, values: Mapping[str, Any], *, federation: str = "") -> Settings:
    """The settings of an agent that a request makes: its own, and those of the service, with its window.

    values: by the names in `OF_AGENT`, as a TOML file would have them.
    """
    settings = {one.name: one for one in table() if one.name in OF_AGENT}
    own = {key: settings[key].read(value, "in the body") for key, value in values.items()}
    shared = {item.name: getattr(service, item.name) for item in fields(Settings)}
    shared = {key: value for key, value in shared.items() if key not in OF_AGENT}
    if service.window is not None:
        own.setdefault("window", service.window)
    shared |= {"name": name, "federation": federation, "given": frozenset({*own, "name"})}
    return check(Settings(**shared | own))


def check(settings: Settings) -> Settings:
    """Check settings against each other."""
    agreed = names_of(AGREED) & settings.given if settings.federation else ()
    if agreed:
        raise InvalidInput(f"{sorted(agreed)[0]} must be left out: the federation's roster states it")
    if settings.federation and settings.person_records is not None:
        raise InvalidInput(
            "person_records must be left out: a federation's terms have no bound on a person's records"
        )
    check_order(settings.reward_range)
    named = len(settings.features)
    same = not named or settings.dimension in (None, named)
    require(same, "dimension", f"must be that of the {named} features", settings.dimension)
    if named:
        schema_of(settings)
    if settings.actions:
        for other in ("shared", "intercept") if not (settings.dimension or named) else ():
            if getattr(settings, other):
                raise InvalidInput(f"{other} must be left out where actions have names alone")
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
