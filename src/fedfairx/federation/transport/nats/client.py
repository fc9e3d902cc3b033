"""A transport by JetStream key/value buckets of a NATS server.

A federation has one bucket (`bucket.py`) with the keys of all members, and with secure aggregation one for
rows. A message is written with the revision that it replaces, and the server refuses the write if another
revision is there.

News arrives by the streams' republishing, a subscription that the client renews on reconnection, unlike
nats-py's bucket watchers. Every `poll` seconds the streams' last revisions are compared, and what was missed
is fetched (`stream.py`). So it is after every connection, where the hub may have been restored from an older
copy, whose revisions can't be compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from fedfairx.errors import TransportRefused, TransportUnavailable, needs
from fedfairx.federation.transport.nats.bucket import reason_of
from fedfairx.federation.transport.nats.stream import Stream
from fedfairx.federation.transport.nats.tls import Tls, new_client
from fedfairx.federation.transport.nats_subjects import inbox_of, is_row, rows_for
from fedfairx.federation.transport.protocol import LARGEST, Conflict, Watchers, require_name

with needs("nats"):
    from nats.errors import Error as NatsError
    from nats.js import api
    from nats.js.errors import APIError, NoStreamResponseError


Answer = TypeVar("Answer")
_WRONG_SEQUENCE = (10071, 10164)  # the server's codes for "another revision than expected"
_PAUSE = 0.2  # seconds between two attempts to connect again
_LONG_PAUSE = 10.0  # the same, if the hub refuses this agent, until an operator acts
_LARGEST = LARGEST - 2**12  # bytes of a message, d = 510: the server's own limit less headers
_PING = 1  # seconds between two pings
_UNANSWERED = 2  # pings without an answer, after which the connection is given up


class NatsTransport:
    """The buckets of `federation` at `servers`, written as `agent`.

    It connects in the background, and reconnects for as long as it is open. A server that accepts connections
    but does not answer counts as unavailable after 3 seconds.

    tls: makes the TLS context of each connection, so that renewed certificates are used.
    rows: whether there is a bucket for rows, too, of which those for `agent` are received.
    deadline: seconds that a call waits for the server.
    poll: seconds between two comparisons with the streams.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        federation: str,
        agent: str,
        tls: Tls | None = None,
        rows: bool = False,
        deadline: float = 4.0,
        poll: float = 10.0,
    ) -> None:
        require_name(agent)
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        self._agent = agent
        self._watchers = Watchers()
        self._streams = [Stream(federation, self._ask, self._watchers)]
        if rows:
            ours = rows_for(agent)
            self._streams.append(Stream(federation, self._ask, self._watchers, rows=True, pattern=ours))
        self._tls, self._deadline, self._poll = tls, deadline, poll
        self._trouble = "not connected yet"
        self._refused = ""
        self._closed = False
        self._client: Any = None
        self._js: Any = None
        self._first = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fedfairx-nats", daemon=True)
        self._thread.start()
        self._stale, self._ready, self._violated = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._living = asyncio.run_coroutine_threadsafe(self._live(), self._loop)

    # --- what agents call, from any thread -----------------------------------------------------------

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        if len(message) > _LARGEST:
            raise TransportRefused(f"a message must have at most {_LARGEST} bytes here, got {len(message)}")
        self._call(self._publish(agent, message, replacing))

    def latest(self) -> dict[str, bytes]:
        if not self._first.is_set():
            self._call(self._ready.wait())
        client = self._client
        if self._closed or self._refused or client is None or not client.is_connected:
            self._call(self._connected())
        return {key: message for each in self._streams for key, message in each.mirror.latest().items()}

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:
        return self._watchers.add(notify)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._living.cancel()
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(self._deadline)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._deadline)
        if not self._thread.is_alive():
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run `work` in the loop's thread, within the deadline."""
        if self._closed:
            work.close()
            raise TransportRefused("this transport is closed")
        if self._refused:
            work.close()
            raise TransportRefused(self._refused)
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, self._deadline), self._loop)
        try:
            return future.result(self._deadline + 1.0)
        except (NatsError, TimeoutError, OSError) as error:
            if self._refused:
                raise TransportRefused(self._refused) from error
            text = self._trouble or reason_of(error)
            raise TransportUnavailable(f"the hub can't be reached now: {text}") from error

    # --- in the loop's thread ------------------------------------------------------------------------

    def _stream_of(self, key: str) -> Stream:
        """The stream of a key."""
        if is_row(key) and len(self._streams) == 1:
            raise TransportRefused(f"a message must not be for one member here, got {key!r}")
        return self._streams[is_row(key)]

    async def _publish(self, agent: str, message: bytes, replacing: bytes | None) -> None:
        stream = self._stream_of(agent)
        await self._ready.wait()
        revision, stored = stream.mirror.of(agent)
        if stored != replacing or stored == message:
            revision, stored = await self._fetch(agent)
        if stored == message:
            return
        if stored != replacing:
            raise Conflict(stored)
        expected = {api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(revision)}
        try:
            receipt = await self._permitted(
                self._js.publish(stream.prefix + agent, message, headers=expected, timeout=self._deadline)
            )
        except NoStreamResponseError:
            stream.mirror.doubt()
            self._stale.set()
            raise
        except APIError as error:
            if error.err_code not in _WRONG_SEQUENCE:
                raise
            _, stored = await self._fetch(agent)
            if stored == message:  # it had arrived, and only the answer was lost
                return
            raise Conflict(stored) from None
        stream.mirror.keep(agent, receipt.seq, message)

    async def _ask(self, subject: str, content: bytes) -> Any:
        if self._client is None:
            raise TimeoutError
        return await self._client.request(subject, content, timeout=self._deadline)

    async def _permitted(self, asking: Coroutine[Any, Any, Any]) -> Any:
        """Wait for the answer, or for the error that reports missing permissions instead of one."""
        self._violated.clear()
        answer, violated = asyncio.ensure_future(asking), asyncio.ensure_future(self._violated.wait())
        try:
            await asyncio.wait({answer, violated}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise TransportRefused(
                    f"the hub denies agent {self._agent!r} permission: {self._trouble}; its identity or "
                    "the server's permissions are wrong"
                )
            return answer.result()
        finally:
            answer.cancel()
            violated.cancel()
            await asyncio.gather(answer, violated, return_exceptions=True)  # else asyncio logs its error

    async def _fetch(self, key: str) -> tuple[int, bytes | None]:
        """Fetch the message under a key; look at all if the stream has gone back."""
        stream = self._stream_of(key)
        doubts = stream.mirror.doubts
        entry = await stream.fetch(key)
        if doubts != stream.mirror.doubts:
            self._stale.set()
        return entry

    async def _connected(self) -> None:
        if self._client is None or not self._client.is_connected:
            raise TimeoutError

    async def _live(self) -> None:
        """Connect, then keep the mirror up to date for as long as the transport is open.

        Whatever fails is tried again: nats-py, asyncio and answers of a hub can fail in any way.
        """
        pause = 0.1
        while self._client is None:
            try:
                await self._connect()
                self._refused = ""
            except Exception as error:
                self._note(error)
                await self._shut()
                await asyncio.sleep(pause)
                pause = min(2 * pause, 5.0)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stale.wait(), self._poll)
            self._stale.clear()
            try:
                for stream in self._streams:
                    await stream.look()
                self._trouble = self._refused = ""
                self._ready.set()
                self._first.set()
            except Exception as error:
                self._note(error)
                await asyncio.sleep(min(self._poll, 0.25))
                self._stale.set()

    async def _connect(self) -> None:
        async def news(stream: Stream, message: Any) -> None:
            if not stream.receive(message.subject, int(message.headers["Nats-Sequence"]), message.data):
                self._stale.set()

        async def again() -> None:
            self._trouble = ""
            self._client.options["reconnect_time_wait"] = _PAUSE
            self._stale.set()

        async def failed(error: Exception) -> None:
            self._trouble = reason_of(error)
            if "permissions violation" in str(error).lower():
                self._violated.set()
            if "authorization violation" in str(error).lower() and self._client is not None:
                self._client.options["reconnect_time_wait"] = _LONG_PAUSE

        async def away() -> None:
            self._trouble = self._trouble or "the connection is lost"
            for stream in self._streams:
                stream.connection_lost()

        client: Any = new_client(self._tls)
        await client.connect(
            self._servers,
            name=f"fedfairx {self._agent}",
            tls=None if self._tls is None else self._tls(),
            inbox_prefix=inbox_of(self._agent),
            connect_timeout=max(1, int(self._deadline)),
            reconnect_time_wait=_PAUSE,
            max_reconnect_attempts=-1,
            ping_interval=_PING,
            max_outstanding_pings=_UNANSWERED,
            error_cb=failed,
            reconnected_cb=again,
            disconnected_cb=away,
        )
        self._client = client
        self._js = self._client.jetstream(timeout=self._deadline)
        for stream in self._streams:
            await self._permitted(stream.require())
            await self._client.subscribe(stream.news, cb=partial(news, stream))
        self._stale.set()

    async def _end(self) -> None:
        await self._shut()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _shut(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # it sends what waits, even where the connection is lost
                await client.close()

    def _note(self, error: Exception) -> None:
        self._trouble = reason_of(error)
        self._refused = str(error) if isinstance(error, TransportRefused) else ""
