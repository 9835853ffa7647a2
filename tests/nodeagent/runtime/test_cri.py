"""The adapter itself: deadlines, lost and regained connections, refusals, an orderly end."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from nodeagent.runtime import base, cri, cri_requests
from nodeagent.runtime.base import SandboxSpec
from nodeagent.runtime.cri import CriRuntime
from orch.component.process import loops
from orch.component.secret import Secret
from tests.conftest_runtime import provisioned, remove_pod_cgroups
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime
from tests.nodeagent.runtime.containers import CONTAINER, SANDBOX, a_running_container


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


def test_an_endpoint_is_a_unix_socket_and_reported_as_written() -> None:
    assert CriRuntime("unix:///run/x.sock").endpoint == "unix:///run/x.sock"
    with pytest.raises(ValueError, match=r"write it as unix:///path/to/the\.sock"):
        CriRuntime("tcp://127.0.0.1:1")


READ, WRITE = cri.READ_TIMEOUT_S, 120.0
Calls = Callable[[CriRuntime], Awaitable[Any]]
DEADLINES: list[tuple[str, Calls, float]] = [
    ("Version", lambda r: r.version(), READ),
    ("Status", lambda r: r.conditions(), READ),
    ("ListPodSandbox", lambda r: r.list_sandboxes(), READ),
    ("ListContainers", lambda r: r.list_containers(), READ),
    ("ListContainerStats", lambda r: r.container_usage(), READ),
    ("ListPodSandboxStats", lambda r: r.sandbox_usage(), READ),
    ("ListImages", lambda r: r.images(), READ),
    ("ImageFsInfo", lambda r: r.image_filesystems(), READ),
    ("RunPodSandbox", lambda r: r.run_sandbox(SANDBOX), 2 * WRITE),
    ("StopPodSandbox", lambda r: r.stop_sandbox("x"), WRITE),
    ("StopContainer", lambda r: r.stop_container("x", timeout_s=30), 30 + WRITE),
    ("RemoveContainer", lambda r: r.remove_container("x"), WRITE),
    ("PullImage", lambda r: r.pull_image("localhost/busybox:1"), cri.PULL_TIMEOUT_S),
]


@pytest.mark.parametrize(("method", "call", "deadline_s"), DEADLINES)
async def test_every_call_has_a_deadline(
    server: CriServer, runtime: CriRuntime, method: str, call: Calls, deadline_s: float
) -> None:
    await call(runtime)

    ((called, _, left_s),) = server.requests
    assert called == method
    assert left_s == pytest.approx(deadline_s, rel=0.02, abs=5)  # gRPC sends three digits


@pytest.mark.parametrize("login", [None, base.Login("me", Secret("s3cret"))])
async def test_a_pull_tells_the_runtime_who_pulls_if_anybody(
    server: CriServer, runtime: CriRuntime, login: base.Login | None
) -> None:
    await runtime.pull_image("localhost/busybox:1", login)
    assert server.runtime.logins == [login]


async def test_a_checkpoints_limit_is_sent_and_is_the_deadline(
    server: CriServer, runtime: CriRuntime, tmp_path: Path
) -> None:
    container_id = await a_running_container(runtime)

    location = str(tmp_path / "a.tar")
    await runtime.checkpoint_container(container_id, location=location, timeout_s=300.5)

    _, request, left_s = server.requests[-1]
    assert (request.container_id, request.location) == (container_id, location)
    assert request.timeout == 301
    assert left_s == pytest.approx(300.5, abs=5)


@pytest.mark.parametrize(("timeout_s", "sent"), [(0.2, 1), (1.0, 1), (1.5, 2), (30.0, 30)])
async def test_a_command_s_limit_is_rounded_up_and_never_unlimited(
    server: CriServer, runtime: CriRuntime, timeout_s: float, sent: int
) -> None:
    container_id = await a_running_container(runtime)

    await runtime.exec_sync(container_id, ("true",), timeout_s=timeout_s)

    _, request, left_s = server.requests[-1]
    assert request.timeout == sent
    assert left_s == pytest.approx(sent + READ, abs=5)


async def test_a_runtime_that_never_answers_times_out(
    server: CriServer, runtime: CriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.hang("Version")

    with monkeypatch.context() as patched:
        patched.setattr(cri, "READ_TIMEOUT_S", 0.2)
        with pytest.raises(base.RuntimeTimeout, match="code = DeadlineExceeded") as caught:
            await runtime.version()
    assert caught.value.operation == "Version"
    assert await runtime.conditions()  # the other calls of the connection go on


async def test_a_slow_answer_within_the_deadline_is_an_answer(
    server: CriServer, runtime: CriRuntime
) -> None:
    server.delay("Version", 0.1)

    assert (await runtime.version()).name == "fake"


async def test_a_call_the_runtime_lacks_is_not_supported(
    server: CriServer, runtime: CriRuntime
) -> None:
    details = "unknown method CheckpointContainer for service runtime.v1.RuntimeService"
    server.refuse("CheckpointContainer", grpc.StatusCode.UNIMPLEMENTED, details)

    with pytest.raises(base.RuntimeNotSupported) as caught:
        await runtime.checkpoint_container("x", location="/x", timeout_s=10)
    assert str(caught.value) == f"rpc error: code = Unimplemented desc = {details}"


async def test_a_paused_container_is_resumed_over_containerds_own_api(
    server: CriServer, runtime: CriRuntime
) -> None:
    container_id = await a_running_container(runtime)
    server.runtime.paused.add(container_id)

    assert await runtime.resume_container(container_id) is True
    assert await runtime.resume_container(container_id) is False


async def test_a_runtime_without_that_api_cannot_resume(
    server: CriServer, runtime: CriRuntime
) -> None:
    details = "unknown service containerd.services.tasks.v1.Tasks"
    server.refuse("Resume", grpc.StatusCode.UNIMPLEMENTED, details)

    with pytest.raises(base.RuntimeNotSupported, match=details):
        await runtime.resume_container("x")


async def test_every_call_is_observed_with_its_outcome(server: CriServer) -> None:
    told: list[tuple[str, bool]] = []
    durations: list[float] = []

    def observe(operation: str, duration_s: float, failed: bool) -> None:
        told.append((operation, failed))
        durations.append(duration_s)

    runtime = CriRuntime(server.endpoint, observe=observe)
    await runtime.version()
    with pytest.raises(base.RuntimeNotFound):
        await runtime.start_container("x")
    await runtime.close()

    assert told == [("Version", False), ("StartContainer", True)]
    assert all(0 < duration_s < 5 for duration_s in durations)


async def test_an_answer_that_cannot_be_decoded_is_a_failed_call_and_counts(
    server: CriServer, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, bool]] = []
    runtime = CriRuntime(
        server.endpoint, observe=lambda name, _, failed: told.append((name, failed))
    )
    for name, call, _ in DEADLINES:
        server.garble(name)
        with pytest.raises(base.RuntimeCallError, match="Internal desc = the answer is no message"):
            await call(runtime)
    assert told == [(name, True) for name, *_ in DEADLINES]
    server.heal()
    assert await runtime.version()
    await runtime.close()
    assert not caplog.records  # grpc writes a traceback for each


async def test_an_answer_about_nothing_or_another_object_is_a_failed_call(
    server: CriServer, runtime: CriRuntime
) -> None:
    sandbox_id = await runtime.run_sandbox(SANDBOX)
    container_id = await runtime.create_container(sandbox_id, CONTAINER, SANDBOX)
    app2 = replace(CONTAINER, name="app2")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "RunPodSandbox": lambda: runtime.run_sandbox(replace(SANDBOX, name="other")),
        "CreateContainer": lambda: runtime.create_container(sandbox_id, app2, SANDBOX),
        "PodSandboxStatus": lambda: runtime.sandbox_detail(sandbox_id),
        "ContainerStatus": lambda: runtime.container_detail(container_id),
    }
    for name, call in calls.items():
        server.garble(name, b"\x7a\x00")  # a message, all of whose known fields are unset
        with pytest.raises(base.RuntimeCallError, match=f"{name}: .* names another object"):
            await call()


async def test_the_request_for_a_container_is_made_beside_the_loop(
    runtime: CriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a hundred thousand variables."""
    threads, real = list[threading.Thread](), cri_requests.creation

    def recorded(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(cri_requests, "creation", recorded)
    sandbox_id = await runtime.run_sandbox(SANDBOX)
    assert await runtime.create_container(sandbox_id, CONTAINER, SANDBOX)
    assert threads and threading.main_thread() not in threads


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
