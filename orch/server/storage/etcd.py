"""etcd v3 over gRPC: the few calls that storage makes.

Keys and values are bytes; their meaning is up to `etcd_storage`. Every call has a deadline, and a
failed call becomes a StorageFailed that names the server.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from orch.component.grpc_channel import (
    CLOSED,
    CallFailed,
    Channel,
    Observe,
    messages,
    observed,
    wait_calls_ended,
)
from orch.server.storage import etcd_pb2 as pb
from orch.server.storage import etcd_pb2_grpc as rpc
from orch.server.storage.base import (
    Compacted,
    ObjectTooLarge,
    OutcomeUnknown,
    StorageFailed,
    StorageFull,
    StorageUnavailable,
)

CALL_TIMEOUT_S = 5.0
_ALL_KEYS = b"\0"  # as key and as end of a range: everything
_UNLIMITED = -1
_NEVER = 2**62  # a revision that no entry has
_NOT_SENT = "failed to connect to all addresses"


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Servers as `http(s)://host:port`, all of one scheme, and the files for https.

    A connection that is silent for `keepalive_s` is pinged, and dropped without an answer within
    half of that; etcd itself forbids pings more often than every 5 s.
    """

    servers: tuple[str, ...]
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    keepalive_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One key at one revision."""

    key: bytes
    revision: int
    value: bytes


@dataclass(frozen=True, slots=True)
class EtcdEvent:
    """`value` None: the key was deleted at this revision."""

    key: bytes
    revision: int
    value: bytes | None


class Put(NamedTuple):
    """A write over the entry at revision `expected`."""

    key: bytes
    value: bytes
    expected: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a conditional write: `found` is the entry before a deletion, or the one that was found
    where the (first) write was not made.
    """

    written: bool
    revision: int
    found: Entry | None


class EtcdClient:
    """Calls go to one server; after it could not be reached, to the next."""

    def __init__(self, access: EtcdAccess, *, observe: Observe) -> None:
        self._access = access
        self._observe = observe
        self._channels: list[tuple[str, Channel]] = []  # with the server's address
        self._chosen = 0

    def open(self) -> None:
        """Call it on the event loop of the calls; StorageFailed for unusable TLS files."""
        tls, options = _tls(self._access), _options(self._access.keepalive_s)
        self._channels = [
            (server, Channel(urlsplit(server).netloc, _stubs, options=options, tls=tls))
            for server in self._access.servers
        ]

    async def close(self) -> None:
        """Running calls fail."""
        channels, self._channels = self._channels, []
        for _, channel in channels:
            await channel.close()
        await wait_calls_ended()

    async def size_bytes(self) -> int:
        """Of the chosen server's database."""
        return int((await self._call("status", "Status", pb.StatusRequest())).dbSize)

    async def revision(self) -> int:
        """The newest, confirmed by the cluster: no answered write has a later one."""
        answer = await self._read("revision", pb.RangeRequest(key=_ALL_KEYS, keys_only=True))
        return int(answer.header.revision)

    async def agree(self, key: bytes) -> int:
        """The newest revision, after the cluster has agreed on a write of `key` that changes
        nothing: what refuses writes refuses this one.
        """
        put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=b""))
        answer = await self._read("check", _if_at(key, _NEVER, put), "Txn")
        return int(answer.header.revision)

    async def page(
        self, start: bytes, end: bytes, *, limit: int, revision: int
    ) -> tuple[list[Entry], int, bool]:
        """Entries of [start, end) at `revision` (0: now), that revision, whether more follow."""
        request = pb.RangeRequest(key=start, range_end=end, limit=limit, revision=revision)
        answer = await self._read("list", request)
        return [_entry(kv) for kv in answer.kvs], int(answer.header.revision), bool(answer.more)

    async def put(
        self,
        key: bytes,
        value: bytes,
        expected: int,
        also: Sequence[Put] = (),
        unchanged: tuple[bytes, int] | None = None,
    ) -> Outcome:
        """Write only over the entry at revision `expected` (0: only where there is none), only
        together with the others, and only while the key `unchanged` is at its revision.
        """
        operation = "update" if expected else "create"
        request = pb.TxnRequest()
        for put in (Put(key, value, expected), *also):
            action = pb.RequestOp(request_put=pb.PutRequest(key=put.key, value=put.value))
            request.MergeFrom(_if_at(put.key, put.expected, action))
        if unchanged is not None:
            request.compare.append(_is_at(*unchanged))
        return _outcome(await self._call(operation, "Txn", request))

    async def delete(self, key: bytes, expected: int | None) -> Outcome:
        """Delete only the entry at that revision; None: at any."""
        deletion = pb.DeleteRangeRequest(key=key, prev_kv=True)
        request = _if_at(key, expected, pb.RequestOp(request_delete_range=deletion))
        return _outcome(await self._call("delete", "Txn", request))

    async def put_if_version(self, key: bytes, value: bytes, version: int) -> tuple[int, Any]:
        """(revision, None) when the key had been written `version` times, else (0, its entry)."""
        same = pb.Compare(target=pb.Compare.VERSION, key=key, version=version)
        answer = await self._call(
            "compact",
            "Txn",
            pb.TxnRequest(
                compare=[same],
                success=[pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))],
                failure=[pb.RequestOp(request_range=pb.RangeRequest(key=key))],
            ),
        )
        if answer.succeeded:
            return int(answer.header.revision), None
        return 0, next(iter(answer.responses[0].response_range.kvs), None)

    async def compact(self, revision: int) -> None:
        """Drop revisions before `revision`; Compacted when they are dropped already."""
        await self._call("compact", "Compact", pb.CompactionRequest(revision=revision))

    async def watch(self, from_revision: int) -> AsyncGenerator[tuple[list[EtcdEvent], int], None]:
        """Every change of every key from a revision on, in order; events of one revision together.

        First comes ([], etcd's newest revision): the watch is open. Ends only by an error:
        Compacted, StorageFailed. Watches all keys and not only storage's own, because then every
        revision of etcd shows up here, and the progress of the watch is known.
        """
        server, channel = self._chosen_channel()
        create = pb.WatchCreateRequest(
            key=_ALL_KEYS, range_end=_ALL_KEYS, start_revision=from_revision
        )
        with self._explaining(server, written=False), channel.failures():
            call = channel.method("Watch")()
            try:
                await call.write(pb.WatchRequest(create_request=create))
                async for answer in messages(call):
                    if answer.canceled:
                        raise _canceled(answer, from_revision)
                    yield [_event(event) for event in answer.events], int(answer.header.revision)
            finally:
                call.cancel()
        raise StorageUnavailable(f"etcd at {server} ended the watch")

    async def _read(self, operation: str, request: Any, method: str = "Range") -> Any:
        """Ask the first server that can be reached."""
        for _ in self._channels[1:]:
            with contextlib.suppress(StorageUnavailable):
                return await self._call(operation, method, request)
        return await self._call(operation, method, request)

    async def _call(self, operation: str, method: str, request: Any) -> Any:
        server, channel = self._chosen_channel()
        written = operation in ("create", "update", "delete")
        with observed(self._observe, operation), self._explaining(server, written=written):
            return await channel.call(method, request, CALL_TIMEOUT_S)

    def _chosen_channel(self) -> tuple[str, Channel]:
        if not self._channels:
            raise StorageFailed("storage is not open")
        return self._channels[self._chosen % len(self._channels)]

    @contextlib.contextmanager
    def _explaining(self, server: str, *, written: bool) -> Iterator[None]:
        try:
            yield
        except CallFailed as failed:
            raise self._explained(server, failed, written=written) from failed

    def _explained(
        self, server: str, failed: CallFailed, *, written: bool
    ) -> StorageFailed | Compacted:
        """Made here, since a frame that raises what it holds keeps the whole request as garbage."""
        if failed.code == CLOSED and not self._channels:
            return StorageFailed("storage was closed")
        failure = _failure(server, failed, written=written)
        if isinstance(failure, StorageUnavailable | OutcomeUnknown):
            self._chosen += 1
        return failure


def _stubs(channel: Any) -> tuple[Any, ...]:
    return rpc.KVStub(channel), rpc.WatchStub(channel), rpc.MaintenanceStub(channel)


def _options(keepalive_s: float) -> list[tuple[str, int]]:
    return [
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1000),  # also the connect timeout
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", int(keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(keepalive_s * 500)),
        ("grpc.http2.ping_timeout_ms", int(keepalive_s * 500)),  # else a minute, despite the above
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_receive_message_length", _UNLIMITED),
        ("grpc.max_send_message_length", _UNLIMITED),
        ("grpc.use_local_subchannel_pool", 1),  # the connection ends with this channel
    ]


def _tls(access: EtcdAccess) -> list[bytes | None] | None:
    """None for http."""
    if not access.servers[0].startswith("https:"):
        return None
    files = (access.ca_file, access.key_file, access.cert_file)
    try:
        return [None if file is None else file.read_bytes() for file in files]
    except OSError as error:
        raise StorageFailed(f"cannot read {error.filename} for etcd: {error.strerror}") from error


def _failure(server: str, failed: CallFailed, *, written: bool) -> StorageFailed | Compacted:
    """A failed call as an error of storage; `written`: it may have changed something."""
    code, details = failed.code, failed.details
    if code == CLOSED:
        return StorageUnavailable(f"etcd at {server}: the connection was closed")
    if code == "OUT_OF_RANGE" and "compacted" in details:
        return Compacted(0, 0)
    if code == "INVALID_ARGUMENT" and "too large" in details:
        return ObjectTooLarge("the object is too large for etcd (--max-request-bytes of etcd)")
    if code == "RESOURCE_EXHAUSTED" and "space exceeded" in details:
        text = f"etcd at {server}: {details}: compact and defragment it, then disarm its alarm"
        return StorageFull(text)
    if code == "DEADLINE_EXCEEDED":
        kind = OutcomeUnknown if written else StorageUnavailable
        return kind(f"etcd at {server} did not answer in time")
    if code == "UNAVAILABLE":
        sent = written and _NOT_SENT not in details
        kind = OutcomeUnknown if sent else StorageUnavailable
        return kind(f"etcd at {server} cannot be reached: {details}")
    return StorageFailed(f"etcd at {server}: {details or code}")


def _canceled(answer: Any, from_revision: int) -> Compacted | StorageUnavailable:
    if answer.compact_revision:
        return Compacted(from_revision, int(answer.compact_revision))
    return StorageUnavailable(f"etcd ended the watch: {answer.cancel_reason or 'no reason given'}")


def _if_at(key: bytes, expected: int | None, action: Any) -> Any:
    """`action` if the key's newest revision is `expected` (None: any), else read the entry."""
    compare = _is_at(key, expected or 0)
    if expected is None:
        compare.result = pb.Compare.GREATER
    look = pb.RequestOp(request_range=pb.RangeRequest(key=key))
    return pb.TxnRequest(compare=[compare], success=[action], failure=[look])


def _is_at(key: bytes, revision: int) -> Any:
    return pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=revision)


def _outcome(answer: Any) -> Outcome:
    response = answer.responses[0]
    found = (*response.response_delete_range.prev_kvs, *response.response_range.kvs)
    entry = _entry(found[0]) if found else None
    return Outcome(bool(answer.succeeded), int(answer.header.revision), entry)


def _entry(kv: Any) -> Entry:
    return Entry(kv.key, kv.mod_revision, kv.value)


def _event(event: Any) -> EtcdEvent:
    kv = event.kv
    deleted = event.type == pb.Event.DELETE
    return EtcdEvent(kv.key, kv.mod_revision, None if deleted else kv.value)
