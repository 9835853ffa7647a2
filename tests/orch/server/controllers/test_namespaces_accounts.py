from __future__ import annotations

import asyncio

import pytest

from orch.server.controllers.namespaces import make_default_accounts
from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, read


async def test_every_namespace_gets_an_account_and_gets_it_again(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    await make_default_accounts(backend)
    account = place("ServiceAccount", "default", namespace="x")
    first = read(backend, account)
    assert first is not None
    assert read(backend, place("ServiceAccount", "default")) is not None
    await delete(backend, account, DeleteOptions())
    await make_default_accounts(backend)
    again = read(backend, account)
    assert again is not None
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_of_two_servers_the_slower_has_nothing_to_say(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.gather(make_default_accounts(backend), make_default_accounts(backend))
    assert read(backend, place("ServiceAccount", "default")) is not None
    assert caplog.messages == []


async def test_a_namespace_that_goes_gets_none(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    await delete(backend, place("Namespace", "x"), DeleteOptions())
    await make_default_accounts(backend)
    assert read(backend, place("ServiceAccount", "default", namespace="x")) is None


async def test_a_failing_medium_is_for_the_next_round(
    backend: Backend, medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    medium.failing = StorageFailed("disk full")
    await make_default_accounts(backend)
    assert caplog.messages == []  # said once, by the health of storage
    medium.failing = None
    await make_default_accounts(backend)
    assert read(backend, place("ServiceAccount", "default")) is not None
