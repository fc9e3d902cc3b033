"""`fedfairx federate`: make, change and check the files of a federation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedfairx.agent.schedules import Schedule
from fedfairx.cli.common import Output, add_parser, add_verb, print_json
from fedfairx.core.merit import Merit
from fedfairx.demo.federation import add_demo
from fedfairx.errors import InvalidInput

if TYPE_CHECKING:
    from fedfairx.federation.roster.terms import Terms


@dataclass(frozen=True, kw_only=True)
class Init:
    """Flags of `fedfairx federate init`.

    agents: the members' names; NAME=PUBLICKEY for one who has made its key itself (`fedfairx federate key`).
    out: a new folder.
    hub: names and addresses by which the hub is reached; members use the first.
    transport: sqlite is a file, for members that are all on this machine, without a hub; flower goes by
        SuperLink and SuperNodes.
    port: port of the hub (default: 4222, of a SuperLink 9092).
    days: days for which certificates are valid.
    dimension: d, numbers that describe an arm.
    horizon: rounds of each member.
    algorithm: see `fedfairx list algorithms`.
    schedule: such as geometric:ratio=1.2 (default: the algorithm's own).
    reward_range: between which numbers rewards lie, as 1:5; sets the defaults of merit, prior and bounds
        (default: not known; private sums clip rewards to -1:1).
    merit: such as doubling:0.1, where 0.1 better doubles the share (default: 7 % of the reward range does).
    epsilon: ε of a private algorithm.
    delta: δ of a private algorithm.
    mechanism: see `fedfairx list mechanisms`.
    context_norm: L, the norm that contexts are clipped to (default: 1; exact sums: 10).
    spare: records by which a member may be ahead of the schedule before others refuse it (default: horizon).
    """

    agents: tuple[str, ...]
    out: str = field(metadata={"metavar": "DIR"})
    hub: tuple[str, ...] = field(default=("localhost", "127.0.0.1"), metadata={"metavar": "HOST,…"})
    transport: Literal["nats", "sqlite", "flower"] = "nats"
    port: int | None = None
    days: int = 825
    dimension: int = 5
    horizon: int = 100_000
    algorithm: str = "priv-fairx-bayes"
    schedule: Schedule | None = None
    reward_range: tuple[float, float] | None = field(default=None, metadata={"metavar": "LOW:HIGH"})
    merit: Merit | None = None
    epsilon: float = 2.0
    delta: float = 1e-6
    mechanism: str = "blt"
    context_norm: float | None = None
    spare: int | None = None

    def terms(self, agents: int) -> Terms:
        from fedfairx.agent.algorithms import algorithm
        from fedfairx.federation.roster.terms import Terms

        terms = Terms(
            dimension=self.dimension,
            agents=agents,
            horizon=self.horizon,
            algorithm=self.algorithm,
            schedule=self.schedule,
            reward_range=self.reward_range,
            merit=self.merit,
            epsilon=self.epsilon if algorithm(self.algorithm).private else None,
            delta=self.delta,
            mechanism=self.mechanism,
            spare=self.spare,
        )
        if self.context_norm is None:
            return terms
        bounds = replace(terms.bounds, context_norm=self.context_norm)
        return replace(terms, options=replace(terms.options, bounds=bounds))


@dataclass(frozen=True, kw_only=True)
class Check(Output):
    """Flags of `fedfairx federate check`.

    folder: what `federate init` made, or one member's folder.
    """

    folder: str = field(default=".", metadata={"positional": True, "metavar": "DIR"})


@dataclass(frozen=True, kw_only=True)
class Amend:
    """Flags of `fedfairx federate amend`.

    folder: what `federate init` made, with convener/.
    add: who joins; NAME=PUBLICKEY for one who has made its key itself.
    remove: who leaves.
    rekey: who has a new key.
    days: days for which new certificates are valid.
    """

    folder: str = field(metadata={"positional": True, "metavar": "DIR"})
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    rekey: tuple[str, ...] = ()
    days: int = 825


@dataclass(frozen=True, kw_only=True)
class Key:
    """Flags of `fedfairx federate key`.

    out: a new file, readable by its owner alone.
    """

    out: str = field(metadata={"metavar": "FILE"})


def add(verbs: Any) -> None:
    add_parser(
        verbs,
        "federate",
        lambda _: 2,  # never called: each part has its own
        _add_parts,
        summary="Make, change and check the files of a federation of organisations; or try one. "
        "docs/howto/found-a-federation.md goes through it step by step.",
        example="""
            fedfairx federate init --agents org1,org2,org3 --out federation
            fedfairx federate check federation
            fedfairx federate amend federation --add org4 --remove org2
            fedfairx federate demo""",
    )


def _add_parts(parser: Any) -> None:
    parts = parser.add_subparsers(dest="part", metavar="WHAT", required=True, help="what to do")
    add_verb(
        parts,
        "init",
        init,
        Init,
        summary="Make roster, keys, certificates, the configuration of a NATS server, and members' settings.",
        example="""
            fedfairx federate init --agents org1,org2,org3 --out federation
            fedfairx federate init --agents org1=PUBLICKEY,org2 --dimension 8 --epsilon 1 \\
                --hub hub.example.org --out federation""",
    )
    add_verb(
        parts,
        "check",
        check,
        Check,
        summary="Verify roster, keys, certificates, permissions and settings of a federation or a member.",
        example="fedfairx federate check federation\nfedfairx federate check federation/org1",
    )
    add_verb(
        parts,
        "amend",
        change,
        Amend,
        summary="Make the next version of the roster: who joins, leaves, or has a new key.",
        example="""
            fedfairx federate amend federation --add org4 --remove org2
            fedfairx federate amend federation --rekey org1=PUBLICKEY""",
    )
    add_verb(
        parts,
        "key",
        key,
        Key,
        summary="Make a member's signing key where it is to be used, and print the public half.",
        example="fedfairx federate key --out agent.key",
    )
    add_demo(parts)


def init(args: Init) -> int:
    from fedfairx.federation.setup.create import create_federation

    agents = _named(args.agents)
    roster = create_federation(
        args.out,
        args.terms(len(agents)),
        agents,
        hosts=list(args.hub),
        port=args.port,
        days=args.days,
        transport=args.transport,
    )
    hubs = {
        "nats": "the hub, in that folder: nats-server -c nats-server.conf",
        "flower": "the SuperLink; docs/howto/flower.md has the commands",
    }
    hub = f"  {args.out}/hub: for whoever runs {hubs.get(args.transport)}\n"
    folders = ", ".join(f"{args.out}/{name}" for name in roster.members)
    print(
        f"federation {roster.federation}, {len(roster.members)} members, in {args.out}\n"
        f"  {folders}: one for each organisation, to be sent over a safe channel; *.key are secrets\n"
        f"{hub if args.transport in hubs else ''}"
        f"  {args.out}/convener: keep it offline; needed again only to change who is a member\n"
        "Tell every member the federation's id over another channel: its roster must have it."
    )
    for line in _expectations(roster.terms):
        print(line)
    return 0


def _expectations(terms: Terms) -> Iterator[str]:
    """What the default member is promised, and what it can expect to gain, where that was simulated."""
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy.guarantee import NARROWER

    chosen = terms.options.composed
    if chosen.private and chosen.decide_from != "released":
        yield f"Privacy: {NARROWER}"
    if chosen.name not in ("priv-fairx-bayes", "fed-fairx-bayes"):
        return
    asked: dict[str, Any] = {
        "members": terms.agents,
        "horizon": terms.horizon,
        "epsilon": terms.options.epsilon,
        "delta": terms.options.delta,
        "centred": terms.options.centring is not None,
    }
    gain, strict = expected_gain(**asked), expected_gain(**asked, decide_from="released")
    if gain is None:
        return
    yield gain.sentence
    if strict is not None and chosen.private:
        yield f'In the strict mode (decide_from="released"): {strict.difference}.'
    if gain.warning is not None:
        yield f"Warning: {gain.warning}."


def check(args: Check) -> int:
    from fedfairx.federation.setup.verify import inspect

    found = inspect(args.folder)
    if args.json:
        print_json([{"what": each.what, "fine": each.fine, "trouble": each.trouble} for each in found])
    else:
        for each in found:
            print(f"  ok     {each.what}" if each.fine else f"  WRONG  {each.what}\n         {each.trouble}")
    return 0 if all(each.fine for each in found) else 1


def change(args: Amend) -> int:
    from fedfairx.federation.setup.create import amend_federation

    if not (args.add or args.remove or args.rekey):
        raise InvalidInput("there is nothing to change: give --add, --remove or --rekey")
    roster = amend_federation(
        args.folder, add=_named(args.add), remove=list(args.remove), rekey=_named(args.rekey), days=args.days
    )
    hub = Path(args.folder, "hub")
    print(f"roster version {roster.version}: {', '.join(roster.members)}")
    print(f"  {args.folder}/roster.json: for every member")
    if (hub / "nats-server.conf").exists():
        print(f"  {hub}/nats-server.conf: for the hub, then: nats-server --signal reload")
    if (hub / "nodes").exists():
        print(f"  {hub}/nodes: for the SuperLink: flwr supernode register, and unregister for leavers")
    return 0


def key(args: Key) -> int:
    from fedfairx.federation.roster.signing_keys import new_signing_key

    made = new_signing_key()
    try:
        made.write(args.out)
    except OSError as error:
        raise InvalidInput(f"out must be a new file: {args.out}: {error.strerror}") from None
    print(made.public)
    return 0


def _named(given: Sequence[str]) -> dict[str, str | None]:
    """NAME or NAME=PUBLICKEY."""
    pairs = [part.partition("=") for part in given]
    named = {name: public or None for name, _, public in pairs}
    if len(named) != len(given):
        raise InvalidInput("agents must have different names")
    return named
