"""The parts together: health that tells the truth, and an end in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from orch.component.process import loops
from orch.component.process.daemon import SetupError
from orch.server import flags
from orch.server.server import Server
from orch.server.storage import sqlite
from orch.server.storage.base import StorageFailed
from tests.orch.server.harness import NODES, PODS, Api, Pki, node, pod


async def test_health_names_its_checks_as_the_reference_does(api: Api) -> None:
    verbose = (await api.call("GET", "/readyz?verbose")).text
    names = [line[3:].split()[0] for line in verbose.splitlines() if line.startswith("[+]")]
    hook = "poststarthook/rbac/bootstrap-roles"
    assert names == ["ping", "log", "etcd", "etcd-readiness", hook, "informer-sync", "shutdown"]
    assert (await api.call("GET", "/livez/etcd")).text == "ok"
    assert (await api.call("GET", "/livez/etcd-readiness")).status == 404


async def test_a_storage_that_cannot_write_is_unhealthy_and_answers_500(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await api.call("POST", NODES, node("n1"))

    def full(*_: object) -> None:
        raise StorageFailed("database or disk is full")

    monkeypatch.setattr(sqlite.SqliteMedium, "commit", full)
    failed = await api.call("POST", NODES, node("n2"))
    assert (failed.status, failed.json["reason"]) == (500, "InternalError")
    assert "disk is full" in failed.json["message"]
    await api.server.storage_health.look()
    assert (await api.call("GET", "/readyz")).status == 500
    assert "[-]etcd failed: reason withheld" in (await api.call("GET", "/healthz")).text
    assert (await api.call("GET", f"{NODES}/n1")).status == 200  # reads go on
    monkeypatch.undo()
    assert (await api.call("POST", NODES, node("n2"))).status == 201
    await api.server.storage_health.look()
    assert (await api.call("GET", "/readyz")).status == 200


async def test_it_is_not_ready_while_an_informer_does_not_follow(api: Api) -> None:
    await loops.cancel(*[task for task in api.following if task.get_name() == "informer-pods"])
    assert (await api.call("GET", "/readyz")).status == 200
    assert (await api.call("POST", PODS, pod("p"))).status == 201
    assert (await api.call("POST", NODES, node("n1"))).status == 201
    await api.call("GET", "/readyz")
    failed = await api.call("GET", "/readyz/informer-sync")
    assert failed.text == "internal server error: behind storage: informer-pods\n"


async def test_asking_for_health_writes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await loops.cancel(*api.following)

    async def check() -> None:
        raise AssertionError("a commit was made for somebody without credentials")

    monkeypatch.setattr(api.server.storage, "check", check)
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await api.call("GET", path, user=None)).status == 200


async def test_readiness_fails_as_soon_as_it_winds_down(api: Api) -> None:
    await api.server.wind_down()
    assert (await api.call("GET", "/readyz")).status == 500
    assert (await api.call("GET", "/livez")).status == 200


async def test_a_restart_serves_the_same_objects(server_pki: Pki, tmp_path: Path) -> None:
    first = await Api.start(server_pki, tmp_path / "data")
    created = await first.call("POST", NODES, node("n1"))
    await first.stop()
    second = await Api.start(server_pki, tmp_path / "data")
    assert (await second.call("GET", f"{NODES}/n1")).json == created.json
    listed = (await second.call("GET", NODES)).json["metadata"]["resourceVersion"]
    assert int(listed) >= int(created.json["metadata"]["resourceVersion"])
    await second.stop()


async def test_a_file_in_use_is_a_setup_error(
    api: Api, server_pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 0.05)
    parsed = flags.parse(
        ["--tls-cert-file=c", "--tls-private-key-file=k", f"--data-dir={tmp_path / 'data'}"]
    )
    with pytest.raises(SetupError, match="another process has it open"):
        await Server(parsed).open()


async def test_reads_do_not_need_the_medium(api: Api) -> None:
    await api.server.close()
    assert (await api.call("GET", NODES)).status == 200
    with pytest.raises(StorageFailed):
        await api.server.storage.check()
