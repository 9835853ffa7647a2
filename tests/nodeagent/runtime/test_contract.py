"""The contract of every `ContainerRuntime`: the fake, the CRI adapter on a fake, containerd.

What the agent may rely on is what passes here for all three.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import stat
import tarfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from nodeagent.archives.reports import criu_reason
from nodeagent.runtime import base
from nodeagent.runtime.base import ExecResult
from nodeagent.runtime.endpoint import StreamOptions
from orch.component.process import loops
from tests.nodeagent.runtime.contract import IMAGE, SPEECH, Subject, container_spec


async def test_it_reports_its_name_and_version(subject: Subject) -> None:
    version = await subject.runtime.version()

    assert version.name and version.version
    assert version.api_version == "v1"


async def test_runtime_and_network_are_ready(subject: Subject) -> None:
    conditions = {c.type: c.status for c in await subject.runtime.conditions()}

    assert conditions["RuntimeReady"] is True
    assert conditions["NetworkReady"] is True


async def test_it_names_its_handlers_and_makes_no_sandbox_with_another(subject: Subject) -> None:
    features = await subject.runtime.features()
    assert {"", "runc"} <= features.handlers
    assert features.recursive_readonly <= features.handlers
    await subject.sandbox(subject.sandbox_spec(runtime_handler="runc"))
    with pytest.raises(base.RuntimeCallError, match=r"handler|runtime"):
        await subject.sandbox(subject.sandbox_spec(runtime_handler="absent"))


async def test_a_sandbox_runs_is_listed_and_keeps_its_fields(subject: Subject) -> None:
    spec = subject.sandbox_spec()
    sandbox_id = await subject.sandbox(spec)

    row = {s.id: s for s in await subject.runtime.list_sandboxes()}[sandbox_id]
    assert (row.name, row.namespace, row.uid, row.attempt) == ("web", "contract", spec.uid, 0)
    assert row.state is base.SandboxState.READY
    assert row.created_at_ns > 10**18
    assert row.labels == spec.labels
    assert row.annotations == spec.annotations
    detail = await subject.runtime.sandbox_detail(sandbox_id)
    assert detail.sandbox == row
    assert len(detail.ips) >= 1
    assert detail.pid is not None and detail.pid > 1


async def test_a_sandbox_on_the_hosts_network_has_no_address_of_its_own(subject: Subject) -> None:
    sandbox_id = await subject.sandbox(subject.sandbox_spec(host_network=True))

    assert (await subject.runtime.sandbox_detail(sandbox_id)).ips == ()


async def test_a_stopped_sandbox_stays_known_until_it_is_removed(subject: Subject) -> None:
    sandbox_id = await subject.sandbox(subject.sandbox_spec())

    await subject.runtime.stop_sandbox(sandbox_id)
    detail = await subject.runtime.sandbox_detail(sandbox_id)
    assert detail.sandbox.state is base.SandboxState.NOT_READY
    assert detail.pid is None
    await subject.runtime.remove_sandbox(sandbox_id)
    assert sandbox_id not in [s.id for s in await subject.runtime.list_sandboxes()]
    with pytest.raises(base.RuntimeNotFound):
        await subject.runtime.sandbox_detail(sandbox_id)


async def test_a_sandbox_of_the_same_attempt_is_refused_and_of_the_next_attempt_runs(
    subject: Subject,
) -> None:
    spec = subject.sandbox_spec()
    await subject.sandbox(spec)

    with pytest.raises(base.RuntimeCallError):
        await subject.runtime.run_sandbox(spec)
    await subject.sandbox(dataclasses.replace(spec, attempt=1))


async def test_a_container_is_created_runs_and_is_listed(subject: Subject) -> None:
    container_id = await subject.container()
    created = await subject.runtime.container_detail(container_id)
    assert created.container.state is base.ContainerState.CREATED
    assert created.started_at_ns == 0
    assert created.pid is None

    await subject.runtime.start_container(container_id)

    detail = await subject.runtime.container_detail(container_id)
    assert detail.container.state is base.ContainerState.RUNNING
    assert detail.started_at_ns >= detail.container.created_at_ns
    assert detail.finished_at_ns == 0
    assert detail.pid is not None and detail.pid > 1
    assert detail.log_path.endswith("/app.log")
    row = {c.id: c for c in await subject.runtime.list_containers()}[container_id]
    assert row.sandbox_id == subject.sandboxes[0]
    assert (row.name, row.attempt, row.image) == ("app", 0, IMAGE)
    assert row.image_ref
    assert row.state is base.ContainerState.RUNNING
    assert row.labels == {"orch.io/container.name": "app"}
    assert row.annotations == {"orch.io/container.hash": "abc"}


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (3, "Error")])
async def test_an_exited_container_reports_how(subject: Subject, code: int, reason: str) -> None:
    ended = await subject.end(await subject.running(), code)

    assert (ended.exit_code, ended.reason) == (code, reason)
    assert ended.finished_at_ns >= ended.started_at_ns > 0
    assert ended.pid is None


async def test_stopping_ends_a_container_and_may_be_repeated(subject: Subject) -> None:
    container_id = await subject.running()

    await subject.runtime.stop_container(container_id, timeout_s=0)
    await subject.runtime.stop_container(container_id, timeout_s=0)

    ended = await subject.runtime.container_detail(container_id)
    assert ended.container.state is base.ContainerState.EXITED
    assert ended.exit_code == 137


async def test_removing_ends_a_running_container_and_may_be_repeated(subject: Subject) -> None:
    container_id = await subject.running()

    await subject.runtime.remove_container(container_id)
    await subject.runtime.remove_container(container_id)

    assert container_id not in [c.id for c in await subject.runtime.list_containers()]
    with pytest.raises(base.RuntimeNotFound):
        await subject.runtime.container_detail(container_id)


async def test_removing_a_sandbox_removes_its_containers(subject: Subject) -> None:
    container_id = await subject.running()

    await subject.runtime.remove_sandbox(subject.sandboxes[0])

    assert container_id not in [c.id for c in await subject.runtime.list_containers()]


async def test_stopping_and_removing_an_unknown_id_succeeds(subject: Subject) -> None:
    await subject.runtime.stop_sandbox("unknown")
    await subject.runtime.remove_sandbox("unknown")
    await subject.runtime.stop_container("unknown", timeout_s=0)
    await subject.runtime.remove_container("unknown")
    await subject.runtime.remove_image("localhost/unknown:1")


async def test_any_other_call_for_an_unknown_id_is_not_found(
    subject: Subject, tmp_path: Path
) -> None:
    runtime = subject.runtime
    calls = (
        runtime.sandbox_detail("unknown"),
        runtime.container_detail("unknown"),
        runtime.start_container("unknown"),
        runtime.reopen_log("unknown"),
        runtime.resume_container("unknown"),
        runtime.update_resources("unknown", base.LinuxResources(cpu_shares=100)),
        runtime.exec_sync("unknown", ("true",), timeout_s=1),
        runtime.checkpoint_container("unknown", location=str(tmp_path / "a.tar"), timeout_s=10),
    )
    for call in calls:
        with pytest.raises(base.RuntimeNotFound):
            await call
    assert not (tmp_path / "a.tar").exists()


async def test_a_container_needs_a_known_image_a_known_sandbox_and_a_free_name(
    subject: Subject,
) -> None:
    spec = subject.sandbox_spec()
    sandbox_id = await subject.sandbox(spec)
    create = subject.runtime.create_container
    await create(sandbox_id, container_spec(), spec)

    with pytest.raises(base.RuntimeNotFound):
        await create(sandbox_id, container_spec("b", image="localhost/unknown:1"), spec)
    with pytest.raises(base.RuntimeNotFound):
        await create("unknown", container_spec("b"), spec)
    with pytest.raises(base.RuntimeCallError):
        await create(sandbox_id, container_spec(), spec)
    await create(sandbox_id, container_spec(attempt=1), spec)


async def test_a_container_starts_only_once(subject: Subject) -> None:
    container_id = await subject.running()

    with pytest.raises(base.RuntimeCallError):
        await subject.runtime.start_container(container_id)


async def cancelled(call: Coroutine[Any, Any, object]) -> None:
    """Begin a call, and give it up at once."""
    task = loops.spawn(call, name="given up")
    await asyncio.sleep(0)
    await loops.cancel(task)


async def test_what_a_call_changes_is_changed_though_its_caller_is_cancelled(
    subject: Subject,
) -> None:
    runtime, spec = subject.runtime, subject.sandbox_spec()
    await cancelled(subject.sandbox(spec))
    listed = [s.id for s in await runtime.list_sandboxes() if s.uid == spec.uid]
    subject.sandboxes += listed
    assert len(listed) == 1
    await cancelled(runtime.create_container(listed[0], container_spec(), spec))
    made = [c.id for c in await runtime.list_containers() if c.sandbox_id == listed[0]]
    assert len(made) == 1
    await cancelled(runtime.start_container(made[0]))
    started = await runtime.container_detail(made[0])
    assert started.container.state is base.ContainerState.RUNNING
    await cancelled(runtime.remove_container(made[0]))
    assert not [c for c in await runtime.list_containers() if c.sandbox_id == listed[0]]


async def test_a_command_runs_in_a_container_and_gives_both_outputs(subject: Subject) -> None:
    container_id = await subject.running()

    result = await subject.runtime.exec_sync(container_id, SPEECH, timeout_s=5)

    assert result == ExecResult(exit_code=3, stdout=b"out\n", stderr=b"err\n")


async def test_no_command_runs_where_no_container_runs(subject: Subject) -> None:
    container_id = await subject.container()

    with pytest.raises(base.RuntimeCallError):
        await subject.runtime.exec_sync(container_id, ("true",), timeout_s=5)


async def test_a_checkpoint_is_a_private_archive_and_the_container_keeps_running(
    subject: Subject, tmp_path: Path
) -> None:
    container_id = await subject.running()
    location = tmp_path / "a.tar"

    try:
        await subject.runtime.checkpoint_container(
            container_id, location=str(location), timeout_s=60
        )
    except base.RuntimeCallError as error:
        error.add_note(criu_reason(str(error)))
        raise

    assert stat.S_IMODE(location.stat().st_mode) == 0o600
    with tarfile.open(location) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    assert {"checkpoint/inventory.img", "config.dump", "spec.dump"} <= names
    detail = await subject.runtime.container_detail(container_id)
    assert detail.container.state is base.ContainerState.RUNNING
    assert (await subject.end(container_id, 7)).exit_code == 7


async def test_only_a_running_container_is_checkpointed(subject: Subject, tmp_path: Path) -> None:
    container_id = await subject.running()
    await subject.end(container_id, 0)
    location = tmp_path / "a.tar"

    with pytest.raises(base.RuntimeCallError):
        await subject.runtime.checkpoint_container(
            container_id, location=str(location), timeout_s=60
        )
    assert not location.exists()


async def test_a_container_that_runs_is_not_resumed(subject: Subject) -> None:
    container_id = await subject.running()

    assert await subject.runtime.resume_container(container_id) is False


async def test_resources_change_and_the_log_is_reopened_while_a_container_runs(
    subject: Subject,
) -> None:
    container_id = await subject.running()

    await subject.runtime.update_resources(container_id, base.LinuxResources(cpu_shares=512))
    await subject.runtime.reopen_log(container_id)

    detail = await subject.runtime.container_detail(container_id)
    assert detail.container.state is base.ContainerState.RUNNING
    assert detail.resources is not None
    assert detail.resources.cpu_shares == 512


async def test_a_container_s_usage_is_reported_alone_and_with_its_pod(subject: Subject) -> None:
    container_id = await subject.running()

    alone = {usage.id: usage for usage in await subject.runtime.container_usage()}
    pods = {usage.total.id: usage for usage in await subject.runtime.sandbox_usage()}

    used = alone[container_id]
    assert used.name == "app"
    [same] = await subject.runtime.container_usage(container_id)
    assert same.id == container_id
    assert not await subject.runtime.container_usage("0" * 64)
    assert used.cpu_usage_core_ns is not None and used.cpu_usage_core_ns > 0
    assert used.cpu_timestamp_ns > 10**18
    assert used.memory_working_set_bytes is not None and used.memory_working_set_bytes > 0
    pod = pods[subject.sandboxes[0]]
    assert (pod.total.name, pod.namespace) == ("web", "contract")
    assert [container.id for container in pod.containers] == [container_id]
    assert pod.total.cpu_usage_core_ns is not None
    assert pod.interfaces and pod.interfaces[0].rx_bytes is not None


async def test_changes_of_sandboxes_and_containers_are_events(subject: Subject) -> None:
    told: list[base.ContainerEvent] = []
    listening = await listen(subject, told)
    container_id = await subject.running()
    sandbox_id = subject.sandboxes[-1]
    await subject.end(container_id, 0)
    await subject.runtime.remove_container(container_id)
    await subject.runtime.stop_sandbox(sandbox_id)
    await subject.runtime.remove_sandbox(sandbox_id)

    whole_life = list(base.EventKind)  # created, started, stopped, deleted
    await told_of(told, sandbox_id, whole_life)
    await told_of(told, container_id, whole_life)
    assert all(event.at_ns > 10**18 for event in told)
    await loops.cancel(listening)


async def listen(subject: Subject, told: list[base.ContainerEvent]) -> asyncio.Task[None]:
    async def listening() -> None:
        async with contextlib.aclosing(subject.runtime.events()) as events:
            async for event in events:
                told.append(event)  # noqa: PERF401 — as they come

    task = loops.spawn(listening(), name="listening")
    async with asyncio.timeout(60):
        while not told:  # the stream does not tell when it has begun
            await subject.sandbox(subject.sandbox_spec())
            await asyncio.sleep(0.2)
    return task


async def told_of(
    told: list[base.ContainerEvent], subject: str, wanted: list[base.EventKind]
) -> None:
    for _ in range(1500):
        if [event.kind for event in told if event.id == subject] == wanted:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"told: {told}")


async def test_images_are_found_by_their_names(subject: Subject) -> None:
    image = await subject.runtime.image(IMAGE)

    assert image is not None
    assert IMAGE in image.tags
    assert image.size_bytes > 0
    assert (image.uid, image.username) == (None, "")
    assert image in await subject.runtime.images()
    assert await subject.runtime.image("localhost/unknown:1") is None


async def test_an_image_that_no_registry_has_is_not_pulled(subject: Subject) -> None:
    with pytest.raises(base.RuntimeCallError):
        await subject.runtime.pull_image("127.0.0.1:1/unknown:1")


async def test_the_image_store_reports_its_path_and_size(subject: Subject) -> None:
    (store, *_) = await subject.runtime.image_filesystems()

    assert store.mountpoint.startswith("/")
    assert store.used_bytes >= 0  # containerd first counts some seconds after its start


OUTPUT = StreamOptions(stdout=True, stderr=True)


async def test_streams_into_a_running_container_wait_on_this_machine(subject: Subject) -> None:
    container_id = await subject.running()
    sandbox_id = (await subject.runtime.container_detail(container_id)).container.sandbox_id
    sandbox_id = sandbox_id or subject.sandboxes[-1]
    for address in (
        await subject.runtime.open_exec(container_id, ("true",), OUTPUT),
        await subject.runtime.open_attach(container_id, OUTPUT),
        await subject.runtime.open_port_forward(sandbox_id, ()),
    ):
        assert address.host == "127.0.0.1"
        assert 0 < address.port < 65536
        assert address.target.startswith("/")


async def test_nothing_streams_into_what_does_not_run(subject: Subject) -> None:
    created = await subject.container()
    for container_id, kind in ((created, base.RuntimeCallError), ("0" * 64, base.RuntimeNotFound)):
        with pytest.raises(kind):
            await subject.runtime.open_exec(container_id, ("true",), OUTPUT)
        with pytest.raises(kind):
            await subject.runtime.open_attach(container_id, OUTPUT)
    with pytest.raises(base.RuntimeCallError):
        await subject.runtime.open_port_forward("0" * 64, ())
