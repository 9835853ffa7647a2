from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from orch.server.storage.base import (
    Compacted,
    StorageFailed,
    StorageUnavailable,
)
from orch.server.storage.etcd import EtcdAccess, EtcdClient
from tests.orch.server.storage.etcdserver import EtcdServer, running_etcd

pytestmark = pytest.mark.real


def client_of(*servers: str, **access: object) -> tuple[EtcdClient, list[tuple[str, bool]]]:
    """The client, opened, and its calls so far."""
    calls: list[tuple[str, bool]] = []
    client = EtcdClient(
        EtcdAccess(servers, **access),  # type: ignore[arg-type]
        observe=lambda operation, _seconds, failed: calls.append((operation, failed)),
    )
    client.open()
    return client, calls


async def test_a_write_happens_only_on_its_condition(etcd: EtcdServer) -> None:
    client, calls = client_of(etcd.url)
    made = await client.put(b"/t1/x", b"1", 0)
    taken = await client.put(b"/t1/x", b"2", 0)
    changed = await client.put(b"/t1/x", b"3", made.revision)
    late = await client.delete(b"/t1/x", made.revision)
    gone = await client.delete(b"/t1/x", None)
    nothing = await client.delete(b"/t1/x", None)
    assert [one.written for one in (made, taken, changed, late, gone, nothing)] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    assert (taken.found.value, late.found.revision) == (b"1", changed.revision)
    assert (gone.found.value, nothing.found) == (b"3", None)
    assert calls == [
        ("create", False), ("create", False), ("update", False), *[("delete", False)] * 3,
    ]  # fmt: skip
    await client.close()


async def test_a_server_that_is_away_is_passed_over(etcd: EtcdServer) -> None:
    client, calls = client_of("http://127.0.0.1:1", etcd.url)
    assert await client.revision() > 0
    assert await client.size_bytes() > 0
    assert calls == [("revision", True), ("revision", False), ("status", False)]
    await client.close()


async def test_a_watch_from_a_forgotten_revision_says_so(etcd: EtcdServer) -> None:
    client, _ = client_of(etcd.url)
    first = await client.put(b"/t2/x", b"1", 0)
    second = await client.put(b"/t2/x", b"2", first.revision)
    await client.compact(second.revision)
    with pytest.raises(Compacted):
        async for _ in client.watch(first.revision):
            pass
    with pytest.raises(Compacted):
        await client.compact(first.revision)
    await client.close()


async def test_a_closed_client_makes_no_calls(etcd: EtcdServer) -> None:
    client, _ = client_of(etcd.url)
    await client.close()
    with pytest.raises(StorageFailed, match="not open"):
        await client.revision()


def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="missing"):
        client_of("https://127.0.0.1:1", ca_file=tmp_path / "missing.pem")


async def test_over_tls_both_sides_prove_who_they_are(tmp_path: Path) -> None:
    authority = trustme.CA()
    serving, own = authority.issue_cert("127.0.0.1"), authority.issue_cert("api")
    files = {
        name: tmp_path / name for name in ("ca.pem", "server.pem", "server.key", "c.pem", "c.key")
    }
    authority.cert_pem.write_to_path(files["ca.pem"])
    serving.cert_chain_pems[0].write_to_path(files["server.pem"])
    serving.private_key_pem.write_to_path(files["server.key"])
    own.cert_chain_pems[0].write_to_path(files["c.pem"])
    own.private_key_pem.write_to_path(files["c.key"])
    flags = (
        f"--cert-file={files['server.pem']}", f"--key-file={files['server.key']}",
        f"--trusted-ca-file={files['ca.pem']}", "--client-cert-auth",
    )  # fmt: skip
    with running_etcd(*flags, scheme="https") as server:
        known, _ = client_of(
            server.url, ca_file=files["ca.pem"], cert_file=files["c.pem"], key_file=files["c.key"]
        )
        assert await known.revision() > 0
        await known.close()
        unknown, _ = client_of(server.url, ca_file=files["ca.pem"])
        with pytest.raises(StorageUnavailable):
            await unknown.revision()
        await unknown.close()
