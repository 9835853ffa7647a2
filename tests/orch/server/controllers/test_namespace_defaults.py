from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orch.component.process.daemon import SetupError
from orch.server.controllers.namespace_defaults import NamespaceDefaults
from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.document import Document
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, read


async def test_every_namespace_gets_an_account_and_gets_it_again(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    await NamespaceDefaults(None).step(backend)
    account = place("ServiceAccount", "default", namespace="x")
    first = read(backend, account)
    assert first is not None
    assert read(backend, place("ServiceAccount", "default")) is not None
    await delete(backend, account, DeleteOptions())
    await NamespaceDefaults(None).step(backend)
    again = read(backend, account)
    assert again is not None
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


async def test_of_two_servers_the_slower_has_nothing_to_say(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.gather(
        NamespaceDefaults(None).step(backend), NamespaceDefaults(None).step(backend)
    )
    assert read(backend, place("ServiceAccount", "default")) is not None
    assert caplog.messages == []


async def test_a_namespace_that_goes_gets_none(backend: Backend) -> None:
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    await delete(backend, place("Namespace", "x"), DeleteOptions())
    await NamespaceDefaults(None).step(backend)
    assert read(backend, place("ServiceAccount", "default", namespace="x")) is None


async def test_a_failing_medium_is_for_the_next_round(
    backend: Backend, medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    medium.failing = StorageFailed("disk full")
    await NamespaceDefaults(None).step(backend)
    assert caplog.messages == []  # said once, by the health of storage
    medium.failing = None
    await NamespaceDefaults(None).step(backend)
    assert read(backend, place("ServiceAccount", "default")) is not None


def pem(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"


def published(backend: Backend, namespace: str = "default") -> object:
    found = read(backend, place("ConfigMap", "kube-root-ca.crt", namespace=namespace))
    return found and found["data"]


async def test_every_namespace_has_the_certificates_of_the_server(
    backend: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(pem("one"))
    defaults = NamespaceDefaults(file)
    await made(backend, "Namespace", {"metadata": {"name": "x"}})
    await defaults.step(backend)
    assert published(backend) == published(backend, "x") == {"ca.crt": pem("one")}
    place_of_it = place("ConfigMap", "kube-root-ca.crt", namespace="x")

    await delete(backend, place_of_it, DeleteOptions())
    await defaults.step(backend)
    assert published(backend, "x") == {"ca.crt": pem("one")}

    await modify(backend, place_of_it, lambda found: {**found, "data": {"ca.crt": "mine"}})
    await defaults.step(backend)
    assert published(backend, "x") == {"ca.crt": pem("one")}

    def keep(found: Document) -> Document:
        held = {**found["metadata"], "finalizers": ["example.com/mine"]}
        return {**found, "metadata": held, "immutable": True, "data": {"ca.crt": "mine"}}

    await modify(backend, place_of_it, keep)
    await defaults.step(backend)
    assert published(backend, "x") == {"ca.crt": pem("one")}
    assert caplog.messages == []

    file.write_text("half a fi")
    for _ in range(3):
        await defaults.step(backend)
    assert published(backend, "x") == {"ca.crt": pem("one")}
    assert len([text for text in caplog.messages if "pods keep the certificates" in text]) == 1

    revision = backend.storage.revision
    file.write_text(pem("two"))
    await defaults.step(backend)
    assert published(backend) == published(backend, "x") == {"ca.crt": pem("two")}
    written = backend.storage.revision
    assert written > revision
    await defaults.step(backend)
    assert backend.storage.revision == written  # what is right is not written


@pytest.mark.parametrize(
    "content", [None, "", "no certificate", pem("a") + "-----BEGIN PRIVATE KEY-----", "é" * 9]
)
def test_a_file_that_is_no_root_ca_is_named_at_the_start(
    content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SetupError, match=f"--root-ca-file={file}: "):
        NamespaceDefaults(file)
    file.write_text(pem("x" * 2**20))
    with pytest.raises(SetupError, match="at most"):
        NamespaceDefaults(file)
