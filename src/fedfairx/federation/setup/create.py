"""Create and amend the files of a federation, in one folder whose parts are then handed out.

    roster.json              members and terms; for everybody
    convener/                federation.key signs rosters, authority.key certificates; keep it offline
    hub/                     (with NATS) nats-server.conf, for its operator to change, and members.conf, which
                             it includes and which is made again whenever members change; the hub's
                             certificate, its operator's certificate (tls.crt) and settings, by which
                             `federate bucket` makes the bucket
                             (with Flower) the app, nodes' public keys, the certificate: for the SuperLink
    NAME/                    for each agent: roster.json, agent.key, its certificate (with Flower: its node's
                             key), its service's settings; with secure aggregation confirmed.json, once its
                             operator has confirmed members, and member.vault, once it runs

A private key never goes into another member's folder. A member may make its own signing key: for one whose
public key is given, the folder has no `agent.key`, and the member adds its own.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.federation.aggregation.messages import require_messages_fit
from fedfairx.federation.roster.certificates import (
    Identity,
    identity_of,
    new_authority,
    read_certificate,
    write_certificate,
)
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.member_folder import NOT_FLOWER, SETTINGS, MemberFolder, settings
from fedfairx.federation.transport.flower.files import make_hub, make_node
from fedfairx.federation.transport.nats_subjects import (
    HUB,
    inbox_of,
    news_of,
    rows_for,
    stream_of_bucket,
    subject_of,
)
from fedfairx.federation.transport.protocol import own_keys, require_name
from fedfairx.util.files import write_atomically

RESERVED = ("convener", HUB)
PORTS = {"nats": 4222, "flower": 9092}
TRANSPORTS = ("nats", "sqlite", "flower")
CONFIGURATION = "nats-server.conf"  # of the hub
MEMBERS = "members.conf"  # included by it


def create_federation(
    folder: str | os.PathLike[str],
    terms: Terms,
    agents: Mapping[str, str | None],
    *,
    hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    port: int | None = None,
    days: int = 825,
    transport: str = "nats",
    openers: Sequence[str] = (),
    confirm: bool | None = None,
) -> Roster:
    """Create all files of a new federation. `agents` maps names to public keys, or None to make a key.

    With transport "sqlite" all agents are on this machine, and there is no hub. With "flower" the hub is a
    SuperLink.

    openers: with secure aggregation, the members that open totals; by default the first ones.
    confirm: with secure aggregation, whether one operator has all folders, so that every member is confirmed
        in each of them. By default with "sqlite" only; elsewhere operators do that (`federate confirm`).
    """
    require(transport in TRANSPORTS, "transport", f"must be one of {', '.join(TRANSPORTS)}", transport)
    text = "must be left out without secure aggregation"
    require(terms.secure or not openers, "openers", text, ", ".join(openers))
    require(
        not terms.secure or transport != "flower", "transport", f"must be another: {NOT_FLOWER}", transport
    )
    base = Path(folder)
    if base.exists() and any(base.iterdir()):
        raise InvalidInput(f"out must be a new or an empty folder, got {base}, which is not empty")
    for name in agents:
        require_name(name)
        require(name not in RESERVED, "name", f"must not be one of {', '.join(RESERVED)}", name)
    convener = new_signing_key()
    signing_keys, members = _keys(agents)
    roster = create_roster(convener, terms, members, openers=openers)
    if transport == "nats":
        require_messages_fit(roster)
    (base / "convener").mkdir(mode=0o700, parents=True)
    convener.write(base / "convener" / "federation.key")
    address, authority = "", None
    if transport != "sqlite":
        address = f"{hosts[0]}:{port or PORTS[transport]}"
        authority = _make_hub(base, roster, hosts=hosts, days=days)
    if transport == "nats":
        address = f"tls://{address}"
        text = hub_configuration(roster, port=port or PORTS[transport])
        write_atomically(base / "hub" / CONFIGURATION, text)
        _make_agent(base, HUB, None, authority, roster, hub=(transport, address), days=days)
    elif transport == "flower":
        make_hub(base / "hub")
    for name in agents:
        _make_agent(
            base, name, signing_keys.get(name), authority, roster, hub=(transport, address), days=days
        )
    _spread(base, roster, (transport, address))
    _confirm(base, roster, transport == "sqlite" if confirm is None else confirm)
    return roster


def amend_federation(
    folder: str | os.PathLike[str],
    *,
    add: Mapping[str, str | None] | None = None,
    remove: Sequence[str] = (),
    rekey: Mapping[str, str | None] | None = None,
    days: int = 825,
    openers: Sequence[str] = (),
    begin: int | None = None,
    confirm: bool | None = None,
) -> Roster:
    """Sign and distribute the next version of the roster; a key of None is generated.

    openers, begin: with secure aggregation, as for `Roster.amended`; confirm: as for `create_federation`.
    """
    base = Path(folder)
    require_convener(base)
    before = Roster.read(base / "roster.json")
    convener = SigningKey.read(base / "convener" / "federation.key")
    hub = _hub_of(base, before)
    authority = None if hub[0] == "sqlite" else Identity.read(*authority_files(base))
    joining, changing = dict(add or {}), dict(rekey or {})
    for name in (*remove, *changing):
        fits = name in before.members
        require(fits, "name", f"must be one of the members {', '.join(before.members)}", name)
    for name in joining:
        fits = name not in (*before.members, *RESERVED) and _free(base / name, name, before)
        require(fits, "name", "must be a new one without a folder, or a former member's", name)
        if joining[name] is None and (base / name / "agent.key").exists():
            joining[name] = SigningKey.read(base / name / "agent.key").public  # it comes back
    signing_keys, keys = _keys(joining | changing)
    staying = {name: key for name, key in before.members.items() if name not in remove}
    roster = before.amended(convener, staying | keys, openers=openers, begin=begin)
    if hub[0] == "nats":
        require_messages_fit(roster)
    for name in joining:
        _make_agent(base, name, signing_keys.get(name), authority, roster, hub=hub, days=days)
    for name in changing:
        old = base / name / "agent.key"
        if old.exists():
            old.rename(base / name / f"agent.key.until-{before.version}")
        if name in signing_keys:
            signing_keys[name].write(old)
    _spread(base, roster, hub)
    _confirm(base, roster, hub[0] == "sqlite" if confirm is None else confirm)
    return roster


def require_convener(base: Path, *, signs: bool = True) -> None:
    """Refuse a folder that has no roster or, if it `signs` rosters, not the key for it."""
    for file in ("roster.json", "convener/federation.key") if signs else ("roster.json",):
        if not (base / file).exists():
            raise InvalidInput(f"folder must be the one that `federate init` made, with {file}, got {base}")


def _confirm(base: Path, roster: Roster, confirm: bool) -> None:
    """With secure aggregation, confirm every member in each folder that has its key.

    Others make their keys, and confirm, themselves.
    """
    for name in roster.members if roster.terms.secure and confirm else ():
        if (base / name / "agent.key").exists():
            MemberFolder.read(base / name).confirm(roster.members)


def _free(folder: Path, name: str, roster: Roster) -> bool:
    """Whether a member of this name may join: there is no such folder, or it is a former member's."""
    if not folder.exists():
        return True
    try:
        member = MemberFolder.read(folder)
    except (StateError, OSError):
        return False
    return member.name == name and member.roster.federation == roster.federation


def _keys(agents: Mapping[str, str | None]) -> tuple[dict[str, SigningKey], dict[str, str]]:
    """New signing keys for the agents that gave no public key, and the public keys of all."""
    signing_keys = {name: new_signing_key() for name, public in agents.items() if public is None}
    return signing_keys, {
        name: signing_keys[name].public if name in signing_keys else str(agents[name]) for name in agents
    }


def hub_configuration(roster: Roster, *, port: int = PORTS["nats"]) -> str:
    """Configuration of nats-server, which its operator may change; `hub_members` has who is admitted."""
    return f"""# The hub of federation {roster.federation}.
# Run it in this folder: nats-server -c {CONFIGURATION}
# Made once by `fedfairx federate init`: lines of your own stay. Who is admitted stands in {MEMBERS}.
listen: "0.0.0.0:{port}"
jetstream {{ store_dir: "jetstream" }}
max_payload: 1048576

tls {{
  cert_file: "hub.crt"
  key_file: "hub.key"
  ca_file: "authority.crt"
  verify_and_map: true  # nobody without a certificate; the address in it is the user's name
  timeout: 5
}}

include "{MEMBERS}"
"""


def hub_members(roster: Roster) -> str:
    """What the configuration of nats-server includes: one identity for each member, and its permissions."""
    users = ",\n".join(_user(name, roster) for name in (HUB, *roster.members))
    return f"""# The members of federation {roster.federation}, roster version {roster.version}.
# Made by `fedfairx federate` whenever members change. After that: nats-server --signal reload
authorization {{
  users: [
{users}
  ]
}}
"""


def _user(name: str, roster: Roster) -> str:
    """Permissions: a member writes its own keys and reads keys, with others' rows only on request.

    The hub's operator makes the buckets. Nobody makes consumers: the server would deliver their messages
    under any subject.
    """
    federation, secure = roster.federation, roster.terms.secure
    streams = [stream_of_bucket(federation, rows=rows) for rows in ((False, True) if secure else (False,))]
    verbs = ("INFO", "CREATE", "UPDATE") if name == HUB else ("INFO", "MSG.GET")
    own = own_keys(name, secure=roster.terms.secure)
    keys = [] if name == HUB else [subject_of(federation, key) for key in own]
    asked = [f"$JS.API.STREAM.{verb}.{stream}" for stream in streams for verb in verbs]
    publish = json.dumps([*keys, *asked])
    news = [news_of(federation, ">"), *([news_of(federation, rows_for(name), rows=True)] if secure else [])]
    subscribe = json.dumps([f"{inbox_of(name)}.>", *([] if name == HUB else news)])
    return (
        f"    {{ user: {json.dumps(identity_of(name, federation))}, permissions: {{\n"
        f"        publish: {publish},\n"
        f"        subscribe: {subscribe} }} }}"
    )


def _make_hub(base: Path, roster: Roster, *, hosts: Sequence[str], days: int) -> Identity:
    authority = new_authority(f"fedfairx {roster.federation}", days=2 * days)
    authority.write(*authority_files(base))
    (base / "hub").mkdir(mode=0o700)
    identity = authority.issue(hosts[0], days=days, hosts=hosts)
    identity.write(base / "hub" / "hub.crt", base / "hub" / "hub.key")
    shutil.copy(authority_files(base)[0], base / "hub")
    return authority


def authority_files(base: Path) -> tuple[Path, Path]:
    """The authority's certificate and key."""
    return base / "convener" / "authority.crt", base / "convener" / "authority.key"


def _make_agent(
    base: Path,
    name: str,
    key: SigningKey | None,
    authority: Identity | None,
    roster: Roster,
    *,
    hub: tuple[str, str],
    days: int,
) -> None:
    """Make what the folder lacks: a former member's has its settings, and keys that stay as they are."""
    folder, (transport, address) = base / name, hub
    folder.mkdir(mode=0o700, exist_ok=True)
    if key is not None:
        key.write(folder / "agent.key")
    if authority is not None:
        shutil.copy(authority_files(base)[0], folder)
    if transport == "flower":
        if not (folder / "node.key").exists():
            make_node(folder, base / "hub" / "nodes" / f"{name}.pub")
    elif authority is not None and (folder / "tls.crt").exists():
        renewed = authority.renew(read_certificate(folder / "tls.crt"), days=days)
        write_certificate(folder / "tls.crt", renewed)
    elif authority is not None:
        identity = authority.issue(name, days=days, email=identity_of(name, roster.federation))
        identity.write(folder / "tls.crt", folder / "tls.key")
    if (folder / SETTINGS).exists():
        return
    write_atomically(folder / SETTINGS, settings(roster, name, transport, address))


def _spread(base: Path, roster: Roster, hub: tuple[str, str]) -> None:
    """Write the roster into every member's folder, and who the hub admits."""
    if hub[0] == "nats":
        (base / "hub").mkdir(mode=0o700, exist_ok=True)  # it may have been handed out
        write_atomically(base / "hub" / MEMBERS, hub_members(roster))
    for name in (HUB, *roster.members):
        if (base / name / SETTINGS).exists():
            roster.write(base / name / "roster.json")
    roster.write(base / "roster.json")  # last: while it is the old one, the change can be made again


def _hub_of(base: Path, roster: Roster) -> tuple[str, str]:
    """Transport and address of the hub, from a member's settings."""
    for name in roster.members:
        if (base / name / SETTINGS).exists():
            return MemberFolder.read(base / name).hub
    raise StateError(f"{base} must hold at least one member's folder, which has the hub's address")
