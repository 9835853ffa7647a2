"""The adapter's connection: shared, lost, regained, closed; and calls whose callers leave."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from pathlib import Path

import pytest

from nodeagent.runtime import base, cri
from nodeagent.runtime.base import SandboxSpec
from nodeagent.runtime.cri import CriRuntime
from orch.component.process import loops
from tests.conftest_runtime import provisioned, remove_pod_cgroups
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime


async def answers(runtime: CriRuntime, *, within_s: float) -> float:
    """Seconds until the runtime answers again."""
    started = time.monotonic()
    while True:
        try:
            await runtime.version()
        except base.RuntimeUnavailable:
            assert time.monotonic() - started < within_s
            await asyncio.sleep(0.02)
        else:
            return time.monotonic() - started


async def test_many_calls_share_one_connection(server: CriServer, runtime: CriRuntime) -> None:
    versions = await asyncio.gather(*(runtime.version() for _ in range(200)))

    assert len(versions) == 200


async def test_without_a_socket_the_runtime_is_unavailable_at_once(tmp_path: Path) -> None:
    runtime = CriRuntime(f"unix://{tmp_path}/absent.sock")

    started = time.monotonic()
    with pytest.raises(base.RuntimeUnavailable, match=r"absent\.sock"):
        await runtime.version()
    assert time.monotonic() - started < 10
    await runtime.close()


async def test_a_file_that_is_no_socket_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a socket")
    runtime = CriRuntime(f"unix://{tmp_path}/file")

    with pytest.raises(base.RuntimeUnavailable):
        await runtime.version()
    await runtime.close()


@pytest.mark.parametrize("noise", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 4096])
async def test_a_server_with_another_protocol_is_an_error_within_the_deadline(
    tmp_path: Path, noise: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cri, "READ_TIMEOUT_S", 1.0)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(noise)
        writer.close()
        await writer.wait_closed()

    stranger = await asyncio.start_unix_server(speak, tmp_path / "other.sock")
    runtime = CriRuntime(f"unix://{tmp_path}/other.sock")
    with pytest.raises(base.RuntimeCallError):
        await runtime.version()
    await runtime.close()
    stranger.close()
    await stranger.wait_closed()


@pytest.mark.slow
async def test_an_oversized_response_is_an_error_and_the_connection_survives(
    server: CriServer, runtime: CriRuntime
) -> None:
    huge = "x" * (81 * 1024 * 1024)
    server.runtime.runtime_conditions = [base.RuntimeCondition("Huge", True, message=huge)]

    with pytest.raises(base.RuntimeCallError, match="code = ResourceExhausted"):
        await runtime.conditions()
    assert await runtime.version()


async def test_a_runtime_that_dies_during_a_call_is_unavailable(
    server: CriServer, runtime: CriRuntime
) -> None:
    held = server.runtime.hold("version")
    call = asyncio.ensure_future(runtime.version())
    await held.reached.wait()

    await server.stop()

    with pytest.raises(base.RuntimeUnavailable):
        await call


@pytest.mark.slow
async def test_the_runtime_is_reached_again_within_a_second_of_its_return(
    server: CriServer, runtime: CriRuntime
) -> None:
    took_s = []
    for _ in range(3):  # the machine may be busy: the best counts
        await runtime.version()
        await server.stop()
        for _ in range(12):  # long enough for the back-off to grow to its bound
            with pytest.raises(base.RuntimeUnavailable):
                await runtime.version()
            await asyncio.sleep(0.1)
        await server.start()
        took_s.append(await answers(runtime, within_s=30))
        if took_s[-1] < 1.5:
            return
    raise AssertionError(took_s)


async def test_a_runtime_that_is_slow_to_greet_is_waited_for(
    server: CriServer, tmp_path: Path
) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1.5)
        answers, questions = await asyncio.open_unix_connection(tmp_path / "cri.sock")
        await asyncio.gather(pass_on(reader, questions), pass_on(answers, writer))

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()
        await writer.wait_closed()
        ended.release()

    ended = asyncio.Semaphore(0)
    slow = await asyncio.start_unix_server(relay, tmp_path / "slow.sock")
    runtime = CriRuntime(f"unix://{tmp_path}/slow.sock")
    assert (await runtime.version()).api_version == "v1"
    await runtime.close()
    for _ in range(2):
        await ended.acquire()
    slow.close()
    await slow.wait_closed()


async def test_closing_ends_calls_in_flight_as_unavailable_and_refuses_new_ones(
    server: CriServer, runtime: CriRuntime
) -> None:
    held = server.runtime.hold("version")
    call = asyncio.ensure_future(runtime.version())
    await held.reached.wait()

    await runtime.close()

    with pytest.raises(base.RuntimeUnavailable, match="was closed"):
        await call
    with pytest.raises(base.RuntimeUnavailable, match="was closed"):
        await runtime.version()
    await runtime.close()


async def test_a_cancelled_read_is_cancelled_at_the_runtime_too(
    server: CriServer, runtime: CriRuntime
) -> None:
    held = server.runtime.hold("version")
    call = asyncio.ensure_future(runtime.version())
    await held.reached.wait()

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(30):
        await held.ended.wait()
    assert await runtime.conditions()


@pytest.mark.parametrize(
    ("operation", "waits"), [("start_container", True), ("stop_container", False)]
)
async def test_a_change_goes_on_at_the_runtime_whether_its_cancelled_caller_waits_or_not(
    server: CriServer, runtime: CriRuntime, operation: str, waits: bool
) -> None:
    held = server.runtime.hold(operation)
    calls = {
        "start_container": runtime.start_container,
        "stop_container": functools.partial(runtime.stop_container, timeout_s=100),
    }
    call = asyncio.ensure_future(calls[operation]("a"))
    await held.reached.wait()
    call.cancel()
    done, _ = await asyncio.wait((call,), timeout=0.1)
    assert bool(done) is not waits
    assert not held.ended.is_set()
    held.release()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_of_the_stops_that_callers_have_left_the_last_goes_on(server: CriServer) -> None:
    """A pod that is deleted a thousand times with ever less grace had a thousand calls waiting."""
    ended: list[str] = []
    runtime = CriRuntime(server.endpoint, observe=lambda operation, *_: ended.append(operation))
    holds = []

    async def stop(container: str, *, grace_s: int) -> asyncio.Task[None]:
        holds.append(held := server.runtime.hold("stop_container"))
        call = asyncio.ensure_future(runtime.stop_container(container, timeout_s=grace_s))
        await held.reached.wait()
        return call

    try:
        for grace_s in range(100, 90, -1):
            await loops.cancel(await stop("a", grace_s=grace_s))
        assert ended == ["StopContainer"] * 9
        other = await stop("b", grace_s=1)
        assert len(ended) == 9
        for held in holds:
            held.release()
        await other
    finally:
        await runtime.close()


async def test_a_runtime_that_was_never_called_closes(tmp_path: Path) -> None:
    await CriRuntime(f"unix://{tmp_path}/absent.sock").close()


def test_no_thread_or_descriptor_is_left_behind(tmp_path: Path) -> None:
    async def use() -> None:
        server = CriServer(FakeRuntime(), tmp_path / "cri.sock")
        await server.start()
        for _ in range(5):
            runtime = CriRuntime(server.endpoint)
            await runtime.version()
            await runtime.close()
        await server.stop()

    def held() -> tuple[int, int]:
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    asyncio.run(use())  # what grpc makes once and keeps is not counted
    threads, descriptors = held()
    for _ in range(3):
        asyncio.run(use())

    deadline = time.monotonic() + 30  # grpc closes in the background
    while (now := held())[0] > threads or now[1] > descriptors:
        assert time.monotonic() < deadline, f"{now} are left, before it was {threads, descriptors}"
        time.sleep(0.02)


@pytest.mark.real
async def test_containerd_killed_frozen_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SandboxSpec("web", "restart", "u-restart", cgroup_parent="/orchpods/podu-restart")
    with provisioned(tmp_path / "rt") as real:
        runtime = CriRuntime(real.endpoint)
        sandbox_id = await runtime.run_sandbox(spec)

        real.control("stop", "--signal", "KILL")
        with pytest.raises(base.RuntimeUnavailable):
            await runtime.version()
        real.control("start")
        await answers(runtime, within_s=30)
        assert [s.id for s in await runtime.list_sandboxes()] == [sandbox_id]

        real.control("stop", "--signal", "STOP")
        with monkeypatch.context() as patched:
            patched.setattr(cri, "READ_TIMEOUT_S", 1.0)
            with pytest.raises(base.RuntimeTimeout):
                await runtime.version()
        real.control("stop", "--signal", "CONT")
        assert (await runtime.version()).name == "containerd"

        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
        await runtime.close()
        remove_pod_cgroups(spec.cgroup_parent)
