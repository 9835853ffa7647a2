"""Answers of the runtime that exceed a message: what is asked for instead, and what is believed."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from nodeagent.runtime import base
from nodeagent.runtime.base import SandboxSpec
from nodeagent.runtime.cri import CriRuntime
from tests.fakes.cri_server import CriServer
from tests.nodeagent.runtime.containers import CONTAINER, a_running_container


async def test_a_list_too_large_for_a_message_is_read_one_by_one(
    server: CriServer, runtime: CriRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    async def too_large(context: Any) -> None:
        if not server.requests[-1][1].filter.id:
            text = "trying to send message larger than max (22060544 vs. 16777216)"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    await a_running_container(runtime)
    bare = await runtime.run_sandbox(SandboxSpec(name="bare", namespace="shop", uid="u2"))
    gone = await runtime.run_sandbox(SandboxSpec(name="gone", namespace="shop", uid="u3"))
    held = server.runtime.hold("run_sandbox")
    call = asyncio.ensure_future(
        runtime.run_sandbox(SandboxSpec(name="late", namespace="shop", uid="u4"))
    )
    await held.reached.wait()
    call.cancel()
    held.release()
    with pytest.raises(asyncio.CancelledError):
        await call
    server.faults["ListPodSandbox"] = too_large
    assert len(await runtime.list_sandboxes()) == 4
    await runtime.remove_sandbox(gone)
    listed = await runtime.list_sandboxes()
    assert {row.name for row in listed} == {"web", "bare", "late"}
    [said] = [record.getMessage() for record in caplog.records]
    assert "larger than max" in said and "look for pods with large labels" in said

    other = CriRuntime(server.endpoint)  # knows only those with containers
    try:
        assert [row.name for row in await other.list_sandboxes()] == ["web"]
        del server.faults["ListPodSandbox"]
        assert bare in {row.id for row in await other.list_sandboxes()}
    finally:
        await other.close()


@pytest.mark.parametrize("operation", ["ListContainers", "ListContainerStats"])
async def test_containers_too_many_for_a_message_are_read_by_sandbox(
    server: CriServer, runtime: CriRuntime, caplog: pytest.LogCaptureFixture, operation: str
) -> None:
    async def too_large(context: Any) -> None:
        if not server.requests[-1][1].filter.pod_sandbox_id:
            text = "trying to send message larger than max (17314843 vs. 16777216)"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def ids() -> list[str]:
        if operation == "ListContainers":
            return [row.id for row in await runtime.list_containers()]
        return [usage.id for usage in await runtime.container_usage()]

    earlier = CriRuntime(server.endpoint)  # of an agent before this one, which knows no sandbox
    made = [await a_running_container(earlier)]
    beside = SandboxSpec(name="beside", namespace="shop", uid="u2")
    sandbox_id = await earlier.run_sandbox(beside)
    made.append(await earlier.create_container(sandbox_id, CONTAINER, beside))
    await earlier.start_container(made[1])
    await earlier.close()
    server.faults[operation] = too_large
    for _ in range(2):
        assert sorted(await ids()) == sorted(made)
    [said] = caplog.messages
    assert "its containers are listed by sandbox" in said


async def test_nothing_is_believed_when_neither_sandboxes_nor_containers_fit_a_message(
    server: CriServer, runtime: CriRuntime
) -> None:
    """An empty list would have every pod started again."""

    async def too_large(context: Any) -> None:
        if not server.requests[-1][1].HasField("filter"):
            text = "trying to send message larger than max (17314843 vs. 16777216)"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    await a_running_container(runtime)
    server.faults.update({"ListPodSandbox": too_large, "ListContainers": too_large})
    other = CriRuntime(server.endpoint)  # of an agent that has just started
    try:
        for listing in (other.list_sandboxes, other.list_containers, other.container_usage):
            if listing == other.container_usage:
                server.faults["ListContainerStats"] = too_large
            with pytest.raises(base.RuntimeCallError, match="larger than max"):
                await listing()
    finally:
        await other.close()


async def test_a_status_too_large_with_everything_is_read_without_the_rest(
    server: CriServer, runtime: CriRuntime
) -> None:
    async def too_large(context: Any) -> None:
        if server.requests[-1][1].verbose:
            text = "trying to send message larger than max"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    container_id = await a_running_container(runtime)
    assert (await runtime.container_detail(container_id)).pid
    server.faults["ContainerStatus"] = too_large
    detail = await runtime.container_detail(container_id)
    assert detail.container.id == container_id
    asked = [request for method, request, _ in server.requests if method == "ContainerStatus"]
    assert [request.verbose for request in asked] == [True, True, False]


async def test_a_command_may_print_a_little_and_is_told_when_that_is_too_much(
    server: CriServer, runtime: CriRuntime
) -> None:
    """Every container of a node may run one at once, as its probe."""
    container_id = await a_running_container(runtime)
    printed = bytes(1_000_000)
    server.runtime.on_exec = lambda *_: base.ExecResult(0, printed, b"")
    assert (await runtime.exec_sync(container_id, ("x",), timeout_s=5)).stdout == printed
    printed = bytes(1_100_000)
    with pytest.raises(base.RuntimeAnswerTooLarge, match="the command has to print less"):
        await runtime.exec_sync(container_id, ("x",), timeout_s=5)
