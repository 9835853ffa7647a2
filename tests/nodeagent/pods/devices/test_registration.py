"""Plugins that are programs of their own register, list, die and come back."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from nodeagent.pods.devices import answers, registration
from nodeagent.pods.devices import deviceplugin_pb2 as pb
from nodeagent.pods.devices.inventory import Device, ResourceCount
from nodeagent.pods.devices.registration import Registration
from orch.component.process import loops
from tests.fakes.device_plugins import RESOURCE, PluginProgram, running, until

pytestmark = [pytest.mark.slow, pytest.mark.seconds(20)]


class Served:
    """A registration that runs, and what it told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told: list[tuple[str, frozenset[str]]] = []
        self.counts: Counter[str] = Counter()
        self.registration = Registration(folder, self._tell, self.counts)
        self._task: asyncio.Task[None] | None = None

    def _tell(self, resource: str, ids: Collection[str]) -> None:
        self.told.append((resource, frozenset(ids)))

    async def start(self) -> None:
        self._task = loops.spawn(self.registration.run(), name="registration")
        await until((self.folder / "kubelet.sock").exists)

    async def stop(self) -> None:
        if self._task:
            await loops.cancel(self._task)

    def offered(self, resource: str = RESOURCE) -> ResourceCount | None:
        return self.registration.inventory.counts().get(resource)


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    served = Served(tmp_path / "device-plugins")
    await served.start()
    yield served
    await served.stop()


async def test_a_plugin_offers_its_devices_until_it_is_killed(served: Served) -> None:
    async with running(served.folder, "3") as plugin:
        await until(lambda: served.offered() == ResourceCount(3, 3))
        assert served.counts == {RESOURCE: 1}
        await plugin.tell(devices={"dev-0": "Unhealthy", "dev-1": "Healthy"})
        await until(lambda: served.offered() == ResourceCount(2, 1))
        assert served.told[-1] == (RESOURCE, {"dev-0", "dev-2"})
        assert served.registration.plugin(RESOURCE)
        await plugin.kill()
        await until(lambda: served.offered() == ResourceCount(2, 0))
        assert served.registration.plugin(RESOURCE) is None
    async with running(served.folder, "1"):
        await until(lambda: served.offered() == ResourceCount(1, 1))


@pytest.mark.parametrize(
    ("resource", "words", "reason"),
    [
        (RESOURCE, ("version=v1alpha1",), 'requested API version "v1alpha1" is not supported'),
        (RESOURCE, ("version=v1",), 'requested API version "v1" is not supported'),
        ("kubernetes.io/foo", (), 'the ResourceName "kubernetes.io/foo" is invalid'),
        ("foo", (), 'the ResourceName "foo" is invalid'),
        (RESOURCE, ("endpoint=../foo.sock",), 'the endpoint "../foo.sock" is not the name'),
        (RESOURCE, ("endpoint=none.sock",), "failed to dial device plugin"),
        (RESOURCE, ("endpoint=link.sock",), "failed to dial device plugin"),
    ],
)
async def test_a_bad_registration_is_refused_with_the_reason(
    served: Served,
    resource: str,
    words: tuple[str, ...],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (served.folder / "link.sock").symlink_to(served.folder / "foo.sock")
    async with running(served.folder, *words, resource=resource) as plugin:
        await until(plugin.refusals)
        assert plugin.refusals()[0].startswith(reason)
    endpoint = next((word[9:] for word in words if word.startswith("endpoint=")), "foo.sock")
    assert f"the device plugin at '{endpoint}' is not registered: {reason}" in caplog.text
    assert served.registration.inventory.counts() == {}
    assert served.counts == {}, "each would be a label of a metric"


async def test_a_resource_in_use_is_refused_until_its_plugin_is_gone(served: Served) -> None:
    async with running(served.folder, "2") as first:
        await until(lambda: served.offered() == ResourceCount(2, 2))
        async with running(served.folder, "5", endpoint="other.sock") as other:
            await until(other.refusals)
            assert other.refusals() == [
                f"the ResourceName {RESOURCE} is already taken by another active device plugin,"
                " at foo.sock"
            ]
        assert served.offered() == ResourceCount(2, 2)
        await first.kill()
    async with running(served.folder, "5", endpoint="other.sock"):
        await until(lambda: served.offered() == ResourceCount(5, 5))


async def test_a_plugin_may_register_again(served: Served) -> None:
    """Many do so after each restart of theirs, some in the same process."""
    async with running(served.folder, "2") as plugin:
        await until(lambda: served.offered() == ResourceCount(2, 2))
        (served.folder / "foo.sock").unlink()
        async with running(served.folder, "4") as again:
            await until(lambda: again.is_registered)
            await until(lambda: served.offered() == ResourceCount(4, 4))
        await until(lambda: served.offered() == ResourceCount(4, 0))
        assert plugin.process.returncode is None


async def test_another_agent_clears_old_sockets_and_plugins_come_back(served: Served) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(served.folder / "stale.sock"))
    stale.close()
    (served.folder / "note").write_text("no socket")
    (served.folder / "link").symlink_to("stale.sock")
    async with running(served.folder, "2") as plugin:
        await until(lambda: served.offered() == ResourceCount(2, 2))
        await served.stop()
        assert not (served.folder / "kubelet.sock").exists()
        heir = Served(served.folder)
        heir.registration.expect([RESOURCE, "example.com/lost"])
        assert heir.offered() == ResourceCount(0, 0)
        await heir.start()
        await until(lambda: heir.offered() == ResourceCount(2, 2))
        assert heir.offered("example.com/lost") == ResourceCount(0, 0)
        left = {path.name for path in served.folder.iterdir()}
        assert left == {"kubelet.sock", "foo.sock", "note", "link"}
        assert len(plugin.said) >= 4, "it registered twice, and was listed twice"
        await heir.stop()


async def test_only_the_agents_own_user_may_register(served: Served) -> None:
    assert stat.S_IMODE(served.folder.stat().st_mode) == 0o700
    socket_file = served.folder / "kubelet.sock"
    await until(lambda: stat.S_IMODE(socket_file.stat().st_mode) == 0o600)  # once it is served


async def test_a_folder_with_a_long_path_serves_as_well(tmp_path: Path) -> None:
    served = Served(tmp_path / ("x" * 100) / "device-plugins")
    await served.start()
    os.symlink(served.folder, short := tmp_path / "short")
    async with running(short, "2"):
        await until(lambda: served.offered() == ResourceCount(2, 2))
    await served.stop()


@pytest.mark.parametrize("devices", [{str(n): "Healthy" for n in range(20_000)}, {"": "Healthy"}])
async def test_a_list_beyond_the_bounds_ends_the_plugin(
    served: Served, devices: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with running(served.folder, "2") as plugin:
        await until(lambda: served.offered() == ResourceCount(2, 2))
        await plugin.tell(devices=devices)
        await until(lambda: served.offered() == ResourceCount(2, 0))
    assert "the device plugin foo.sock is gone: ListAndWatch" in caplog.text


async def test_one_list_is_read_at_a_time_however_often_plugins_register(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread for each made the agent a gigabyte larger, and slow."""
    read, under_way, most = answers.devices, 0, 0

    def reading(found: bytes) -> dict[str, Device]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.1)
        under_way -= 1
        return read(found)

    monkeypatch.setattr(answers, "devices", reading)
    async with (
        running(served.folder, "3"),
        running(served.folder, "3", endpoint="b.sock", resource="a.b/c"),
    ):
        await until(lambda: served.offered() and served.offered("a.b/c"))
        async with grpc.aio.insecure_channel(f"unix:{served.folder}/kubelet.sock") as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register")
            for resource, endpoint in [(RESOURCE, "foo.sock"), ("a.b/c", "b.sock")] * 10:
                request = pb.RegisterRequest(
                    version="v1beta1", endpoint=endpoint, resource_name=resource
                )
                await register(request.SerializeToString(), timeout=30)
        await until(lambda: served.offered() == ResourceCount(3, 3))
    assert most == 1


async def test_a_stopped_plugin_gives_way_and_keeps_nobody_waiting(served: Served) -> None:
    async with running(served.folder, "2") as hung:
        await until(lambda: served.offered() == ResourceCount(2, 2))
        os.kill(hung.process.pid, 19)
        async with running(served.folder, "3", endpoint="other.sock") as other:
            async with running(served.folder, "1", resource="a.b/c", endpoint="abc.sock"):
                await until(lambda: served.offered("a.b/c") == ResourceCount(1, 1))
            assert not other.said, "that one waits to hear whether the first is alive"
            await until(lambda: served.offered() == ResourceCount(3, 3))


async def test_the_socket_is_had_again_after_something_else_was_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orch.component.grpc_server._RETRY_S", 0.05)
    folder = tmp_path / "device-plugins"
    folder.mkdir()
    (folder / "kubelet.sock").write_text("a file of somebody")
    served = Served(folder)
    await served.start()
    await until(lambda: "device plugins cannot register, retrying" in caplog.text)
    assert (folder / "kubelet.sock").read_text() == "a file of somebody"
    (folder / "kubelet.sock").unlink()
    async with running(folder, "2"):
        await until(lambda: served.offered() == ResourceCount(2, 2))
    await served.stop()


@pytest.mark.parametrize(
    "request_bytes", [b"\xff", b"\x0a" * 1000, b"\x0a\xff\xff\x7f", b"x" * 70_000]
)
async def test_bytes_that_are_no_registration_are_refused_and_change_nothing(
    served: Served, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with grpc.aio.insecure_channel(f"unix:{served.folder}/kubelet.sock") as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await channel.unary_unary("/v1beta1.Registration/Register")(request_bytes, timeout=10)
    async with running(served.folder, "2"):
        await until(lambda: served.offered() == ResourceCount(2, 2))
    assert "Traceback" not in caplog.text


async def test_many_plugins_are_served_side_by_side(served: Served) -> None:
    plugins = [
        await PluginProgram.start(
            served.folder, "2", resource=f"example.com/r{n}", endpoint=f"r{n}.sock"
        )
        for n in range(4)
    ]
    await until(lambda: len(served.registration.inventory.counts()) == 4)
    for plugin in plugins:
        await plugin.kill()
    await until(
        lambda: not any(c.allocatable for c in served.registration.inventory.counts().values())
    )


class Silent(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A plugin that never lists its devices."""

    def service(self, details: Any) -> Any:
        async def options(_request: bytes, _context: Any) -> bytes:
            return b""

        async def lists(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        if details.method.endswith("ListAndWatch"):
            return grpc.unary_stream_rpc_method_handler(lists)
        return grpc.unary_unary_rpc_method_handler(options)


async def test_plugins_that_never_list_count_as_well(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "MAX_RESOURCES", 2)
    silent = grpc.aio.server()
    silent.add_generic_rpc_handlers((Silent(),))
    silent.add_insecure_port(f"unix:{served.folder}/silent.sock")
    await silent.start()
    async with grpc.aio.insecure_channel(f"unix:{served.folder}/kubelet.sock") as channel:
        register = channel.unary_unary("/v1beta1.Registration/Register")

        async def ask(resource: str) -> None:
            request = pb.RegisterRequest(
                version="v1beta1", endpoint="silent.sock", resource_name=resource
            )
            await register(request.SerializeToString(), timeout=10)

        await ask("example.com/a")
        await ask("example.com/b")
        with pytest.raises(grpc.aio.AioRpcError, match="no more may register"):
            await ask("example.com/c")
        assert served.counts == {"example.com/a": 1, "example.com/b": 1}
        await silent.stop(None)
        await until(lambda: not served.registration.plugin("example.com/a"))
        async with running(served.folder, "1") as plugin:  # it need not wait until they expire
            await until(lambda: plugin.is_registered)


async def test_a_plugin_that_registers_in_a_loop_is_slowed_down(served: Served) -> None:
    """Its list is read at once each time, however long, and the log tells of it."""
    loop = asyncio.get_running_loop()
    async with running(served.folder, "3"):
        await until(lambda: served.offered() == ResourceCount(3, 3))
        async with grpc.aio.insecure_channel(f"unix:{served.folder}/kubelet.sock") as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register")
            request = pb.RegisterRequest(
                version="v1beta1", endpoint="foo.sock", resource_name=RESOURCE
            ).SerializeToString()
            began_s, often = loop.time(), registration.MAX_RESOURCES + 10
            for _ in range(often):
                await register(request, timeout=30)
            took_s = loop.time() - began_s
        counted = served.counts[RESOURCE]
        assert counted == often + 1
        assert counted <= registration.MAX_RESOURCES + 10 * took_s + 1
        await until(lambda: served.offered() == ResourceCount(3, 3))
