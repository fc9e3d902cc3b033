"""Public keys under which anybody can sign: all of them, by arithmetic of their own."""

from __future__ import annotations

import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedfairx.errors import InvalidInput, StateError
from fedfairx.federation.roster.roster import Roster, create_roster, federation_id
from fedfairx.federation.roster.signing_keys import SMALL_ORDER, new_signing_key, signed_by
from fedfairx.util.canonical_json import canonical
from member_helpers import terms, world

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P  # -x² + y² = 1 + d x² y²
ROOT = pow(2, (P - 1) // 4, P)  # of -1

Point = tuple[int, int]


def x_of(y: int) -> int | None:
    """The even x of a point, by RFC 8032, 5.1.3; None where no point has this y."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    for root in (x, x * ROOT % P):
        if root * root % P == square:
            return min(root, -root % P, key=lambda each: each % 2)
    return None


def added(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    product = D * x1 * x2 * y1 * y2
    return (
        (x1 * y2 + x2 * y1) * pow(1 + product, -1, P) % P,
        (y1 * y2 + x1 * x2) * pow(1 - product, -1, P) % P,
    )


def eightfold(point: Point) -> Point:
    for _ in range(3):
        point = added(point, point)
    return point


def small_order_points() -> set[Point]:
    """All eight: every point times the large order of the curve is one of them."""
    large = 2**252 + 27742317777372353535851937790883648493
    found: set[Point] = set()
    y = 2
    while len(found) < 8:
        x = x_of(y)
        if x is not None:
            total, power, times = (0, 1), (x, y), large
            while times:
                total = added(total, power) if times & 1 else total
                power, times = added(power, power), times >> 1
            point = (0, 1)
            for _ in range(8):
                found.add(point)
                point = added(point, total)
        y += 1
    return found


def test_the_list_has_every_encoding_of_every_point_of_small_order() -> None:
    points = small_order_points()
    assert len(points) == 8
    assert all(eightfold(point) == (0, 1) for point in points)
    written = {
        (high | sign << 255).to_bytes(32, "little").hex()
        for y in {y for _, y in points}
        for high in range(y, 2**255, P)  # y, and y + p where 255 bits hold it
        for sign in (0, 1)
    }
    assert written == SMALL_ORDER
    assert len(written) == 14


def forged(public: str, message: bytes) -> bytes | None:
    """A signature that the library takes for one of `public`, made without any private key."""
    for point in SMALL_ORDER:
        signature = bytes.fromhex(point) + bytes(32)
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, message)
        except InvalidSignature:
            continue
        return signature
    return None


@pytest.mark.parametrize("public", sorted(SMALL_ORDER))
def test_what_the_library_would_take_for_signed_is_not(public: str) -> None:
    messages = [b"release %d" % number for number in range(64)]
    made = {message: forged(public, message) for message in messages}
    assert any(made.values())  # so it must be refused by us
    for message, signature in made.items():
        assert signature is None or not signed_by(public, message, signature)


@pytest.mark.parametrize("public", sorted(SMALL_ORDER))
def test_no_member_and_no_convener_has_such_a_key(public: str) -> None:
    with pytest.raises(InvalidInput, match=r"key of 'org2' must not be of small order.*federate key"):
        create_roster(new_signing_key(), terms(), {"org1": new_signing_key().public, "org2": public})
    here = world()
    document = json.loads(here.roster.to_json())
    document["roster"]["members"]["org2"] = public
    signed = here.convener.sign(b"fedfairx roster 1\n" + canonical(document["roster"]))
    with pytest.raises(StateError, match="key of 'org2' must not be of small order"):
        Roster.from_json(json.dumps(document | {"signature": signed.hex()}))
    body = json.loads(here.roster.to_json())["roster"] | {"convener": public}
    body["federation"] = federation_id(public, body["nonce"])
    with pytest.raises(StateError, match="small order"):
        Roster.from_json(json.dumps(document | {"roster": body, "signature": bytes(64).hex()}))
