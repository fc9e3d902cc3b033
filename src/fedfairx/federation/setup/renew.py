"""Renew the certificates of a federation, in the folder that has the convener's keys.

A new certificate is for the key and the names of the old one, so no private key has to be sent, and a member
has to replace one file. The authority's certificate is renewed when the new ones would outlive it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.federation.roster.certificates import (
    Identity,
    identity_of,
    read_certificate,
    require_email,
    write_certificate,
)
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.setup.create import authority_files, require_convener
from fedfairx.federation.transport.nats_subjects import HUB


def renew_certificates(
    folder: str | os.PathLike[str], *, only: Sequence[str] = (), days: int = 825
) -> dict[str, list[Path]]:
    """Renew the certificates of the hub and of the members, or of `only` some; the new files, by owner."""
    base = Path(folder)
    require_convener(base, signs=False)
    roster = Roster.read(base / "roster.json")
    if not authority_files(base)[0].exists():
        raise InvalidInput(f"folder must have convener/authority.crt, got {base}: it has no certificates")
    for name in only:
        fits = name in (HUB, *roster.members)
        require(fits, "only", f"must be of {', '.join((HUB, *roster.members))}", name)
    authority = Identity.read(*authority_files(base))
    paths = _certificates(base, roster, only or (HUB, *roster.members))
    written: dict[str, list[Path]] = {}
    if authority.certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=days):
        own = authority.renew(authority.certificate, days=2 * days)
        authority = Identity(own, authority.key)
        for path in sorted(base.glob("*/authority.crt")):
            write_certificate(path, own)
            written.setdefault(path.parent.name, []).append(path)
    for path in paths:
        write_certificate(path, authority.renew(read_certificate(path), days=days))
        written.setdefault(path.parent.name, []).append(path)
    return written


def _certificates(base: Path, roster: Roster, names: Sequence[str]) -> list[Path]:
    """The certificates to renew, each of which must be its owner's."""
    nats = not (base / HUB / "nodes").exists()  # with Flower, members have none
    paths = [base / HUB / "hub.crt"] if HUB in names else []
    paths += [base / name / "tls.crt" for name in names if nats]
    for path in paths:
        if not path.exists():
            raise StateError(f"{path} is missing: ask for it, it holds no secret, or leave it out (--only)")
        if path.name == "tls.crt":
            try:
                require_email(read_certificate(path), identity_of(path.parent.name, roster.federation))
            except StateError as error:
                raise StateError(f"{path} can't be renewed: {error}") from None
    return paths
