"""Whose action is taken: the drawn one, or the caller's baseline; and with which probability it was."""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

__all__ = ["Remark", "Taking", "propensity"]


@dataclass(frozen=True, slots=True)
class Taking:
    """How actions are taken: `live`, `shadow`, or live but for a `control_share`."""

    mode: str
    control_share: float

    @property
    def needs_baseline(self) -> bool:
        return self.mode == "shadow" or self.control_share > 0

    def draw(self) -> str:
        """What chooses the action of one decision. It is noted with it, so it need not be repeatable."""
        if self.mode == "shadow":
            return "shadow"
        return "control" if self.control_share and random.random() < self.control_share else "live"


class Remark(msgspec.Struct, array_like=True, frozen=True):
    """What the service notes with a decision, beside what the agent does."""

    model_version: int
    baseline: int | None = None
    control_share: float = 0.0

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def read(cls, text: str | None) -> Remark:
        """The remark; of a decision that was not made over HTTP there is none."""
        return cls(0) if text is None else msgspec.json.decode(text, type=cls)


def propensity(mode: str, action: int, share: float, remark: Remark) -> float:
    """The probability with which `action` was taken, its share by the policy being `share`.

    It is what whoever evaluates another policy on the log must divide by.
    """
    if mode == "shadow":
        return 1.0
    kept = remark.control_share if remark.baseline == action else 0.0
    return min(1.0, (1.0 - remark.control_share) * share + kept)
