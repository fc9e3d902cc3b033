"""What things are called at a NATS server; its permissions are made of the same names."""

from __future__ import annotations


def bucket_of(federation: str) -> str:
    return f"ffx_{federation}"


def stream_of_bucket(federation: str) -> str:
    return f"KV_{bucket_of(federation)}"


def subject_of(federation: str, agent: str) -> str:
    return f"$KV.{bucket_of(federation)}.{agent}"


def news_of(federation: str, agent: str) -> str:
    """Where the server tells what it has stored; no agent may write there."""
    return f"ffx_news.{federation}.{agent}"


def inbox_of(agent: str) -> str:
    """Where answers to this agent come: under a prefix of its own, so that no other may listen there."""
    return f"_INBOX_{agent}"
