"""The exception tree.

    FedFairXError
    ├── InvalidInput (ValueError)       a parameter breaks its rule
    ├── UnknownDecision (KeyError)      a reward for a decision this agent never made
    ├── AlreadyObserved                 a second reward for one decision
    ├── ReplacementRefused              a reward that can't be replaced any more: it is in a release
    ├── KeyTaken                        an idempotency key that another decision has used
    ├── StorageError                    a file or database that can't be used
    │   ├── StorageUnavailable          temporary: disk full, locked, connection lost; nothing has changed
    │   │   └── OutcomeUnknown          connection lost during a commit: it may have changed
    │   └── StateError                  unreadable: damaged, foreign, or of another version
    │       └── OlderCopy               a restored backup: releases that it lacks have been sent
    ├── MessageRefused                  a message that must not enter the shared statistics
    ├── TransportError                  a failure between this agent and its peers
    │   ├── TransportUnavailable        temporary: what was to be sent is sent later
    │   └── TransportRefused            permanent: no permission, or a misconfigured server
    ├── PrivacyError                    a call that would break the stated guarantee
    │   ├── BudgetExhausted             more releases than the mechanism was sized for
    │   └── LedgerMismatch              the record of releases and the configuration disagree
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
    """Base of every error that fedfairx raises on purpose.

    >>> import fedfairx as ffx
    >>> try:
    ...     ffx.Agent(dimension=0)
    ... except FedFairXError as error:
    ...     print(error)
    dimension must be an integer >= 1, got dimension=0; or give actions or a schema
    """


class InvalidInput(FedFairXError, ValueError):
    """A parameter breaks its rule.

    >>> import fedfairx as ffx
    >>> ffx.Budget(epsilon=-1.0, releases=10)
    Traceback (most recent call last):
    fedfairx.errors.InvalidInput: epsilon must be ..., got epsilon=-1.0
    """


class UnknownDecision(FedFairXError, KeyError):
    """A reward refers to a decision that this agent did not make or no longer holds.

    >>> import fedfairx as ffx
    >>> ffx.Agent(actions=["ann", "ben"]).observe("no-such-decision", reward=1.0)
    Traceback (most recent call last):
    fedfairx.errors.UnknownDecision: decision must be one that this agent made, got ...
    """

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class AlreadyObserved(FedFairXError):
    """The reward of this decision has already been observed.

    >>> import fedfairx as ffx
    >>> agent = ffx.Agent(actions=["ann", "ben"])
    >>> decision = agent.decide()
    >>> agent.observe(decision, reward=1.0)
    >>> agent.observe(decision, reward=1.0)
    Traceback (most recent call last):
    fedfairx.errors.AlreadyObserved: decision ...-0 has its reward already (or was forgotten)
    """


class ReplacementRefused(FedFairXError):
    """The reward can't be replaced any more: it is in a release, or how it was summed is unknown.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("agent.db", actions=["ann", "ben"]) as agent:
    ...     decision = agent.decide()
    ...     agent.observe(decision, reward=1.0)
    ...     _ = agent.release()
    ...     agent.observe(decision, reward=0.0, replace=True)
    Traceback (most recent call last):
    fedfairx.errors.ReplacementRefused: the reward of decision ... is in release 1 already ...
    """


class KeyTaken(FedFairXError):
    """The idempotency key belongs to an earlier decision, whose id is `decision`.

    >>> import fedfairx as ffx
    >>> from fedfairx.storage import DecisionNote
    >>> with ffx.Agent.open("orders.db", actions=["ann", "ben"]) as agent:
    ...     first = agent.decide(note=DecisionNote(key="order 7"))
    ...     try:
    ...         agent.decide(note=DecisionNote(key="order 7"))
    ...     except KeyTaken as error:
    ...         print(error.decision == first.id)
    True
    """

    def __init__(self, decision: str) -> None:
        super().__init__(f"key must be new, and decision {decision} was made under it")
        self.decision = decision


class StorageError(FedFairXError):
    """A file or database of an agent can't be used.

    >>> import fedfairx as ffx
    >>> try:
    ...     ffx.Agent.open("no-such-folder/agent.db", dimension=2)
    ... except StorageError as error:
    ...     print(error)
    no-such-folder/agent.db can't be opened: No such file or directory
    """


class StorageUnavailable(StorageError):
    """Storage is temporarily unavailable; nothing has changed, and the same call may be repeated.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("locked.db", dimension=2, name="north"):
    ...     ffx.Agent.open("locked.db")
    Traceback (most recent call last):
    fedfairx.errors.StorageUnavailable: agent 'north' in locked.db is open already
    """


class OutcomeUnknown(StorageUnavailable):
    """The connection was lost during a commit, so whether it was stored is not known.

    The agent reads what is stored before its next step. Repeat the call if it has an idempotency key; else
    look in the log first.

    >>> issubclass(OutcomeUnknown, StorageUnavailable)
    True
    """


class StateError(StorageError):
    """A saved state is damaged, foreign, or of a schema this version does not read.

    >>> from pathlib import Path
    >>> import fedfairx as ffx
    >>> Path("notes.txt").write_text("not a database")
    14
    >>> ffx.Agent.open("notes.txt")
    Traceback (most recent call last):
    fedfairx.errors.StateError: notes.txt is damaged: file is not a database; ...
    """


class MessageRefused(FedFairXError):
    """A message from another agent must not enter the shared statistics; `reason` is for counting.

    >>> from fedfairx.privacy import Release
    >>> try:
    ...     Release.from_bytes(b"something else")
    ... except MessageRefused as error:
    ...     print(error.reason)
    malformed
    """

    def __init__(self, text: str = "", *, reason: str = "malformed") -> None:
        super().__init__(text)
        self.reason = reason


class TransportError(FedFairXError):
    """The transport to the peers failed; deciding goes on without it.

    >>> from fedfairx.federation.transport import EngineTransport
    >>> try:
    ...     EngineTransport().latest()
    ... except TransportError as error:
    ...     print(error)
    the external engine delivers messages; they can't be fetched
    """


class TransportUnavailable(TransportError):
    """The transport is temporarily unreachable; try again later.

    >>> from fedfairx.federation.transport import EngineTransport
    >>> EngineTransport().publish("org1", b"a release", replacing=None)
    Traceback (most recent call last):
    fedfairx.errors.TransportUnavailable: the external engine has not carried the latest release of 'org1' yet
    """


class TransportRefused(TransportError):
    """The transport refuses this agent or is misconfigured; an operator has to act.

    >>> from pathlib import Path
    >>> from fedfairx.federation.transport import SqliteTransport
    >>> Path("letters.txt").write_text("not a transport")
    15
    >>> SqliteTransport("letters.txt").latest()
    Traceback (most recent call last):
    fedfairx.errors.TransportRefused: ...letters.txt is not a transport of fedfairx: file is not a database
    """


class OlderCopy(StateError, MessageRefused):
    """The agent is older than its published releases: a restored backup, or a second instance.

    >>> import shutil
    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("north.db", dimension=1, budget=ffx.Budget(epsilon=2.0, releases=9)) as agent:
    ...     agent.observe(agent.decide([[1.0]]), reward=1.0)
    >>> _ = shutil.copy("north.db", "backup.db")
    >>> with ffx.Agent.open("north.db") as agent:
    ...     sent = agent.release()
    >>> _ = shutil.copy("backup.db", "north.db")
    >>> ffx.Agent.open("north.db")
    Traceback (most recent call last):
    fedfairx.errors.OlderCopy: ...
    """


class PrivacyError(FedFairXError):
    """The call would break the stated privacy guarantee.

    >>> import copy
    >>> from fedfairx.privacy import KeyedNoise, new_key
    >>> copy.copy(KeyedNoise(new_key(), agent="clinic", run="first"))
    Traceback (most recent call last):
    fedfairx.errors.PrivacyError: a KeyedNoise can't be copied or pickled: ...
    """


class BudgetExhausted(PrivacyError):
    """The mechanism was sized for a number of releases, and all of them have been made.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("once.db", dimension=2, budget=ffx.Budget(epsilon=2.0, releases=1)) as agent:
    ...     first = agent.release()
    ...     agent.release()
    Traceback (most recent call last):
    fedfairx.errors.BudgetExhausted: all 1 releases of this budget have been made; ...
    """


class LedgerMismatch(PrivacyError):
    """The record of past releases contradicts what is about to be released.

    >>> from fedfairx.privacy import MemoryLedger
    >>> ledger = MemoryLedger()
    >>> ledger.bind({"agent": "clinic"})
    >>> ledger.bind({"agent": "ward"})
    Traceback (most recent call last):
    fedfairx.errors.LedgerMismatch: this ledger belongs to another configuration: agent differ; ...
    """


class MissingLibrary(FedFairXError, ImportError):
    """An optional library is not installed.

    >>> with needs("plots"):
    ...     import no_such_library
    Traceback (most recent call last):
    fedfairx.errors.MissingLibrary: this needs no_such_library: pip install 'fedfairx[plots]'
    """


class ClippingWarning(UserWarning):
    """A private agent's bounds clip so many records that its estimate is biased.

    >>> import warnings
    >>> import fedfairx as ffx
    >>> with warnings.catch_warnings(record=True) as caught, ffx.Agent.open(
    ...     "ratings.db", dimension=1, budget=ffx.Budget(epsilon=2.0, releases=9)
    ... ) as agent:
    ...     for _ in range(100):
    ...         agent.observe(agent.decide([[1.0]]), reward=2.0)  # the bounds allow 1
    >>> [each.category.__name__ for each in caught]
    ['ClippingWarning']
    """


class ClockWarning(UserWarning):
    """The system clock went back; stored times stand still until it has caught up.

    >>> import warnings
    >>> warnings.filterwarnings("ignore", category=ClockWarning)  # where the clock is known to be wrong
    """


class ScaleWarning(UserWarning):
    """An agent's contexts are far larger than its prior or its confidence region expects.

    >>> import warnings
    >>> import fedfairx as ffx
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     decision = ffx.Agent(dimension=2).decide([[1000.0, 0.0], [0.0, 1000.0]])
    >>> [each.category.__name__ for each in caught]
    ['ScaleWarning']
    """


def require(condition: bool, name: str, rule: str, value: object, remedy: str = "") -> None:
    """Raise `InvalidInput` "name rule, got name=value" unless `condition` holds.

    `value` must be safe to print: never pass a context or a reward.

    >>> require(0 < 2 < 1, "share", "must be between 0 and 1", 2)
    Traceback (most recent call last):
    fedfairx.errors.InvalidInput: share must be between 0 and 1, got share=2
    """
    if not condition:
        tail = f"; {remedy}" if remedy else ""
        raise InvalidInput(f"{name} {rule}, got {name}={value!r}{tail}")


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Turn an ImportError of the `with` block into a `MissingLibrary` that names the extra.

    One that names an extra already stays.

    >>> with needs("plot"):
    ...     import json  # one that is installed
    """
    try:
        yield
    except MissingLibrary:
        raise
    except ImportError as error:
        text = f"this needs {error.name or error}: pip install 'fedfairx[{extra}]'"
        raise MissingLibrary(text, name=error.name) from None
