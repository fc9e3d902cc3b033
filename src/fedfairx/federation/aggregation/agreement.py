"""How members agree on an epoch: the openers' keys, the operator's confirmations, the acceptances.

The convener's signature on a roster is not enough, since the convener may be the attacker. It could name
members and openers of its own, exchange keys, or sign two rosters of one version. These rules stop it:

- An opener's X25519 key is signed with its Ed25519 key for this federation, epoch and name.
- Nobody sends before holding the acceptance of the same `Epoch.digest` by every member. Members of the epoch
  before sign with their keys of that epoch, so that nobody else can accept under their names.
- The openers of the epoch before accept too, also those that leave. The digest covers the closings, so every
  opener knows the same end of the epoch before as the members who now send what was not shown in it.
- A member accepts one epoch after another, never two of one number, and sends and opens only in the last.
- Nobody accepts an epoch unless its operator has confirmed, by name, all openers and as many members as the
  claim needs: `honest` and the number that may collude. To confirm a member is to have compared its key or
  the roster's digest with its operator, by a way that the convener does not control.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from fedfairx.errors import InvalidInput, MessageRefused, PrivacyError, require
from fedfairx.federation.aggregation.epoch import Epoch, digest_of
from fedfairx.federation.aggregation.messages import Acceptance, OpenerKey, digest, parse, sign, verified
from fedfairx.federation.aggregation.records import CANNOT_CONTINUE, Accepted, Stores
from fedfairx.federation.aggregation.settlement import Settlement
from fedfairx.federation.aggregation.shares import KEY_BYTES, public_key_of
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey

# --- openers' keys ----------------------------------------------------------------------------------------


def opener_key(federation: str, number: int, *, key: SigningKey, stores: Stores) -> bytes:
    """The signed X25519 key of an opener for an epoch. The first call makes it, and later ones repeat it."""
    secret = stores.secret(federation, number)
    if secret is None:
        secret = secrets.token_bytes(KEY_BYTES)
        stores.keep_secret(federation, number, secret)
    return sign(OpenerKey(_signed_for(federation, number), stores.name, public_key_of(secret)), key)


def _signed_for(federation: str, number: int) -> bytes:
    return digest_of("opener key", federation, number)


def read_opener_key(roster: Roster, name: str, signed: bytes) -> bytes:
    """An opener's X25519 key of the roster's epoch, verified."""
    place, public = _signed_for(roster.federation, roster.version), roster.members[name]
    return verified(signed, OpenerKey, epoch=place, name=name, public=public).key


def epoch_of(
    roster: Roster,
    keys: Mapping[str, bytes],
    *,
    entries: int,
    rounds: int,
    honest: int | None = None,
    settlement: bytes = b"",
) -> Epoch:
    """The epoch of a roster, whose version is its number.

    keys: the signed key of each opener that the roster names.
    honest: by default all members but those that may collude, as is right for the first epoch.
    """
    rule = f"must be those of the roster's openers ({', '.join(roster.openers) or 'none'})"
    require({*keys} == {*roster.openers}, "keys", rule, sorted(keys))
    openers = {name: read_opener_key(roster, name, signed) for name, signed in keys.items()}
    return Epoch(
        federation=roster.federation,
        roster=roster.digest,
        number=roster.version,
        members=roster.members,
        openers=openers,
        honest=len(roster.members) - len(openers) + 1 if honest is None else honest,
        entries=entries,
        rounds=rounds,
        settlement=settlement,
    )


# --- acceptances ------------------------------------------------------------------------------------------


class Agreement:
    """One member's view of who has accepted an epoch; and its own acceptance.

    stores: those of a member of the epoch, or of an opener of the epoch before.
    settlement: that of the epoch before; None in the first epoch of a federation.
    rekeyed: members whose new key the operator has confirmed because the old one is lost.

    Guarantees:
    - An acceptance is durable before it is returned. No second epoch of its number is ever accepted.
    - `complete` only if everybody who must accept has signed this digest with the right key.
    """

    def __init__(
        self,
        epoch: Epoch,
        stores: Stores,
        *,
        settlement: Settlement | None = None,
        rekeyed: Collection[str] = (),
    ) -> None:
        if epoch.settlement != (b"" if settlement is None else settlement.digest):
            raise InvalidInput("settlement must be the one whose digest the epoch has")
        self.epoch, self.name, self.settlement, self.stores = epoch, stores.name, settlement, stores
        self._rekeyed, self._keys = frozenset(rekeyed), dict(epoch.members)
        if settlement is not None:
            before = settlement.epoch
            epoch.require_follows(before)
            self._keys |= {opener: before.members[opener] for opener in settlement.closings}
            self._keys |= {each: before.members[each] for each in epoch.members if each in before.members}
            self._keys |= {each: epoch.members[each] for each in self._rekeyed if each in epoch.members}
        if self.name not in self._keys:
            rule = "must be that of a member of the epoch or an opener of the one before"
            raise InvalidInput(f"name {rule}, got name={self.name!r}")
        self._accepted: dict[str, bytes] = {}  # signed, by name
        self.signed = b""  # our own acceptance

    def accept(self, key: SigningKey, *, confirmed: Collection[str] = ()) -> bytes:
        """Accept the epoch, durably, and return the signed acceptance. Nothing is sent in earlier ones now.

        key: the member's signing key of the epoch before, if it was a member then.
        confirmed: the members that the operator has confirmed by name. A continuing member keeps those that
            it confirmed in the epoch before.
        """
        if key.public != self._keys[self.name]:
            raise PrivacyError(
                f"the acceptance of {self.name!r} must be signed by its key of the epoch before"
            )
        history = self.stores.accepted(self.epoch.federation)
        if all(each.digest != self.epoch.digest for each in history):
            accepted = self._after(history, confirmed)
            if self.name in self.epoch.members:
                _require_confirmed(self.epoch, accepted.confirmed)
            history = *history, accepted
        self.stores.accept(self.epoch.federation, history)
        self.signed = sign(Acceptance(self.epoch.digest, self.name), key)
        self.take(self.signed)
        return self.signed

    def _after(self, history: tuple[Accepted, ...], confirmed: Collection[str]) -> Accepted:
        """The record of this epoch, if it may come after those that were accepted."""
        epoch, settlement, known = self.epoch, self.settlement, {*confirmed, self.name, *self._rekeyed}
        if history:
            least = history[-1].number
            rule = f"must be later than {least}, which was accepted; ask the convener for a later roster"
            require(epoch.number > least, "number", rule, epoch.number)
            if settlement is None:
                raise PrivacyError(f"epoch {epoch.number} must have the settlement of the epoch before it")
        for each in history:
            halted = self.stores.sent(each.digest).halted
            if halted:
                raise PrivacyError(halted)
        if settlement is None or self.name not in settlement.epoch.members:  # it joins
            if settlement is not None and self.name in epoch.members:
                _require_witness(epoch, settlement.epoch, known - {self.name})
            names = tuple(sorted(known & epoch.members.keys()))
            return Accepted(epoch.number, epoch.digest, b"", epoch.settlement, None, names)
        before = self._before(history, settlement)
        opened = self.stores.opened(before.digest)
        ours = settlement.closings.get(self.name)
        if ours is not None and (digest(ours) != digest(opened.closing) or settlement.last < opened.number):
            raise PrivacyError(
                f"the settlement of epoch {before.number} must have the closing of {self.name!r} and reach "
                f"round {opened.number}, which it has opened"
            )
        sent = self.stores.sent(before.digest)
        for number, row in settlement.named(self.name):
            if number > len(sent.digests) or sent.digests[number - 1] != row:
                raise PrivacyError(
                    f"{self.name!r} has no record of its row of round {number} that an opener names: after a "
                    f"restored backup {CANNOT_CONTINUE}; otherwise that opener is wrong: ask the convener to "
                    "remove that opener"
                )
        known |= {*before.confirmed}
        limit = None if settlement.missing else settlement.last
        names = tuple(sorted(known & epoch.members.keys()))
        return Accepted(epoch.number, epoch.digest, before.digest, settlement.digest, limit, names)

    def _before(self, history: tuple[Accepted, ...], settlement: Settlement) -> Accepted:
        """The record of the epoch before: the last, or the one before it if nothing was sent in the last."""
        for place, accepted in reversed([*enumerate(history)]):
            if accepted.digest == settlement.epoch.digest:
                skipped = history[place + 1 :]
                if any(self.stores.sent(each.digest).digests for each in skipped):
                    raise PrivacyError(
                        f"rows were sent after epoch {accepted.number}: it is not the one before"
                    )
                return accepted
        raise PrivacyError(
            f"{self.name!r} was in epoch {settlement.epoch.number} and has no record of it: {CANNOT_CONTINUE}"
        )

    def take(self, signed: bytes) -> None:
        """Take an acceptance, or raise `MessageRefused`."""
        name = parse(signed).name
        if name not in self._keys:
            raise MessageRefused("the sender of an acceptance is not in the roster", reason="unknown")
        verified(signed, Acceptance, epoch=self.epoch.digest, name=name, public=self._keys[name])
        self._accepted[name] = signed

    @property
    def missing(self) -> list[str]:
        """Those who have not accepted yet, as far as is known here."""
        return [name for name in self._keys if name not in self._accepted]

    @property
    def acceptances(self) -> list[bytes]:
        """All that have come, signed."""
        return [self._accepted[name] for name in sorted(self._accepted)]

    @property
    def complete(self) -> bool:
        """Whether everybody has accepted this epoch."""
        return not self.missing

    @property
    def current(self) -> bool:
        """Whether this is the last epoch that this member has accepted."""
        history = self.stores.accepted(self.epoch.federation)
        return bool(history) and history[-1].digest == self.epoch.digest

    def require_begun(self) -> None:
        """Refuse to send or open before all have accepted, and after a later epoch was accepted here."""
        if not self.current:
            raise PrivacyError(
                f"epoch {self.epoch.number} must be the last one that {self.name!r} has accepted"
            )
        if not self.complete:
            raise PrivacyError(
                f"epoch {self.epoch.number} must be accepted by {', '.join(self.missing)} first"
            )


def _require_witness(epoch: Epoch, before: Epoch, confirmed: Collection[str]) -> None:
    """Refuse an earlier epoch that no honest member must have seen: a convener could have made it up."""
    both = epoch.members.items() & before.members.items()
    known, least = sum(name in confirmed for name, _ in both), epoch.colluding + 1
    if known < least:
        raise PrivacyError(
            f"members of epoch {before.number} that stay and are confirmed by this member's operator must be "
            f"at least {least}, one more than may collude, got {known}"
        )


def _require_confirmed(epoch: Epoch, confirmed: Collection[str]) -> None:
    unknown = [name for name in epoch.openers if name not in confirmed]
    if unknown:
        raise PrivacyError(
            f"openers must be confirmed by this member's operator, got {', '.join(unknown)} unconfirmed"
        )
    least, known = epoch.honest + epoch.colluding, sum(name in confirmed for name in epoch.members)
    if known < least:
        raise PrivacyError(
            f"members confirmed by this member's operator must be at least {least} "
            f"({epoch.honest} honest, {epoch.colluding} colluding), got {known} of {len(epoch.members)}"
        )


def shown(stores: Stores, epoch: Epoch) -> int:
    """The last round of an epoch that counts as shown for this member; it may send later leaves again.

    It is what was sent, unless the member has gone on to an epoch that settles this one and knows how far it
    was opened. If it has accepted several such epochs, the largest of their answers counts. One that was away
    and joined again later counts all that it sent before.
    """
    sent = len(stores.sent(epoch.digest).digests)
    history = stores.accepted(epoch.federation)
    later = [each for each in history if each.number > epoch.number]
    limits = [each.limit for each in later if each.before == epoch.digest]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits) or any(not each.before for each in later):
        return sent
    return min(max(known), sent)
