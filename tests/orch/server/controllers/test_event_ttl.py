from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from orch.server.controllers.event_ttl import expire_events
from orch.server.objects.backend import Backend
from orch.server.storage.base import StorageFailed
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, read


async def test_old_events_are_forgotten_and_recent_ones_kept(
    backend: Backend, medium: FakeMedium
) -> None:
    for name, seen in (("old", "2026-01-01T10:00:00Z"), ("new", "2026-01-01T11:30:00Z")):
        await made(backend, "Event", {"metadata": {"name": name}, "lastTimestamp": seen})
    later = replace(backend, now=lambda: backend.now() + timedelta(minutes=65))
    await expire_events(backend)
    assert read(backend, place("Event", "old")) is not None  # created just now
    medium.failing = StorageFailed("disk full")
    await expire_events(later)
    medium.failing = None
    await expire_events(later)
    assert read(backend, place("Event", "old")) is None
    assert read(backend, place("Event", "new")) is None


async def test_an_event_that_claims_a_time_to_come_is_kept_no_longer(backend: Backend) -> None:
    for name in ("e", "f"):
        event = {"metadata": {"name": name}, "lastTimestamp": "2999-01-01T00:00:00Z"}
        await made(backend, "Event", event)
    await expire_events(backend)
    later = replace(backend, now=lambda: backend.now() + timedelta(minutes=65))
    await expire_events(later)
    assert read(backend, place("Event", "e")) is None


async def test_an_event_without_a_time_is_read_once_and_kept(backend: Backend) -> None:
    await made(backend, "Event", {"metadata": {"name": "odd"}})
    stored = backend.storage.get("/events/default/odd")
    stored.memo["last_seen"] = None
    later = replace(backend, now=lambda: backend.now() + timedelta(days=1))
    await expire_events(later)
    assert read(backend, place("Event", "odd")) is not None
