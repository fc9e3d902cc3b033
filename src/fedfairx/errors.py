"""The exception tree.

    FedFairXError
    ├── InvalidInput (ValueError)       a parameter breaks its rule
    ├── UnknownDecision (KeyError)      a reward for a decision this agent never made
    ├── AlreadyObserved                 a second reward for one decision
    ├── ReplacementRefused              a reward that can't be replaced any more: it is in a release
    ├── KeyTaken                        an idempotency key that another decision has used
    ├── StorageError                    a file or database that can't be used
    │   ├── StorageUnavailable          temporary: disk full, locked, connection lost; nothing has changed
    │   └── StateError                  unreadable: damaged, foreign, or of another version
    │       └── OlderCopy               a restored backup: releases that it lacks have been sent
    ├── MessageRefused                  a message that must not enter the shared statistics
    ├── TransportError                  a failure between this agent and its peers
    │   ├── TransportUnavailable        temporary: what was to be sent is sent later
    │   └── TransportRefused            permanent: no permission, or a misconfigured server
    ├── PrivacyError                    a call that would break the stated guarantee
    │   ├── BudgetExhausted             more releases than the mechanism was sized for
    │   └── LedgerMismatch              the record of releases and the configuration disagree
    ├── ResultsError                    stored results that can't be used, or a sweep that failed
    └── MissingLibrary (ImportError)    an optional library that is not installed

Three conditions are warnings, because every guarantee still holds:

    ClippingWarning (UserWarning)       a private agent's bounds move more records than its estimate can bear
    ScaleWarning (UserWarning)          contexts are far larger than the agent's prior expects
    ClockWarning (UserWarning)          the system clock went back; stored times do not

Error text names the parameter, the rule and the value. It never holds a context or a reward, because
error text ends up in logs, and logs travel further than data may.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class FedFairXError(Exception):
    """Base of every error that fedfairx raises on purpose."""


class InvalidInput(FedFairXError, ValueError):
    """A parameter breaks its rule."""


class UnknownDecision(FedFairXError, KeyError):
    """A reward refers to a decision that this agent did not make or no longer holds."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class AlreadyObserved(FedFairXError):
    """The reward of this decision has already been observed."""


class ReplacementRefused(FedFairXError):
    """The reward can't be replaced any more: it is in a release, or how it was summed is unknown."""


class KeyTaken(FedFairXError):
    """The idempotency key belongs to an earlier decision, whose id is `decision`."""

    def __init__(self, decision: str) -> None:
        super().__init__(f"key must be new, and decision {decision} was made under it")
        self.decision = decision


class StorageError(FedFairXError):
    """A file or database of an agent can't be used."""


class StorageUnavailable(StorageError):
    """Storage is temporarily unavailable; nothing has changed, and the same call may be repeated."""


class StateError(StorageError):
    """A saved state is damaged, foreign, or of a schema this version does not read."""


class MessageRefused(FedFairXError):
    """A message from another agent must not enter the shared statistics; `reason` is for counting."""

    def __init__(self, text: str = "", *, reason: str = "malformed") -> None:
        super().__init__(text)
        self.reason = reason


class TransportError(FedFairXError):
    """The transport to the peers failed; deciding goes on without it."""


class TransportUnavailable(TransportError):
    """The transport is temporarily unreachable; try again later."""


class TransportRefused(TransportError):
    """The transport refuses this agent or is misconfigured; an operator has to act."""


class OlderCopy(StateError, MessageRefused):
    """The agent is older than its published releases: a restored backup, or a second instance."""


class PrivacyError(FedFairXError):
    """The call would break the stated privacy guarantee."""


class BudgetExhausted(PrivacyError):
    """The mechanism was sized for a number of releases, and all of them have been made."""


class LedgerMismatch(PrivacyError):
    """The record of past releases contradicts what is about to be released."""


class ResultsError(FedFairXError):
    """Stored results can't be used, or a sweep could not be finished."""


class MissingLibrary(FedFairXError, ImportError):
    """An optional library is not installed."""


class ClippingWarning(UserWarning):
    """A private agent's bounds clip so many records that its estimate is biased."""


class ClockWarning(UserWarning):
    """The system clock went back; stored times stand still until it has caught up."""


class ScaleWarning(UserWarning):
    """An agent's contexts are far larger than its prior or its confidence region expects."""


def require(condition: bool, name: str, rule: str, value: object, remedy: str = "") -> None:
    """Raise `InvalidInput` "name rule, got name=value" unless `condition` holds.

    `value` must be safe to print: never pass a context or a reward.
    """
    if not condition:
        tail = f"; {remedy}" if remedy else ""
        raise InvalidInput(f"{name} {rule}, got {name}={value!r}{tail}")


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn an ImportError of the `with` block into a `MissingLibrary` that names the extra.

    One that names an extra already stays.
    """
    try:
        yield
    except MissingLibrary:
        raise
    except ImportError as error:
        text = f"this needs {error.name or error}: pip install 'fedfairx[{extra}]'"
        raise MissingLibrary(text, name=error.name) from None
