"""The adapter's calls: deadlines, what is asked, answers that are none."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from nodeagent.runtime import base, cri, cri_requests
from nodeagent.runtime.cri import CriRuntime
from orch.component.secret import Secret
from tests.fakes.cri_server import CriServer
from tests.nodeagent.runtime.containers import CONTAINER, SANDBOX, a_running_container


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
