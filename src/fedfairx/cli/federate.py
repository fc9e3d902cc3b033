"""`fedfairx federate`: create, amend and check the files of a federation."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedfairx.agent.algorithms import algorithm
from fedfairx.agent.options import SECURE, Options
from fedfairx.cli.common import Output, Verb, print_help
from fedfairx.core.slates import ONE
from fedfairx.errors import InvalidInput, require
from fedfairx.features import Schema
from fedfairx.privacy import Bounds
from fedfairx.util.config import Setting, settings_of

if TYPE_CHECKING:
    from fedfairx.federation.roster.roster import Roster
    from fedfairx.federation.roster.rounds import Rounds
    from fedfairx.federation.roster.terms import Terms


#: What `init` takes of the description of actions, and of options.
ARMS = ("dimension", "features", "shared", "products")
AGREED = (
    *("algorithm", "schedule", "reward_range", "merit", "minimum_share", "slots", "epsilon", "delta"),
    *("mechanism", "aggregation", "colluding", "decide_from"),
)
DEFAULTS: dict[str, Any] = {"horizon": 100_000, "algorithm": "priv-fairx-bayes", "epsilon": 2.0}


@dataclass(frozen=True, kw_only=True)
class Init(Verb):
    """Create the roster, keys, certificates, the configuration of a NATS server, and the members' settings.

        fedfairx federate init --agents org1,org2,org3 --out federation
        fedfairx federate init --agents org1=PUBLICKEY,org2 --dimension 8 --epsilon 1 \\
            --hub hub.example.org --out federation

    agents: the members' names; NAME=PUBLICKEY for one that made its own key (`fedfairx federate key`).
    out: a new folder.
    hub: names and addresses of the hub; members use the first.
    transport: sqlite is a file, for members that are all on this machine, without a hub; flower uses a
        SuperLink and SuperNodes.
    port: port of the hub (default: 4222, of a SuperLink 9092).
    days: number of days for which certificates are valid.
    openers: with secure aggregation, the members that open totals, one more than may collude (default: the
        first ones).
    first_round: with secure aggregation, seconds from the beginning to the first round.
    round_ratio: of the time to a round and that to the one before; 1 for a round every first_round seconds.
    round_count: number of rounds; with the defaults they take most of a year.
    begin: when the time to the first round begins, in seconds since 1970 (default: now).
    """

    agents: tuple[str, ...]
    out: str = field(metadata={"metavar": "DIR"})
    hub: tuple[str, ...] = field(default=("localhost", "127.0.0.1"), metadata={"metavar": "HOST,…"})
    transport: Literal["nats", "sqlite", "flower"] = "nats"
    port: int | None = None
    days: int = 825
    openers: tuple[str, ...] = ()
    first_round: int = 3600
    round_ratio: float = 1.2
    round_count: int = 50
    begin: int | None = None

    @classmethod
    def others(cls) -> tuple[Setting, ...]:
        from fedfairx.federation.roster.terms import Terms
        from fedfairx.service.settings import Settings

        return (
            *settings_of(Settings, only=ARMS, defaults={"dimension": 5}),
            *settings_of(Terms, only=("horizon", "spare"), defaults=DEFAULTS | {"spare": "horizon"}),
            *settings_of(Options, only=AGREED, defaults=DEFAULTS),
            *settings_of(Bounds, only=("context_norm",), defaults={"context_norm": "1; exact sums: 10"}),
        )

    def terms(self, agents: int) -> Terms:
        from fedfairx.federation.roster.rounds import Rounds
        from fedfairx.federation.roster.terms import Terms

        values: dict[str, Any] = {**DEFAULTS, **self.options}
        features, shared, products, norm = (
            values.pop(name, None) for name in ("features", "shared", "products", "context_norm")
        )
        if values.get("aggregation") != SECURE:
            for name in ("first_round", "round_ratio", "round_count", "begin"):
                value, default = getattr(self, name), getattr(Init, name)
                option = f"--{name.replace('_', '-')}"
                require(value == default, option, f"is for --aggregation {SECURE}", value, "leave it out")
        else:
            rounds = values["rounds"] = Rounds(
                begin=int(time.time()) if self.begin is None else self.begin,
                first=self.first_round,
                ratio=self.round_ratio,
                count=self.round_count,
            )
            _require_to_come(rounds, self.begin)
        if not algorithm(values["algorithm"]).private and "epsilon" not in self.options:
            del values["epsilon"]
        if features:
            products = () if products == ("none",) else products
            values["schema"] = Schema(features, shared=shared or (), products=products)
        else:
            values.setdefault("dimension", 5)
        terms = Terms(agents=agents, **values)
        if norm is None:
            return terms
        bounds = replace(terms.bounds, context_norm=norm)
        return replace(terms, options=replace(terms.options, bounds=bounds))

    def run(self) -> int:
        from fedfairx.federation.setup.create import create_federation

        agents = _named(self.agents)
        roster = create_federation(
            self.out,
            self.terms(len(agents)),
            agents,
            hosts=self.hub,
            port=self.port,
            days=self.days,
            transport=self.transport,
            openers=self.openers,
        )
        hubs = {
            "nats": "the hub; run there: nats-server -c nats-server.conf, then: fedfairx federate bucket",
            "flower": "the SuperLink; docs/howto/flower.md has the commands",
        }
        hub = f"  {self.out}/hub: for whoever runs {hubs.get(self.transport)}\n"
        folders = ", ".join(f"{self.out}/{name}" for name in roster.members)
        print(
            f"federation {roster.federation}, {len(roster.members)} members, in {self.out}\n"
            f"  {folders}: one for each organisation; send it over a secure channel, *.key are secrets\n"
            f"{hub if self.transport in hubs else ''}"
            f"  {self.out}/convener: keep it offline; it is needed only to change the members\n"
            "Tell every member the federation's id over another channel: its roster must have it."
        )
        for line in (
            *_aggregation(roster, confirmed=self.transport == "sqlite"),
            *_expectations(roster.terms),
        ):
            print(line)
        return 0


def _aggregation(roster: Roster, *, confirmed: bool) -> Iterator[str]:
    """With secure aggregation, the claims side by side, the rounds, and what operators have to do."""
    terms = roster.terms
    if terms.share is None or terms.rounds is None:
        return
    share, rounds = replace(terms.share, members=len(roster.members)), roster.rounds or terms.rounds
    first, last = (datetime.fromtimestamp(rounds.times[k], UTC) for k in (0, -1))
    yield (
        f"Secure aggregation: {', '.join(roster.openers)} open totals, {rounds.count} of them, from "
        f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC. The noise of a total is "
        f"{1.0 / share.noise:.3g} times less than without."
    )
    for each in terms.budget(members=len(roster.members)).guarantee().against:
        yield f"  against {each.whom}: ε={each.epsilon:.4g}, μ={each.mu:.4g}"
    yield f"Roster digest: {roster.digest}"
    if confirmed:
        return
    if roster.version == 1:
        yield (
            "Operators tell each other this digest, and confirm the members whose operators have told them "
            "the same (fedfairx federate confirm). Nothing is sent before. Members stay confirmed."
        )
    else:
        yield (
            f"Every operator must confirm anew before epoch {roster.version} can begin: operators tell each "
            "other this digest, and `fedfairx federate confirm` says in each folder who is left to confirm. "
            "Members that were confirmed with the same key stay confirmed."
        )


def _expectations(terms: Terms) -> Iterator[str]:
    """The promise to the default member, and its expected gain where that was simulated."""
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy.guarantee import NARROWER

    chosen = terms.options.composed
    if chosen.private and chosen.decide_from != "released":
        yield f"Privacy: {NARROWER}"
    simulated = terms.bounds.slots == ONE  # gains were not simulated for several slots
    if chosen.name not in ("priv-fairx-bayes", "fed-fairx-bayes") or not simulated:
        return
    case: dict[str, Any] = {
        "members": terms.agents,
        "horizon": terms.horizon,
        "epsilon": terms.options.epsilon,
        "delta": terms.options.delta,
        "centred": terms.options.centring is not None,
        "share": terms.share,
    }
    if terms.secure:  # all members decide alike
        gain, strict = expected_gain(**case, decide_from=str(chosen.decide_from)), None
    else:
        gain, strict = expected_gain(**case), expected_gain(**case, decide_from="released")
    if gain is None:
        return
    yield gain.sentence
    if strict is not None and chosen.private:
        yield f'In the strict mode (decide_from="released"): {strict.difference}.'
    if gain.warning is not None:
        yield f"Warning: {gain.warning}."


@dataclass(frozen=True, kw_only=True)
class Check(Output):
    """Check the roster, keys, certificates, permissions and settings of a federation, a member or a hub.

        fedfairx federate check federation
        fedfairx federate check federation/org1

    For a member or a hub with NATS it also asks the hub for the bucket's settings. Of a member that has
    run it also looks into the database (that of `fedfairx serve --federation DIR`) and an opener's vault.

    folder: the folder that `federate init` made, or the folder of one member or of the hub.
    """

    folder: str = field(default=".", metadata={"positional": True, "metavar": "DIR"})

    def run(self) -> int:
        from fedfairx.federation.setup.verify import inspect
        from fedfairx.service.settings import load, place_of

        def places(member: Path) -> tuple[str, str]:
            settings = load({"federation": str(member)})
            return place_of(settings), settings.vault

        checks = inspect(self.folder, places=places)
        self.answer(
            [{"what": each.what, "fine": each.fine, "trouble": each.trouble} for each in checks],
            "\n".join(
                f"  ok     {each.what}" if each.fine else f"  WRONG  {each.what}\n         {each.trouble}"
                for each in checks
            ),
        )
        return 0 if all(each.fine for each in checks) else 1


@dataclass(frozen=True, kw_only=True)
class Amend(Verb):
    """Sign the next version of the roster, when members join, leave or change their keys. With secure
    aggregation it opens the next epoch, also with the same members: it says what that costs, and does it with
    --yes.

        fedfairx federate amend federation --add org4 --remove org2
        fedfairx federate amend federation --rekey org1=PUBLICKEY

    folder: the folder that `federate init` made, with convener/.
    add: members that join or come back; NAME=PUBLICKEY for one that made its own key.
    remove: members that leave.
    rekey: members that get a new key.
    days: number of days for which new certificates are valid.
    openers: with secure aggregation, the members that open totals (default: the same, and the first members
        in the place of those that leave).
    begin: with secure aggregation, when the new rounds begin, in seconds since 1970 (default: now).
    yes: with secure aggregation, open the next epoch.
    """

    folder: str = field(metadata={"positional": True, "metavar": "DIR"})
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    rekey: tuple[str, ...] = ()
    days: int = 825
    openers: tuple[str, ...] = ()
    begin: int | None = None
    yes: bool = False

    def run(self) -> int:
        from fedfairx.federation.roster.roster import Roster
        from fedfairx.federation.setup.create import MEMBERS, amend_federation, require_convener

        require_convener(Path(self.folder))
        before = Roster.read(Path(self.folder, "roster.json"))
        if before.terms.secure:
            if self.begin is not None and before.rounds is not None:
                _require_to_come(replace(before.rounds, begin=self.begin), self.begin)
            print(_next_epoch(before, self.remove))
            require(self.yes, "--yes", "must be given to open the next epoch", self.yes)
        else:
            if not (self.add or self.remove or self.rekey):
                raise InvalidInput("there is nothing to change: give --add, --remove or --rekey")
            for name in ("openers", "begin", "yes"):
                value = getattr(self, name)
                require(not value, f"--{name}", "is for secure aggregation", value, "leave it out")
        roster = amend_federation(
            self.folder,
            add=_named(self.add),
            rekey=_named(self.rekey),
            remove=self.remove,
            days=self.days,
            openers=self.openers,
            begin=self.begin,
        )
        hub = Path(self.folder, "hub")
        print(f"roster version {roster.version}: {', '.join(roster.members)}")
        print(f"  {self.folder}/roster.json: for every member")
        if (hub / MEMBERS).exists():
            print(f"  {hub / MEMBERS}: for the hub, then: nats-server --signal reload")
        if (hub / "nodes").exists():
            print(f"  {hub}/nodes: for the SuperLink: flwr supernode register, and unregister for leavers")
        for line in _aggregation(roster, confirmed=not hub.exists()):
            print(line)
        return 0


def _require_to_come(rounds: Rounds, begin: int | None) -> None:
    """Refuse rounds that are all over."""
    rule = "must be so late that the last round is still to come"
    require(rounds.times[-1] > time.time(), "--begin", rule, begin)


def _next_epoch(before: Roster, remove: Sequence[str]) -> str:
    """What the epoch after this roster's costs."""
    epochs = before.version + 1
    text = (
        f"This ends epoch {before.version} and opens epoch {epochs}, whose rounds begin again. Each epoch "
        f"has its own noise: if all of them have totals, members hold √{epochs} = {epochs**0.5:.3g} times "
        "the noise of one. A record is in one epoch, so μ for a record stays as it is. "
        f"Epoch {epochs} begins when all members have taken the roster and accepted it; until then totals of "
        f"epoch {before.version} go on, if all of its members are there."
    )
    if remove:
        text += (
            f" Delete the vault of {', '.join(remove)}. Records in rows that were sent and are in no total "
            "by then never get to the others."
        )
    return text


@dataclass(frozen=True, kw_only=True)
class Confirm(Verb):
    """With secure aggregation, confirm members whose operators have told you the digest of their roster, by a
    way that the convener does not control. Without --members it prints the digest of yours, and who is left.

        fedfairx federate confirm federation/org1
        fedfairx federate confirm federation/org1 --members org2,org3 --roster DIGEST

    folder: the folder of your member.
    members: the members whose operators have told you this digest.
    roster: the digest that they have told you.
    """

    folder: str = field(default=".", metadata={"positional": True, "metavar": "DIR"})
    members: tuple[str, ...] = ()
    roster: str = field(default="", metadata={"metavar": "DIGEST"})

    def run(self) -> int:
        from fedfairx.federation.setup.member_folder import MemberFolder

        place = MemberFolder.read(self.folder)
        secure = place.roster.terms.secure
        require(secure, "folder", "must be of a federation with secure aggregation", self.folder)
        if self.members:
            text = f"must be the digest of the roster here, {place.roster.digest}"
            same = self.roster.strip().lower() == place.roster.digest
            require(same, "--roster", text, self.roster, "somebody has another roster: ask the convener")
            place.confirm(self.members)
        print(f"roster digest: {place.roster.digest}")
        print(f"confirmed: {', '.join(place.confirmed_here()) or 'nobody'}")
        print(place.unconfirmed() or "these are enough: this member accepts the roster when it runs")
        return 0


@dataclass(frozen=True, kw_only=True)
class Renew(Verb):
    """Renew the certificates of the hub and of the members, for the keys that they have.

        fedfairx federate renew federation
        fedfairx federate renew federation --only org1

    folder: the folder that `federate init` made, with convener/.
    only: members to renew, or hub (default: all).
    days: number of days for which the new certificates are valid.
    """

    folder: str = field(default=".", metadata={"positional": True, "metavar": "DIR"})
    only: tuple[str, ...] = ()
    days: int = 825

    def run(self) -> int:
        from fedfairx.federation.setup.renew import renew_certificates

        require(self.days >= 1, "days", "must be >= 1", self.days)
        for name, files in renew_certificates(self.folder, only=self.only, days=self.days).items():
            reload = ", then: nats-server --signal reload" if name == "hub" else ""
            print(f"  {', '.join(map(str, files))}: for {name}{reload}")
        print("These files hold no secrets. A running service uses them at its next connection.")
        return 0


@dataclass(frozen=True, kw_only=True)
class Bucket(Verb):
    """Make the bucket of a federation at its NATS server, or correct its settings. Members can't do it.

        fedfairx federate bucket federation/hub
        fedfairx federate bucket federation/hub --replicas 3

    folder: the hub's folder, which `federate init` made.
    replicas: number of servers of a cluster that keep the bucket.
    """

    folder: str = field(default=".", metadata={"positional": True, "metavar": "DIR"})
    replicas: int = 1

    def run(self) -> int:
        from fedfairx.federation.setup.member_folder import MemberFolder
        from fedfairx.federation.transport.nats import make_bucket
        from fedfairx.federation.transport.nats_subjects import HUB

        require(1 <= self.replicas <= 5, "replicas", "must be from 1 to 5", self.replicas)
        hub = MemberFolder.read(self.folder)
        require(hub.name == HUB, "folder", "must be the hub's folder", self.folder)
        federation, rows = hub.roster.federation, hub.roster.terms.secure
        changed = make_bucket(
            hub.servers, federation=federation, tls=hub.tls, replicas=self.replicas, rows=rows
        )
        print(f"the bucket of federation {federation} {'is made' if changed else 'was there already'}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Key(Verb):
    """Make a member's signing key on the machine that will use it, and print the public key.

        fedfairx federate key --out agent.key

    out: a new file, readable by its owner only.
    """

    out: str = field(metadata={"metavar": "FILE"})

    def run(self) -> int:
        from fedfairx.federation.roster.signing_keys import new_signing_key

        key = new_signing_key()
        try:
            key.write(self.out)
        except OSError as error:
            raise InvalidInput(f"out must be a new file: {self.out}: {error.strerror}") from None
        print(key.public)
        return 0


@dataclass(frozen=True, kw_only=True)
class Federate(Verb):
    """Create, amend and check a federation of organisations.
    docs/howto/found-a-federation.md is a step-by-step guide.

        fedfairx federate init --agents org1,org2,org3 --out federation
        fedfairx federate check federation
        fedfairx federate amend federation --add org4 --remove org2
        fedfairx federate renew federation
    """

    @classmethod
    def fill(cls, parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(run=lambda _: print_help(parser))
        parts = parser.add_subparsers(dest="part", metavar="WHAT", help="what to do")
        for kind in (Init, Bucket, Check, Confirm, Amend, Renew, Key):
            kind.add_to(parts, kind.__name__.lower())


def _named(parts: Sequence[str]) -> dict[str, str | None]:
    """NAME or NAME=PUBLICKEY."""
    pairs = [part.partition("=") for part in parts]
    named = {name: public or None for name, _, public in pairs}
    if len(named) != len(parts):
        raise InvalidInput("agents must have different names")
    return named
