"""Names of streams, subjects and inboxes at a NATS server, from which its permissions are made.

A federation has one stream of messages that everybody reads, under keys of one or two parts (`org1`,
`org1.alive`). With secure aggregation it has a second stream, of rows: the last of the three parts of a key
(`org1.row.org2`) is the member that the message is for, and nobody else receives it.
"""

from __future__ import annotations

HUB = "hub"  # the name of the hub's operator, which no member may have


def is_row(key: str) -> bool:
    """Whether a message under this key is for one member."""
    return key.count(".") == 2


def bucket_of(federation: str, *, rows: bool = False) -> str:
    return f"ffx_{federation}" + ("_rows" if rows else "")


def stream_of_bucket(federation: str, *, rows: bool = False) -> str:
    return f"KV_{bucket_of(federation, rows=rows)}"


def subjects_of(federation: str, *, rows: bool = False) -> str:
    """All subjects of a stream."""
    return f"$KV.{bucket_of(federation, rows=rows)}.>"


def subject_of(federation: str, key: str) -> str:
    return subjects_of(federation, rows=is_row(key)).removesuffix(">") + key


def news_of(federation: str, pattern: str, *, rows: bool = False) -> str:
    """Subject under which the server republishes stored messages; no member may write to it."""
    return f"ffx_{'rows' if rows else 'news'}.{federation}.{pattern}"


def rows_for(agent: str) -> str:
    """Pattern of the keys of rows for a member."""
    return f"*.*.{agent}"


def inbox_of(agent: str) -> str:
    """Inbox prefix of a member, which no other may subscribe to."""
    return f"_INBOX_{agent}"
