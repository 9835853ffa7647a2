"""Compaction of etcd's old revisions, by one of several servers in each round.

The servers agree through one key: a server that finds it unchanged since its last round writes it,
and may compact to the revision that was the newest then. So history is kept for one to two rounds.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

from orch.server.storage.base import Compacted

log = logging.getLogger(__name__)

KEY = b"compact_rev_key"  # as in the reference, so that servers of both kinds share it


class CompactionCalls(Protocol):
    async def put_if_version(self, key: bytes, value: bytes, version: int) -> tuple[int, Any]: ...

    async def compact(self, revision: int) -> None: ...


class Compactor:
    """One server's part; call `round` at a fixed rate."""

    def __init__(self, client: CompactionCalls) -> None:
        self._client = client
        self._version = 0  # of KEY, at this server's last round
        self._revision = 0  # the newest at that time; 0 before the first round

    async def round(self, newest: int) -> None:
        """Compact to the newest revision of a round ago, unless another server just did."""
        written, found = await self._client.put_if_version(KEY, b"%d" % newest, self._version)
        if not written:  # another server's round: continue from there
            self._version = 0 if found is None else int(found.version)
            self._revision = newest
            return
        previous, self._revision = self._revision, newest
        self._version += 1
        if previous == 0:
            return
        try:
            await self._client.compact(previous)
        except Compacted:
            return  # already compacted by an operator or by etcd itself
        log.debug("etcd was compacted to revision %d", previous)
