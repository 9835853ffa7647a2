"""Renews this agent's certificates in the last third of their lives, at a random moment.

Key and certificate are one file, replaced in one step: whoever reads it sees a pair that fits. The
old pair serves until the new one is there, and after a refusal as well.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from nodeagent.certificates import enrolment
from nodeagent.certificates.enrolment import NotGranted, Wanted
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component import signing_requests
from orch.component.certificates import validity
from orch.component.process.atomic_file import replace_file
from orch.component.process.clock import Now
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire.errors import ApiError
from orch.wire.times import format_time

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
SOON_S = 1.0  # while something is awaited
AFTER_REFUSAL = timedelta(minutes=5)
GIVE_UP = timedelta(minutes=15)  # and ask anew
_SHARE = (0.7, 0.9)  # of its life
_MAX_FILE_BYTES = 256 * 1024


class ManagedCertificate:
    """One certificate: `use` is "client" or "serving", `hosts` those it is to name (none: ask for
    nothing yet). `ends` None: there is none that can be read.
    """

    def __init__(
        self,
        use: str,
        path: Path,
        node_name: str,
        *,
        hosts: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        self.use = use
        self.path = path
        self.ends: datetime | None = None
        self.failures = 0
        self._node_name = node_name
        self._hosts = hosts
        self._due: tuple[datetime, datetime] | None = None  # the start it is for, and when
        self._asked: tuple[str, bytes, Wanted, datetime] | None = None
        self._rests_until: datetime | None = None
        self._issued_for: Wanted | None = None
        self._trouble = OnceLog(log)

    @property
    def waits(self) -> bool:
        """Whether a certificate was asked for, or will be once the node is registered."""
        return self._asked is not None or self._wanted() is None

    async def step(self, client: ApiClient, now: datetime) -> bool:
        """Ask when it is time, collect what was asked for; whether there is a new one now."""
        wanted = self._wanted()
        if self._rests_until is not None and now < self._rests_until:
            return False
        try:
            if self._asked is None:
                if wanted is None or not await asyncio.to_thread(self._is_due, wanted, now):
                    return False
                key = await asyncio.to_thread(signing_requests.make_key)
                name = await enrolment.ask(client, wanted, key)
                self._asked = name, key, wanted, now
            return await self._collect(client, now)
        except (NotGranted, ApiError, TransportError, OSError) as error:
            self.failures += 1
            if isinstance(error, NotGranted):
                self._asked, self._rests_until = None, now + AFTER_REFUSAL
            self._trouble.failed("%s; retrying: %s", self._state(now), error, cause=str(error))
            return False

    async def _collect(self, client: ApiClient, now: datetime) -> bool:
        assert self._asked is not None  # noqa: S101 - its caller has asked
        name, key, wanted, since = self._asked
        pem = await enrolment.collect(client, name, key)
        if pem is not None:
            await asyncio.to_thread(replace_file, self.path, pem + key, durable=True)
            self._asked, self._issued_for = None, wanted
            self.ends = validity(pem)[1]
            self._trouble.recovered()
            log.info("the %s certificate is new, valid until %s", self.use, format_time(self.ends))
        elif now - since > GIVE_UP or wanted != self._wanted():
            self._asked = None
            self.failures += 1
            text = "the request %s for a %s certificate is not granted: orchctl certificate approve"
            self._trouble.failed(text, name, self.use, cause="pending")
        return pem is not None

    def _wanted(self) -> Wanted | None:
        if self._hosts is None:
            return Wanted(self._node_name)
        hosts = tuple(self._hosts())
        return Wanted(self._node_name, hosts) if hosts else None

    def _is_due(self, wanted: Wanted, now: datetime) -> bool:
        try:
            with self.path.open("rb") as file:
                pem = file.read(_MAX_FILE_BYTES)
            start, self.ends = validity(pem)
            hosts, self_signed = signing_requests.hosts_of(pem)
        except (OSError, ValueError):
            return True
        if self._due is None or self._due[0] != start:
            share = random.uniform(*_SHARE)  # noqa: S311 - it only spreads the load
            self._due = start, start + (self.ends - start) * share
        differs = self_signed or {*hosts} != {*wanted.hosts}
        if wanted.hosts and wanted != self._issued_for and differs:
            return True
        return now >= self._due[1]

    def _state(self, now: datetime) -> str:
        if self.ends is None:
            return f"there is no {self.use} certificate yet"
        if self.ends <= now:
            again = ": 'nodeagent join' gets another" if self.use == "client" else ""
            return f"the {self.use} certificate expired on {format_time(self.ends)}{again}"
        return f"the {self.use} certificate is not renewed, it ends on {format_time(self.ends)}"


class Rotation:
    """All certificates that this agent renews; `on_new` is called when one is in its file."""

    def __init__(
        self, client: ApiClient, certificates: Sequence[ManagedCertificate], *, now: Now
    ) -> None:
        self.certificates = tuple(certificates)
        self.on_new: Callable[[], None] = lambda: None
        self._client = client
        self._now = now
        self._loop = Periodic("rotation", self.step, interval_s=INTERVAL_S, jitter=0.1)

    async def run(self) -> None:
        await self._loop.run()

    async def step(self) -> None:
        for certificate in self.certificates:
            if await certificate.step(self._client, self._now()):
                self.on_new()
        waits = any(certificate.waits for certificate in self.certificates)
        self._loop.interval_s = SOON_S if waits else INTERVAL_S
