"""Names of streams, subjects and inboxes at a NATS server, from which its permissions are made."""

from __future__ import annotations

HUB = "hub"  # the name of the hub's operator, which no member may have


def bucket_of(federation: str) -> str:
    return f"ffx_{federation}"


def stream_of_bucket(federation: str) -> str:
    return f"KV_{bucket_of(federation)}"


def subject_of(federation: str, agent: str) -> str:
    return f"$KV.{bucket_of(federation)}.{agent}"


def news_of(federation: str, agent: str) -> str:
    """Subject under which the server republishes stored messages; no member may write to it."""
    return f"ffx_news.{federation}.{agent}"


def inbox_of(agent: str) -> str:
    """Inbox prefix of a member, which no other may subscribe to."""
    return f"_INBOX_{agent}"
