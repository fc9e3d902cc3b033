"""A stream at a NATS server as one member reads it: its copy, and how that is brought up to date.

Members can't make consumers, since the server delivers a consumer's messages under any subject that its maker
names, whatever its maker may write to. So messages are fetched by requests, many at once.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fedfairx.errors import needs
from fedfairx.federation.transport.nats.bucket import no_bucket, require_sound
from fedfairx.federation.transport.nats.mirror import Mirror
from fedfairx.federation.transport.nats_subjects import news_of, stream_of_bucket, subjects_of
from fedfairx.federation.transport.protocol import Watchers

with needs("nats"):
    from nats.js import api
    from nats.js.errors import APIError, NotFoundError

AT_ONCE = 32  # requests that wait for their answers at the same time

#: Sends a request to a subject; returns the answer.
Ask = Callable[[str, bytes], Coroutine[Any, Any, Any]]


class Stream:
    """One stream of a federation.

    pattern: the keys that are read, `>` for all. With another one gaps in the numbers of messages mean
        nothing, so a message that was missed is noticed only if it is the last, or at the next connection.
    mirror: the copy.
    prefix: what the subjects of all its keys begin with.
    news: the subject to subscribe to, in one subscription, so that messages arrive in their order.
    """

    def __init__(
        self, federation: str, ask: Ask, watchers: Watchers, *, rows: bool = False, pattern: str = ">"
    ) -> None:
        self._federation, self._ask, self._rows, self._pattern = federation, ask, rows, pattern
        self._name = stream_of_bucket(federation, rows=rows)
        self.prefix = subjects_of(federation, rows=rows).removesuffix(">")
        self.news = news_of(federation, pattern, rows=rows)
        self._news_prefix = news_of(federation, "", rows=rows)
        self.mirror = Mirror(watchers)
        self._reached = 0, ""  # number and time of the last message when we last looked
        self._lost = 0  # connections that were lost
        self._checked = 0  # how many of them when we last checked that the stream is the one that we know

    def connection_lost(self) -> None:
        """Have the next look check that the stream is the one that we know.

        It must be called before there is another connection, by which the look would already be answered.
        """
        self._lost += 1

    def receive(self, subject: str, number: int, message: bytes) -> bool:
        """Take a republished message; False if it puts everything in doubt."""
        return self.mirror.receive(subject.removeprefix(self._news_prefix), number, message)

    async def look(self) -> None:
        """Fetch what was missed."""
        lost, highest, info = self._lost, self.mirror.highest, await self._info()
        same = self.mirror.same_stream(info["created"], last=info["state"]["last_seq"], highest=highest)
        if same and lost != self._checked:
            await self._doubt_what_changed()
        if not same or lost != self._checked:
            self._checked = lost
            info = await self._info()  # includes messages received meanwhile
        doubts, last = self.mirror.doubts, info["state"]["last_seq"]
        if last > self.mirror.whole:
            if await self._missed_some():
                await self._fetch_missing(last)
            self.mirror.fetched(last, doubts)
        if doubts == self.mirror.doubts and lost == self._lost:
            self._reached = last, info["state"]["last_ts"]

    async def _doubt_what_changed(self) -> None:
        """Doubt all messages after our last look if the stream still has its last one; else all messages.

        A hub that was restored from an older copy numbers other messages alike, but stores them later.
        """
        number, moment = self._reached
        same = False
        if number > 0 and self._pattern == ">":
            with contextlib.suppress(NotFoundError):  # a later one has replaced it
                same = (await self._get(seq=number))["time"] == moment
        self.mirror.doubt(since=number if same else -1)

    async def _missed_some(self) -> bool:
        """Whether a message that we read was missed, if the stream has more than we know of."""
        if self._pattern == ">" or self.mirror.whole < 0:
            return True
        try:
            last = await self._get(last_by_subj=self.prefix + self._pattern)
        except NotFoundError:
            return False
        return bool(last["seq"] > self.mirror.highest)

    async def _fetch_missing(self, last: int) -> None:
        """Fetch by number or by subject, whichever is less."""
        whole = self.mirror.whole
        if self._pattern == ">" and whole >= 0 and last - whole <= len(self.mirror.latest()):
            wanted: list[dict[str, Any]] = [{"seq": number} for number in range(whole + 1, last + 1)]
        else:
            info = await self._info(subjects_filter=self.prefix + self._pattern)
            wanted = [{"last_by_subj": subject} for subject in info["state"].get("subjects") or {}]
        for first in range(0, len(wanted), AT_ONCE):
            await asyncio.gather(*(self._keep(each) for each in wanted[first : first + AT_ONCE]))

    async def _keep(self, which: dict[str, Any]) -> None:
        with contextlib.suppress(NotFoundError):  # a later one has replaced it
            message = await self._get(**which)
            self.mirror.keep(message["subject"].removeprefix(self.prefix), message["seq"], data_of(message))

    async def fetch(self, key: str) -> tuple[int, bytes | None]:
        """Fetch the message under a key from the stream's leader, into the mirror too."""
        before, _ = self.mirror.of(key)
        revision, message = 0, None
        with contextlib.suppress(NotFoundError):
            entry = await self._get(last_by_subj=self.prefix + key)
            revision, message = entry["seq"], data_of(entry)
        if revision < before:
            self.mirror.doubt()
        if message is not None:
            self.mirror.keep(key, revision, message)
        return revision, message

    async def _get(self, **which: Any) -> dict[str, Any]:
        message: dict[str, Any] = (await self._request("STREAM.MSG.GET", which))["message"]
        return message

    async def _info(self, **more: str) -> dict[str, Any]:
        """Open the bucket; refuse one that could lose messages."""
        try:
            info = await self._request("STREAM.INFO", more)
        except NotFoundError:
            raise no_bucket(self._federation, rows=self._rows) from None
        require_sound(api.StreamConfig.from_response(info["config"]), self._federation, rows=self._rows)
        return info

    async def _request(self, verb: str, content: dict[str, Any]) -> dict[str, Any]:
        body = json.dumps(content).encode() if content else b""
        answer = await self._ask(f"$JS.API.{verb}.{self._name}", body)
        reply: dict[str, Any] = json.loads(answer.data)
        if "error" in reply:
            raise APIError.from_error(reply["error"])
        return reply

    async def require(self) -> None:
        """Raise unless the bucket is there and sound."""
        await self._info()


def data_of(message: dict[str, Any]) -> bytes:
    """The content of a message that was fetched."""
    return base64.b64decode(message.get("data") or "")
