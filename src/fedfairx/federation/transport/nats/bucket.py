"""The JetStream bucket of a federation: its configuration, and the check of an existing one.

Unlike nats-py's own buckets it allows no roll-ups, no purge and no deletion, so that a member, who may write
its own key, can't remove another's. The server republishes stored messages under subjects that no member may
write to.
"""

from __future__ import annotations

from fedfairx.errors import TransportRefused, needs
from fedfairx.federation.transport.nats_subjects import news_of, stream_of_bucket, subject_of

with needs("nats"):
    from nats.js import api


def new_bucket(federation: str, *, replicas: int) -> api.StreamConfig:
    """Configuration of a new bucket."""
    subjects = subject_of(federation, ">")
    return api.StreamConfig(
        name=stream_of_bucket(federation),
        subjects=[subjects],
        max_msgs_per_subject=1,
        max_msg_size=2**20,
        storage=api.StorageType.FILE,
        num_replicas=replicas,
        discard=api.DiscardPolicy.NEW,
        deny_delete=True,
        deny_purge=True,
        allow_rollup_hdrs=False,
        republish=api.RePublish(src=subjects, dest=news_of(federation, ">")),
    )


def require_sound(config: api.StreamConfig, federation: str) -> None:
    """Refuse a bucket that could lose messages or does not republish them."""
    subjects = subject_of(federation, ">")
    sound = config.deny_delete and config.deny_purge and not config.allow_rollup_hdrs and not config.max_age
    told = config.republish is not None and config.republish.dest == news_of(federation, ">")
    if not (sound and told) or config.subjects != [subjects]:
        raise TransportRefused(
            f"stream {config.name} was not made by fedfairx: it must deny deletion, purge and roll-ups, "
            f"have no maximum age and hold only {subjects}; ask the hub's administrator to remove it"
        )
