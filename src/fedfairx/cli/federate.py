"""`fedfairx federate`: the files of a federation, made, changed and checked."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfairx.cli.common import add_json, add_verb, as_merit, as_range, as_schedule, print_json
from fedfairx.demo.federation import add_demo
from fedfairx.errors import InvalidInput

if TYPE_CHECKING:
    from fedfairx.federation.roster.terms import Terms

SUMMARY = "make, change and check the files of a federation of organisations; or try one"


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "federate",
        run,
        summary=SUMMARY,
        details="docs/federation.md goes through it step by step.",
        example="""
            fedfairx federate init --agents org1,org2,org3 --out federation
            fedfairx federate check federation
            fedfairx federate amend federation --add org4 --remove org2
            fedfairx federate demo""",
    )
    parts = parser.add_subparsers(dest="part", metavar="WHAT", required=True, help="what to do")
    _add_init(parts)
    _add_check(parts)
    _add_amend(parts)
    _add_key(parts)
    add_demo(parts)


def run(args: argparse.Namespace) -> int:
    raise AssertionError(args.part)  # each part has its own


# --- init --------------------------------------------------------------------------------------------------


def _add_init(parts: Any) -> None:
    parser = add_verb(
        parts,
        "init",
        init,
        summary="make roster, keys, certificates, a NATS server's configuration and settings for each agent",
        example="""
            fedfairx federate init --agents org1,org2,org3 --out federation
            fedfairx federate init --agents org1=PUBLICKEY,org2 --dimension 8 --epsilon 1 \\
                --hub hub.example.org --out federation""",
    )
    parser.add_argument(
        "--agents",
        required=True,
        metavar="NAME,…",
        help="names; NAME=PUBLICKEY for one who has made its key itself (`fedfairx federate key`)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--hub",
        default="localhost,127.0.0.1",
        metavar="HOST,…",
        help="names and addresses that the hub is reached by, the first by agents (default: this machine)",
    )
    parser.add_argument(
        "--transport",
        default="nats",
        choices=("nats", "sqlite", "flower"),
        help="sqlite: a file, for agents that are all on this machine; no hub. flower: by SuperLink and "
        "SuperNodes (default: nats)",
    )
    parser.add_argument("--port", type=int, help="of the hub (default: 4222, of a SuperLink 9092)")
    parser.add_argument("--days", type=int, default=825, help="that certificates are valid (default: 825)")
    parser.add_argument("--dimension", type=int, default=5, help="d (default: 5)")
    parser.add_argument("--horizon", type=int, default=100_000, help="rounds of each agent (default: 100000)")
    parser.add_argument("--algorithm", default="priv-fairx-bayes", help="default: priv-fairx-bayes")
    parser.add_argument("--schedule", help='such as "geometric:ratio=1.2" (default: the algorithm\'s own)')
    parser.add_argument(
        "--reward-range",
        metavar="LOW:HIGH",
        help="between which numbers rewards lie, as 1:5; sets the defaults of merit, prior and bounds "
        "(default: not known; private sums clip rewards to -1:1)",
    )
    parser.add_argument(
        "--merit",
        help='such as "doubling:0.1": 0.1 better doubles the share (default: 7 %% of the reward range does)',
    )
    parser.add_argument("--epsilon", type=float, default=2.0, help="of a private algorithm (default: 2)")
    parser.add_argument("--delta", type=float, default=1e-6, help="default: 1e-6")
    parser.add_argument("--mechanism", default="blt", help="see `fedfairx list mechanisms` (default: blt)")
    parser.add_argument(
        "--context-norm", type=float, help="L, that contexts are clipped to (default: 1; exact sums: 10)"
    )
    parser.add_argument(
        "--spare",
        type=int,
        help="records that an agent may be ahead of the schedule, before others refuse it (default: horizon)",
    )


def init(args: argparse.Namespace) -> int:
    from fedfairx.federation.setup.create import found

    agents = _named(_split(args.agents))
    roster = found(
        args.out,
        _terms(args, len(agents)),
        agents,
        hosts=_split(args.hub),
        port=args.port,
        days=args.days,
        transport=args.transport,
    )
    hubs = {
        "nats": "the hub, in that folder: nats-server -c nats-server.conf",
        "flower": "the SuperLink; docs/federation.md has the commands",
    }
    hub = f"  {args.out}/hub: for whoever runs {hubs.get(args.transport)}\n"
    folders = ", ".join(f"{args.out}/{name}" for name in roster.members)
    print(
        f"federation {roster.federation}, {len(roster.members)} agents, in {args.out}\n"
        f"  {folders}: one for each organisation, by a safe way; *.key are secrets\n"
        f"{hub if args.transport in hubs else ''}"
        f"  {args.out}/convener: offline; needed again only to change who is in\n"
        "Tell every member the federation's id by another way: its roster must have it."
    )
    for line in _expectations(roster.terms):
        print(line)
    return 0


def _expectations(terms: Terms) -> Iterator[str]:
    """What the default member is promised, and what it can expect to gain, where that was simulated."""
    from fedfairx.agent.algorithms import algorithm
    from fedfairx.federation.setup.joining_gain import expected_gain
    from fedfairx.privacy.guarantee import NARROWER

    chosen = algorithm(terms.algorithm)
    if chosen.private and chosen.decide_from != "released":
        yield f"Privacy: {NARROWER}"
    if chosen.name not in ("priv-fairx-bayes", "fed-fairx-bayes"):
        return
    asked: dict[str, Any] = {
        "members": terms.agents,
        "horizon": terms.horizon,
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "centred": terms.centring is not None,
    }
    gain, strict = expected_gain(**asked), expected_gain(**asked, decide_from="released")
    if gain is None:
        return
    yield gain.sentence
    if strict is not None and chosen.private:
        yield f'In the strict mode (decide_from="released"): {strict.difference}.'
    if gain.warning is not None:
        yield f"Warning: {gain.warning}."


def _terms(args: argparse.Namespace, agents: int) -> Terms:
    from fedfairx.agent.algorithms import algorithm
    from fedfairx.federation.roster.terms import Terms

    terms = Terms(
        dimension=args.dimension,
        agents=agents,
        horizon=args.horizon,
        algorithm=args.algorithm,
        schedule=None if args.schedule is None else as_schedule(args.schedule),
        reward_range=None if args.reward_range is None else as_range(args.reward_range),
        merit=None if args.merit is None else as_merit(args.merit),  # type: ignore[arg-type]
        epsilon=args.epsilon if algorithm(args.algorithm).private else None,
        delta=args.delta,
        mechanism=args.mechanism,
        spare=args.spare,
    )
    if args.context_norm is None:
        return terms
    return replace(terms, bounds=replace(terms.bounds, context_norm=args.context_norm))


# --- check -------------------------------------------------------------------------------------------------


def _add_check(parts: Any) -> None:
    parser = add_verb(
        parts,
        "check",
        check,
        summary="verify roster, keys, certificates, permissions and settings of a federation or of one agent",
        example="fedfairx federate check federation\nfedfairx federate check federation/org1",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        default=".",
        help="what `federate init` made, or one agent's folder (default: here)",
    )
    add_json(parser)


def check(args: argparse.Namespace) -> int:
    from fedfairx.federation.setup.verify import inspect

    found = inspect(args.folder)
    if args.json:
        print_json([{"what": each.what, "fine": each.fine, "trouble": each.trouble} for each in found])
    else:
        for each in found:
            print(f"  ok     {each.what}" if each.fine else f"  WRONG  {each.what}\n         {each.trouble}")
    return 0 if all(each.fine for each in found) else 1


# --- amend, key --------------------------------------------------------------------------------------------


def _add_amend(parts: Any) -> None:
    parser = add_verb(
        parts,
        "amend",
        change,
        summary="make the next version of the roster: who joins, leaves, or has a new key",
        example="""
            fedfairx federate amend federation --add org4 --remove org2
            fedfairx federate amend federation --rekey org1=PUBLICKEY""",
    )
    parser.add_argument("folder", metavar="DIR", help="what `federate init` made, with convener/")
    for name, text in (("add", "joins"), ("remove", "leaves"), ("rekey", "has a new key")):
        parser.add_argument(f"--{name}", action="append", default=[], metavar="NAME", help=f"who {text}")
    parser.add_argument(
        "--days", type=int, default=825, help="that new certificates are valid (default: 825)"
    )


def change(args: argparse.Namespace) -> int:
    from fedfairx.federation.setup.create import amend

    if not (args.add or args.remove or args.rekey):
        raise InvalidInput("nothing is to be changed: give --add, --remove or --rekey")
    roster = amend(
        args.folder, add=_named(args.add), remove=args.remove, rekey=_named(args.rekey), days=args.days
    )
    hub = Path(args.folder, "hub")
    print(f"roster version {roster.version}: {', '.join(roster.members)}")
    print(f"  {args.folder}/roster.json: for every member")
    if (hub / "nats-server.conf").exists():
        print(f"  {hub}/nats-server.conf: for the hub, then: nats-server --signal reload")
    if (hub / "nodes").exists():
        print(f"  {hub}/nodes: for the SuperLink: flwr supernode register, and unregister for who has left")
    return 0


def _add_key(parts: Any) -> None:
    parser = add_verb(
        parts,
        "key",
        key,
        summary="make an agent's signing key where it is to be used, and print the public half",
        example="fedfairx federate key --out agent.key",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="a new file, for its owner alone")


def key(args: argparse.Namespace) -> int:
    from fedfairx.federation.roster.signing_keys import new_signing_key

    made = new_signing_key()
    try:
        made.write(args.out)
    except OSError as error:
        raise InvalidInput(f"out must be a new file: {args.out}: {error.strerror}") from None
    print(made.public)
    return 0


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _named(given: Sequence[str]) -> dict[str, str | None]:
    """NAME or NAME=PUBLICKEY."""
    pairs = [part.partition("=") for part in given]
    named = {name: public or None for name, _, public in pairs}
    if len(named) != len(given):
        raise InvalidInput("agents must have different names")
    return named
