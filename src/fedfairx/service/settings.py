"""Everything that can be set: one table, from which the command line's help and the documentation are made.

A value comes from the command line, else from the environment (`FEDFAIRX_PORT`), else from a TOML file,
else it is the default. What concerns the agent is kept in its database: later starts need not say it again,
and may not contradict it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedfairx.errors import InvalidInput, require
from fedfairx.service import setting_types as readers
from fedfairx.service.feature_table import Feature
from fedfairx.service.setting_types import Reader

PREFIX = "FEDFAIRX_"
CONFIG = "FEDFAIRX_CONFIG"
FILE = "agent.sqlite"
DECIDE_FROM = ("own+released", "released", "released+local")
PARTNERS = ("differ", "alike")
#: What the members of a federation have agreed on.
AGREED = frozenset(
    {"rule", "merit", "reward_range", "minimum_share", "epsilon", "delta", "releases", "person_records"}
)
RULES = ("expected-merit", "greedy", "thompson", "optimism")


def setting(default: Any, read: Reader, help: str) -> Any:
    return field(default=default, metadata={"read": read, "help": help})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What `fedfairx serve` can be told."""

    data: str = setting(
        "fedfairx-data", readers.text, "folder of the SQLite database; made if it is not there"
    )
    database: str = setting("", readers.text, "a PostgreSQL URL, instead of SQLite in the data folder")
    dimension: int = setting(
        0, readers.whole(0, 10_000), "numbers that describe an action; not needed with features"
    )
    actions: tuple[str, ...] = setting(
        (), readers.names, "names of actions that have no features, as ann,ben,cid; instead of dimension"
    )
    features: tuple[Feature, ...] = setting(
        (), readers.features, "names and ranges, as price=0:10,rating=1:5"
    )
    intercept: bool = setting(
        False, readers.switch, "add a constant, so that rewards need not be 0 where features are"
    )
    rule: str = setting("expected-merit", readers.choice(*RULES), "where shares come from")
    reward_range: tuple[float, float] | None = setting(
        None,
        readers.optional(readers.pair),
        "between which numbers rewards lie, as 1:5; sets the defaults of merit, prior and noise_sd",
    )
    merit: str = setting(
        "",
        readers.text,
        "what a reward is worth, as doubling:0.1; if not given, 7 % of the reward range doubles the share",
    )
    minimum_share: float = setting(0.0, readers.number(0.0, 1.0), "that every action gets in any case")
    name: str = setting("", readers.text, "what others know this agent by; random if not given")
    epsilon: float | None = setting(
        None, readers.optional(readers.number(0.0, above=True)), "makes its messages private; docs/privacy.md"
    )
    delta: float = setting(1e-6, readers.number(0.0, 1.0, above=True), "beside epsilon")
    releases: int = setting(100, readers.whole(1), "messages that epsilon and delta are for")
    decide_from: str = setting(
        "own+released",
        readers.choice(*DECIDE_FROM),
        "what a private agent decides from; released is the strict mode, whose privacy covers decisions too",
    )
    federation: str = setting("", readers.text, "its folder in a federation; docs/federation.md")
    partners: str = setting(
        "differ",
        readers.choice(*PARTNERS),
        "of a federation: whether others' parameters may differ from ours",
    )
    person_records: int | None = setting(
        None, readers.optional(readers.whole(1)), "of one person that enter, where a person is to be private"
    )
    window: float | None = setting(
        None,
        readers.optional(readers.number(0.0, above=True)),
        "seconds after which a reward is no longer waited for",
    )
    default_reward: float | None = setting(
        None,
        readers.optional(readers.number(-1e100, 1e100)),
        "learnt when the window is past; nothing if not given",
    )
    mode: str = setting(
        "live", readers.choice("live", "shadow"), "shadow: the caller's baseline is taken, ours noted"
    )
    control_share: float = setting(
        0.0, readers.number(0.0, 1.0), "share of live decisions that keep the baseline"
    )
    noise_sd: float | None = setting(
        None,
        readers.optional(readers.number(0.0, above=True)),
        "of rewards, at most, for exposure; if not given, half of the reward range, or 0.5",
    )
    tolerance: float = setting(
        0.2, readers.number(0.0, 0.99), "what counts as within: with 0.2, from 80 to 125 % of an entitlement"
    )
    exposure_decisions: int = setting(
        100_000, readers.whole(1), "the latest ones that a table of exposure is made from"
    )
    host: str = setting(
        "127.0.0.1", readers.text, "address to listen on; other than loopback needs a key first"
    )
    port: int = setting(8000, readers.whole(0, 65_535), "port to listen on; 0 takes any free one")
    tls_certificate: str = setting("", readers.text, "PEM file of the certificate chain")
    tls_key: str = setting("", readers.text, "PEM file of the certificate's private key")
    trusted_proxies: str = setting("", readers.text, "addresses whose X-Forwarded-* headers are believed")
    root_path: str = setting("", readers.text, "path under which a proxy shows the service")
    max_body: int = setting(4_194_304, readers.whole(1_024), "bytes of a request's body")
    max_header: int = setting(32_768, readers.whole(1_024), "bytes of a request's address and headers")
    max_connections: int = setting(
        800, readers.whole(1), "at once; more than that end those whose clients send nothing"
    )
    header_seconds: float = setting(
        10.0, readers.number(0.0, above=True), "that a client has for sending a request's header"
    )
    body_seconds: float = setting(60.0, readers.number(0.0, above=True), "and then for its body")
    max_actions: int = setting(1_000, readers.whole(1), "actions in a decision")
    max_batch: int = setting(1_000, readers.whole(1, 10_000), "decisions, rewards or withdrawals in a batch")
    max_waiting: int = setting(
        10_000, readers.whole(1), "requests that wait to be written, before others get 503"
    )
    shutdown_seconds: int = setting(
        10, readers.whole(0, 3_600), "that requests in flight have when it is stopped"
    )
    log_level: str = setting("info", readers.choice("debug", "info", "warning", "error"), "what is logged")
    given: frozenset[str] = frozenset()  # the names of those that were not left at their default


@dataclass(frozen=True)
class Setting:
    """A row of the table."""

    name: str
    default: Any
    help: str
    read: Reader

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.name.upper()}"

    @property
    def metavar(self) -> str:
        kind = type(self.default)
        return "BOOL" if kind is bool else "N" if kind in (int, float, type(None)) else "TEXT"

    @property
    def shown(self) -> str:
        """The default as one would write it."""
        if self.default in (None, "", ()):
            return ""
        return str(self.default).lower() if isinstance(self.default, bool) else str(self.default)


def table() -> list[Setting]:
    """All settings, in order."""
    return [
        Setting(one.name, one.default, one.metadata["help"], one.metadata["read"])
        for one in fields(Settings)
        if one.metadata
    ]


def markdown() -> str:
    """The table as the documentation shows it."""
    rows = ["| setting | default | |", "| --- | --- | --- |"]
    for one in table():
        rows.append(f"| `{one.name}` | {f'`{one.shown}`' if one.shown else ''} | {one.help} |")
    return "\n".join(rows)


def load(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    config: str | Path | None = None,
) -> Settings:
    """The settings from all three places; `flags` that are None were not given."""
    environment = os.environ if environment is None else environment
    config = config or environment.get(CONFIG) or _in_federation(flags or {}, environment)
    known = {one.name: one for one in table()}
    given: dict[str, object] = {}
    for source, values in (
        (f"in {config}", {} if config is None else _toml(Path(config))),
        ("in the environment", _environment(environment)),
        ("on the command line", {name: value for name, value in (flags or {}).items() if value is not None}),
    ):
        for name, value in values.items():
            if name not in known:
                raise InvalidInput(f"{name!r} {source} is no setting; `fedfairx serve --help` has them all")
            given[name] = known[name].read(name, value)
    return check(Settings(**given, given=frozenset(given)))  # type: ignore[arg-type]


def check(settings: Settings) -> Settings:
    """Settings that must fit each other."""
    agreed = AGREED & settings.given if settings.federation else ()
    if agreed:
        raise InvalidInput(f"{sorted(agreed)[0]} must be left out: the federation's roster says it")
    named = len(settings.features)
    fits = not named or settings.dimension in (0, named)
    require(fits, "dimension", f"must be that of the {named} features", settings.dimension)
    if settings.actions:
        for other in ("dimension", "features", "intercept"):
            if getattr(settings, other):
                raise InvalidInput(f"{other} must be left out beside actions, which have no features")
        if settings.federation:
            raise InvalidInput("actions must be left out: the members of a federation agree on features")
    most = settings.max_actions
    require(len(settings.actions) <= most, "actions", f"must be at most {most}", len(settings.actions))
    if "partners" in settings.given and not settings.federation:
        raise InvalidInput("partners must be left out: it is for a member of a federation")
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise InvalidInput("tls_certificate and tls_key must be given together")
    if settings.mode == "shadow" and settings.control_share:
        raise InvalidInput("control_share must be 0 in mode shadow, where the baseline is always taken")
    if settings.default_reward is not None and settings.window is None:
        raise InvalidInput("default_reward must come with a window, after which it is learnt")
    private = {"delta", "releases", "decide_from", "person_records"} & settings.given
    if private and settings.epsilon is None and not settings.federation:
        raise InvalidInput(f"epsilon must be given with {', '.join(sorted(private))}")
    if settings.database and not settings.database.startswith(("postgresql://", "postgres://")):
        raise InvalidInput("database must be a URL that begins with postgresql://")  # it may hold a password
    return settings


def place_of(settings: Settings) -> str:
    """Where the agent lives: a PostgreSQL address, or the file in the data folder."""
    return settings.database or str(Path(settings.data) / FILE)


def _toml(path: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config can't be read: {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"config must be TOML: {path}: {error}") from None
    if isinstance(values.get("federation"), dict):  # a member's own file, in its folder
        values["federation"] = str(path.parent)
        values["data"] = str(path.parent / str(values.get("data", "data")))
    return values


def _in_federation(flags: Mapping[str, object], environment: Mapping[str, str]) -> Path | None:
    """The file that comes with a folder in a federation, unless another is named."""
    folder = flags.get("federation") or environment.get(f"{PREFIX}FEDERATION")
    if not folder:
        return None
    from fedfairx.federation.setup.member_folder import SETTINGS  # not above: `--help` need not load an agent

    return Path(str(folder)) / SETTINGS


def _environment(environment: Mapping[str, str]) -> dict[str, object]:
    """What is set there; other variables with our prefix belong to other parts of fedfairx."""
    found = {one.name: environment.get(one.variable) for one in table()}
    return {name: value for name, value in found.items() if value is not None}
