"""Checkpoints from the request to the archive, with a fake runtime and with containerd and CRIU.

Texts and codes are the reference agent's (server.go `checkpoint`, TestCheckpointContainer).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import stat
import tarfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeagent import freezer
from nodeagent.checkpoint import CheckpointLimits, CheckpointService, archive_name
from nodeagent.checkpointstore import CheckpointStore
from nodeagent.freezer import Reviver
from nodeagent.runtime import base
from nodeagent.runtime.cri import CriRuntime
from orch.wire.errors import ApiError
from orch.wire.pods import Pod
from tests.conftest_runtime import RealRuntime, provisioned, remove_pod_cgroups
from tests.fakes.runtime import FakeRuntime

NOON = datetime(2026, 1, 31, 12, 0, 0, 999_000, tzinfo=UTC)  # a millisecond before 12:00:01
SPEC = {
    "containers": [{"name": "app"}, {"name": "side"}, {"name": "stopped"}],
    "initContainers": [{"name": "init"}],
    "ephemeralContainers": [{"name": "debug"}],
}
SANDBOX = base.SandboxSpec("web", "shop", "u1")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@dataclass
class Pods:
    """A pod registry with one pod; `running` maps container names to runtime ids."""

    pod: Pod = field(
        default_factory=lambda: Pod.from_wire(
            {"metadata": {"name": "web", "namespace": "shop"}, "spec": SPEC}
        )
    )
    running: dict[str, str] = field(default_factory=dict)

    def find(self, namespace: str, name: str) -> Pod | None:
        return self.pod if (namespace, name) == ("shop", "web") else None

    def running_container(self, namespace: str, pod: str, container: str) -> str | None:
        return self.running.get(container)


@dataclass
class Node:
    runtime: FakeRuntime
    pods: Pods
    root: Path
    moments: list[datetime]

    def service(self, *, timeout_s: float = 120, max_concurrent: int = 2) -> CheckpointService:
        return CheckpointService(
            self.pods,
            self.runtime,
            CheckpointStore(str(self.root)),
            reviver=Reviver(self.runtime, cgroup_root=self.root / "cgroup"),
            limits=CheckpointLimits(timeout_s, max_concurrent),
            now=lambda: self.moments.pop(0) if len(self.moments) > 1 else self.moments[0],
        )

    @property
    def store(self) -> Path:
        return self.root / "checkpoints"

    def files(self) -> list[str]:
        return sorted(os.listdir(self.store))


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(freezer, "_SETTLE_S", 0.001)
    monkeypatch.setattr(freezer, "_RETRY_S", 0.001)
    runtime, pods = FakeRuntime(), Pods()
    sandbox_id = await runtime.run_sandbox(SANDBOX)
    for name in ("app", "side", "init", "debug"):
        spec = base.ContainerSpec(name, 0, "localhost/busybox:1")
        pods.running[name] = await runtime.create_container(sandbox_id, spec, SANDBOX)
        await runtime.start_container(pods.running[name])
    runtime.calls.clear()
    return Node(runtime, pods, tmp_path, [NOON])


async def refusal(
    service: CheckpointService, *path: str, timeout: str = ""
) -> tuple[int, str, str]:
    with pytest.raises(ApiError) as caught:
        await service.checkpoint(*path, timeout=timeout)
    return caught.value.code, caught.value.reason, caught.value.message


async def test_a_checkpoint_is_a_private_archive_with_the_documented_name(node: Node) -> None:
    path = await node.service().checkpoint("shop", "web", "app")

    assert path == str(node.store / "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(node.store.stat().st_mode) == 0o700
    with tarfile.open(path) as archive:
        assert "checkpoint/inventory.img" in archive.getnames()
    assert node.files() == [Path(path).name]
    assert node.runtime.called("checkpoint_container") == [node.pods.running["app"]]


@pytest.mark.parametrize("container", ["app", "side", "init", "debug"])
async def test_containers_of_every_list_can_be_checkpointed(node: Node, container: str) -> None:
    path = await node.service().checkpoint("shop", "web", container)

    assert f"web_shop-{container}-" in path


@pytest.mark.parametrize(
    ("zone", "stamp"),
    [
        ("UTC", "2026-01-31T12:00:00Z"),
        ("Europe/Berlin", "2026-01-31T13:00:00+01:00"),
        ("America/St_Johns", "2026-01-31T08:30:00-03:30"),
    ],
)
def test_the_name_tells_the_local_time_to_the_second(
    monkeypatch: pytest.MonkeyPatch, zone: str, stamp: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()

    assert archive_name("shop", "web", "app", NOON) == f"checkpoint-web_shop-app-{stamp}.tar"


NOT_FOUND = [
    (("shop", "absent", "app"), "pod does not exist"),
    (("absent", "web", "app"), "pod does not exist"),
    (("shop", "web", "absent"), "container absent does not exist"),
    # Hostile names, as they arrive decoded from a path.
    (("shop", "../web", "app"), "pod does not exist"),
    (("shop/../shop", "web", "app"), "pod does not exist"),
    (("", "web", "app"), "pod does not exist"),
    (("shop", "web", "../../etc"), "container does not exist: not a container name"),
    (("shop", "web", "a\r\nb"), "container does not exist: not a container name"),
    (("shop", "web", "a\0"), "container does not exist: not a container name"),
    (("shop", "web", "app" * 22), "container does not exist: not a container name"),
    (("shop", "web", ""), "container does not exist: not a container name"),
]


@pytest.mark.parametrize(("path", "message"), NOT_FOUND)
async def test_what_does_not_exist_is_not_found(
    node: Node, path: tuple[str, str, str], message: str
) -> None:
    assert await refusal(node.service(), *path) == (404, "NotFound", message)
    assert node.runtime.calls == []


@pytest.mark.parametrize(
    "timeout", ["x", "1.5", "1s", " 1", "1_0", "0x10", "+", "\uff19", "9" * 19]
)
async def test_a_timeout_that_is_no_integer_is_not_found(node: Node, timeout: str) -> None:
    told = await refusal(node.service(), "shop", "web", "app", timeout=timeout)

    assert told == (404, "NotFound", "cannot parse value of timeout parameter")


async def test_an_unknown_pod_is_told_before_a_bad_timeout(node: Node) -> None:
    told = await refusal(node.service(), "shop", "absent", "app", timeout="x")

    assert told[2] == "pod does not exist"


async def test_a_container_that_does_not_run_fails(node: Node) -> None:
    assert await refusal(node.service(), "shop", "web", "stopped") == (
        500,
        "InternalError",
        "checkpointing of shop/web/stopped failed (container stopped not found)",
    )


async def test_a_negative_timeout_fails(node: Node) -> None:
    assert await refusal(node.service(), "shop", "web", "app", timeout="-1") == (
        500,
        "InternalError",
        "checkpointing of shop/web/app failed"
        " (CheckpointContainer requires the timeout value to be > 0)",
    )
    assert node.runtime.calls == []


@pytest.mark.parametrize(
    ("timeout", "expected_s"),
    [("", 120), ("0", 120), ("5", 120), ("120", 120), ("121", 121), ("+300", 300)],
)
async def test_a_request_may_ask_for_more_time_but_not_for_less(
    node: Node, monkeypatch: pytest.MonkeyPatch, timeout: str, expected_s: float
) -> None:
    given: list[float] = []
    checkpoint = node.runtime.checkpoint_container

    async def spy(container_id: str, *, location: str, timeout_s: float) -> None:
        given.append(timeout_s)
        await checkpoint(container_id, location=location, timeout_s=timeout_s)

    monkeypatch.setattr(node.runtime, "checkpoint_container", spy)
    await node.service().checkpoint("shop", "web", "app", timeout=timeout)

    assert given == [expected_s]


FAILURES = [
    (base.RuntimeCallError("CheckpointContainer", "Returning error for test"), True),
    (
        base.RuntimeNotSupported(
            "CheckpointContainer", "rpc error: code = Unimplemented desc = unknown method"
        ),
        False,
    ),
    (base.RuntimeNotFound("CheckpointContainer", "no such container"), False),
    (base.RuntimeTimeout("CheckpointContainer", "Deadline Exceeded"), True),
    (base.RuntimeUnavailable("CheckpointContainer", "Socket closed"), True),
]


@pytest.mark.parametrize(("error", "resumed"), FAILURES)
async def test_the_runtimes_own_words_are_told_and_nothing_is_left(
    node: Node, error: base.RuntimeCallError, resumed: bool
) -> None:
    node.runtime.fail("checkpoint_container", error)
    node.runtime.paused.add(node.pods.running["app"])

    assert await refusal(node.service(), "shop", "web", "app") == (
        500,
        "InternalError",
        f"checkpointing of shop/web/app failed ({error})",
    )
    assert node.files() == []
    assert (node.pods.running["app"] not in node.runtime.paused) is resumed


async def test_a_half_written_archive_is_removed(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_space(container_id: str, *, location: str, timeout_s: float) -> None:
        await asyncio.to_thread(Path(location).write_bytes, b"half")
        raise base.RuntimeCallError("CheckpointContainer", "no space left on device")

    monkeypatch.setattr(node.runtime, "checkpoint_container", no_space)

    assert (await refusal(node.service(), "shop", "web", "app"))[0] == 500
    assert node.files() == []


async def test_a_runtime_that_writes_no_archive_fails(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(container_id: str, *, location: str, timeout_s: float) -> None:
        return

    monkeypatch.setattr(node.runtime, "checkpoint_container", nothing)

    assert await refusal(node.service(), "shop", "web", "app") == (
        500,
        "InternalError",
        "checkpointing of shop/web/app failed (the runtime reported success but wrote no archive)",
    )


async def test_a_store_that_cannot_be_used_fails_before_the_container_is_touched(
    node: Node,
) -> None:
    node.store.symlink_to(node.root)

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert (code, "is not a directory" in message) == (500, True)
    assert node.runtime.calls == []


async def test_a_name_too_long_for_a_file_fails_before_the_container_is_touched(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = ".".join(["x" * 62] * 4)
    monkeypatch.setattr(node.pods, "find", lambda _namespace, _name: node.pods.pod)

    code, _, message = await refusal(node.service(), "shop", pod, "app")

    assert (code, "of a file name" in message) == (500, True)
    assert node.runtime.calls == []


def occupy_with_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "victim")


@pytest.mark.parametrize("occupy", [Path.touch, Path.mkdir, occupy_with_link])
async def test_when_the_name_is_taken_the_next_second_gives_another(
    node: Node, occupy: Callable[[Path], None]
) -> None:
    victim = node.root / "victim"
    victim.write_text("untouched")
    node.store.mkdir(mode=0o700)
    taken = node.store / "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
    occupy(taken)
    before = taken.lstat()
    node.moments += [NOON, NOON + timedelta(milliseconds=1)]

    path = await node.service().checkpoint("shop", "web", "app")

    assert Path(path).name == "checkpoint-web_shop-app-2026-01-31T12:00:01Z.tar"
    assert taken.lstat() == before
    assert victim.read_text() == "untouched"
    assert len(node.runtime.called("checkpoint_container")) == 1


async def test_a_clock_that_stands_still_ends_in_an_error(node: Node) -> None:
    await node.service().checkpoint("shop", "web", "app")

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert code == 500
    assert "2026-01-31T12:00:00Z.tar exists already" in message
    assert len(node.files()) == 1


async def test_a_container_is_checkpointed_once_at_a_time(node: Node) -> None:
    service = node.service()
    held = node.runtime.hold("checkpoint_container")
    first = asyncio.ensure_future(service.checkpoint("shop", "web", "app"))
    await held.reached.wait()

    assert await refusal(service, "shop", "web", "app") == (
        409,
        "Conflict",
        "checkpointing of shop/web/app is under way already; try again when it has ended",
    )
    held.release()
    assert Path(await first).exists()
    node.moments[:] = [NOON + timedelta(seconds=1)]
    assert Path(await service.checkpoint("shop", "web", "app")).exists()


async def test_only_so_many_checkpoints_are_made_at_a_time(node: Node) -> None:
    service = node.service(max_concurrent=1)
    held = node.runtime.hold("checkpoint_container")
    first = asyncio.ensure_future(service.checkpoint("shop", "web", "app"))
    await held.reached.wait()

    with pytest.raises(ApiError) as caught:
        await service.checkpoint("shop", "web", "side")
    assert (caught.value.code, caught.value.reason) == (429, "TooManyRequests")
    assert caught.value.retry_after_s == 5
    held.release()
    await first
    assert Path(await service.checkpoint("shop", "web", "side")).exists()


async def test_a_failure_gives_its_place_back(node: Node) -> None:
    service = node.service(max_concurrent=1)
    node.runtime.fail("checkpoint_container", "broken", times=1)

    await refusal(service, "shop", "web", "app")

    assert Path(await service.checkpoint("shop", "web", "app")).exists()


async def test_nothing_is_visible_under_the_final_name_before_the_end(node: Node) -> None:
    held = node.runtime.hold("checkpoint_container")
    under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
    await held.reached.wait()

    assert [name for name in node.files() if not name.startswith(".")] == []
    held.release()
    await under_way


async def test_a_checkpoint_cut_off_by_the_agents_end_leaves_nothing_behind(node: Node) -> None:
    held = node.runtime.hold("checkpoint_container")
    under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
    await held.reached.wait()
    node.runtime.paused.add(node.pods.running["app"])

    under_way.cancel()

    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert node.files() == []
    assert node.runtime.paused == set()


async def test_the_next_agent_frees_the_containers_of_one_that_was_killed(node: Node) -> None:
    container_id = node.pods.running["app"]
    killed = CheckpointStore(str(node.root))
    Path(killed.begin(container_id)).write_bytes(b"half")
    node.runtime.paused.add(container_id)
    service = node.service()

    await service.recover()

    assert node.runtime.paused == set()
    assert node.files() == []
    assert Path(await service.checkpoint("shop", "web", "app")).exists()


async def test_a_container_being_freed_is_not_checkpointed_meanwhile(node: Node) -> None:
    CheckpointStore(str(node.root)).begin(node.pods.running["app"])
    service = node.service()
    held = node.runtime.hold("resume_container")
    recovery = asyncio.ensure_future(service.recover())
    await held.reached.wait()

    assert (await refusal(service, "shop", "web", "app"))[0] == 409
    assert Path(await service.checkpoint("shop", "web", "side")).exists()
    held.release()
    await recovery


async def test_a_store_that_cannot_be_used_is_said_at_the_start(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.store.touch()

    await node.service().recover()

    assert "checkpoints cannot be stored" in caplog.text


async def test_no_call_blocks_the_loop(node: Node, no_blocking: object) -> None:
    service = node.service()
    await service.recover()

    await service.checkpoint("shop", "web", "app")

    node.runtime.fail("checkpoint_container", base.RuntimeTimeout("CheckpointContainer", "late"))
    await refusal(service, "shop", "web", "side")


# ---- the same with containerd, runc and CRIU

# Without other programs: CRIU cannot seize a shell that is just starting one (it waits in vfork).
COUNTING = "i=0; while true; do i=$((i+1)); echo $i > /count; done"


@dataclass
class RealNode:
    """One pod with the container `app`, which counts in a file, in a real containerd."""

    runtime: CriRuntime
    pods: Pods
    root: Path

    def service(self, *, timeout_s: float = 60) -> CheckpointService:
        return CheckpointService(
            self.pods,
            self.runtime,
            CheckpointStore(str(self.root)),
            limits=CheckpointLimits(timeout_s),
        )

    async def counts_on(self) -> bool:
        """Whether the container works: commands run in it, and its process goes on."""
        read = ("cat", "/count")
        container_id = self.pods.running["app"]
        first = await self.runtime.exec_sync(container_id, read, timeout_s=5)
        for _ in range(100):
            later = await self.runtime.exec_sync(container_id, read, timeout_s=5)
            if later.exit_code == 0 and later.stdout not in (b"", first.stdout):
                return True
            await asyncio.sleep(0.02)
        return False


@contextlib.asynccontextmanager
async def a_real_node(endpoint: str, root: Path) -> AsyncIterator[RealNode]:
    uid = str(uuid.uuid4())
    runtime, pods = CriRuntime(endpoint), Pods()
    sandbox = base.SandboxSpec(
        "web", "shop", uid, cgroup_parent=f"/orchpods/pod{uid}", host_network=True
    )
    spec = base.ContainerSpec("app", 0, "localhost/busybox:1", command=("sh", "-c", COUNTING))
    sandbox_id = await runtime.run_sandbox(sandbox)
    try:
        pods.running["app"] = await runtime.create_container(sandbox_id, spec, sandbox)
        await runtime.start_container(pods.running["app"])
        yield RealNode(runtime, pods, root)
    finally:
        await runtime.stop_sandbox(sandbox_id)
        await runtime.remove_sandbox(sandbox_id)
        await runtime.close()
        remove_pod_cgroups(sandbox.cgroup_parent)


@pytest.fixture
async def real_node(real_runtime: RealRuntime, tmp_path: Path) -> AsyncIterator[RealNode]:
    async with a_real_node(real_runtime.endpoint, tmp_path) as node:
        yield node


@pytest.mark.real
async def test_criu_writes_an_archive_and_the_container_counts_on(real_node: RealNode) -> None:
    path = Path(await real_node.service().checkpoint("shop", "web", "app"))

    assert re.fullmatch(r"checkpoint-web_shop-app-[0-9T:-]{19}Z\.tar", path.name)
    assert os.listdir(path.parent) == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        names = {name.removeprefix("./") for name in archive.getnames()}
    assert {"checkpoint/inventory.img", "config.dump", "spec.dump"} <= names
    assert any(re.fullmatch(r"checkpoint/pages-\d+\.img", name) for name in names)
    assert await real_node.counts_on()


@pytest.mark.real
@pytest.mark.parametrize("timeout_s", [0.03, 0.06, 0.09, 0.12])
async def test_a_container_counts_on_when_its_checkpoint_takes_too_long(
    real_node: RealNode, timeout_s: float
) -> None:
    try:
        await real_node.service(timeout_s=timeout_s).checkpoint("shop", "web", "app")
    except ApiError as error:
        assert "code = DeadlineExceeded" in error.message  # otherwise it was fast enough
        assert os.listdir(real_node.root / "checkpoints") == []
    assert await real_node.counts_on()
    path = await real_node.service().checkpoint("shop", "web", "app")
    assert Path(path).exists()
    assert await real_node.counts_on()


@pytest.mark.real
@pytest.mark.parametrize("delay_s", [0.03, 0.08])
async def test_a_container_counts_on_when_the_runtime_is_killed_during_its_checkpoint(
    tmp_path: Path, delay_s: float
) -> None:
    root = tmp_path / "agent"
    with provisioned(tmp_path / "rt") as real:
        pid = json.loads(real.control("status"))["pids"]["containerd"]
        async with a_real_node(real.endpoint, root) as node:
            detail = await node.runtime.container_detail(node.pods.running["app"])
            count = Path(f"/proc/{detail.pid}/root/count")
            under_way = asyncio.ensure_future(node.service().checkpoint("shop", "web", "app"))
            await asyncio.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(real.control, "start")
            try:
                await under_way
            except ApiError as error:
                assert "code = Unavailable" in error.message  # otherwise it was fast enough
                assert os.listdir(root / "checkpoints") == []
            await asyncio.to_thread(wait_for_change, count)


def wait_for_change(path: Path) -> None:
    first, deadline = path.read_text(), time.monotonic() + 10
    while path.read_text() in ("", first):
        assert time.monotonic() < deadline, f"{path} stays {first!r}"
        time.sleep(0.02)
