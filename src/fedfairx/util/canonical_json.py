"""Canonical JSON: the same bytes for the same plain values, for digests and signatures."""

from __future__ import annotations

import hashlib
import json


def canonical(value: object) -> bytes:
    """JSON with sorted keys and without spaces; `ValueError` for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(value: object) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()
