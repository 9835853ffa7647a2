"""Checkpoints that are refused or fail: codes and texts, and that nothing is left of them.

Texts and codes are the reference agent's (server.go `checkpoint`, TestCheckpointContainer).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from nodeagent import freezer
from nodeagent.archives.bounds import Amount, Bounds
from nodeagent.archives.writable_layer import LayerUnmeasured
from nodeagent.freezer import ContainerThawer
from nodeagent.runtime import base
from orch.wire.errors import ApiError
from tests.fakes.checkpoints import NOON, Node, checkpointable_node, refusal


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(freezer, "SETTLE_S", 0.001)
    monkeypatch.setattr(freezer, "RETRY_S", 0.001)
    return await checkpointable_node(tmp_path)


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
async def test_unknown_names_are_not_found(
    node: Node, path: tuple[str, str, str], message: str
) -> None:
    assert await refusal(node.service(), *path) == (404, "NotFound", message)
    assert node.runtime.calls == []


@pytest.mark.parametrize(
    "timeout", ["x", "1.5", "1s", " 1", "1_0", "0x10", "+", "\uff19", "9" * 19]
)
async def test_a_timeout_that_is_not_an_integer_is_not_found(node: Node, timeout: str) -> None:
    told = await refusal(node.service(), "shop", "web", "app", timeout=timeout)

    assert told == (404, "NotFound", "cannot parse value of timeout parameter")


async def test_an_unknown_pod_is_reported_before_a_bad_timeout(node: Node) -> None:
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
async def test_the_runtimes_error_is_reported_and_nothing_remains(
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


CRIU_LOG = "\n".join(
    [
        *("(00.000001) Version: 4.1" for _ in range(5000)),
        "(00.002391) Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider \x1b[1m",
        "(00.002400) ----------------------------------------",
        f"(00.002471) Error (criu/cr-dump.c:2128): {'x' * 500}",
        "(00.002480) Unlock network",
    ]
)
CRIU_SAID = (
    "Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider ?[1m; "
    + f"Error (criu/cr-dump.c:2128): {'x' * 500}"[:160]
)


@pytest.mark.parametrize(
    ("words", "log", "said"),
    [
        ("criu failed: type NOTIFY errno 0 path= {}/criu-dump.log: unknown", CRIU_LOG, CRIU_SAID),
        ("criu failed: log file: {}/dump.log", "(0.1) one\n(0.2) two\n", "one; two"),
        ("criu failed: log file: {}/dump.log", None, ""),
        ("criu failed: log file: {}/dump.log", "", ""),
        ("criu failed: path= {}/link/dump.log", "secret", ""),
        ("criu failed: path= {}/secret", "secret", ""),
    ],
)
async def test_what_criu_complains_of_is_in_the_answer_and_the_event(
    node: Node, tmp_path: Path, words: str, log: str | None, said: str
) -> None:
    words = words.format(tmp_path / "bundle")
    path = Path(words.split()[-2 if words.endswith("unknown") else -1].rstrip(":"))
    path.parent.mkdir(parents=True)
    if log is not None:
        path.write_text(log)
    if path.parent.name == "link":
        path.rename(path.with_name("target"))
        path.symlink_to("target")
    node.runtime.fail("checkpoint_container", words)

    expected = f"{words}; CRIU: {said}" if said else words
    message = f"checkpointing of shop/web/app failed ({expected})"
    assert await refusal(node.service(), "shop", "web", "app") == (500, "InternalError", message)
    assert node.events.recorded[-1] == ("Warning", "CheckpointFailed", message)


async def test_a_container_frozen_by_another_client_stays_frozen(node: Node) -> None:
    control = node.root / "cgroup/freezer" / node.pods.running["app"] / "freezer.state"
    control.parent.mkdir(parents=True)
    control.write_text("FROZEN\n")

    code, _, message = await refusal(node.service(), "shop", "web", "app")

    assert (code, "the container is paused, or another client" in message) == (500, True)
    assert node.runtime.calls == []
    assert control.read_text() == "FROZEN\n"
    control.write_text("THAWED\n")
    assert Path(await node.service().checkpoint("shop", "web", "app")).exists()


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


async def test_an_unusable_store_fails_before_the_container_is_touched(
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

    assert (code, "longer than the file system can hold" in message) == (500, True)
    assert node.runtime.calls == []


async def test_a_container_is_checkpointed_once_at_a_time(node: Node) -> None:
    service = node.service()
    held = node.runtime.hold("checkpoint_container")
    first = asyncio.ensure_future(service.checkpoint("shop", "web", "app"))
    await held.reached.wait()

    assert await refusal(service, "shop", "web", "app") == (
        409,
        "Conflict",
        "a checkpoint of shop/web/app is already in progress; retry when it has finished",
    )
    held.release()
    assert Path(await first).exists()
    node.moments[:] = [NOON + timedelta(seconds=1)]
    assert Path(await service.checkpoint("shop", "web", "app")).exists()


async def test_concurrent_checkpoints_are_limited(node: Node) -> None:
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


async def test_a_failure_releases_its_slot(node: Node) -> None:
    service = node.service(max_concurrent=1)
    node.runtime.fail("checkpoint_container", "broken", times=1)

    await refusal(service, "shop", "web", "app")

    assert Path(await service.checkpoint("shop", "web", "app")).exists()


class Stuck(ContainerThawer):
    """Cannot free anything until it is told that it can."""

    able = False

    async def ensure_running(
        self, container_id: str, *, limit_s: float | None = None, settled: bool = False
    ) -> bool:
        return self.able and await super().ensure_running(
            container_id, limit_s=limit_s, settled=settled
        )


async def test_a_container_left_frozen_by_our_checkpoint_is_thawed_by_the_next(node: Node) -> None:
    stuck = Stuck(node.runtime, cgroup_root=node.root / "cgroup")
    service = node.service(thawer=stuck)
    held = node.runtime.hold("checkpoint_container")
    node.runtime.fail("checkpoint_container", "CRIU broke off", times=1)
    under_way = asyncio.ensure_future(refusal(service, "shop", "web", "app"))
    await held.reached.wait()
    control = node.root / "cgroup/freezer" / node.pods.running["app"] / "freezer.state"
    control.parent.mkdir(parents=True)
    control.write_text("FROZEN\n")
    held.release()
    assert "CRIU broke off" in (await under_way)[2]
    assert "paused, or another client" in (await refusal(service, "shop", "web", "app"))[2]
    stuck.able = True
    assert await service.checkpoint("shop", "web", "app")
    assert control.read_text() == "THAWED"


async def test_what_the_container_has_written_needs_room_too(node: Node) -> None:
    node.bounds = Bounds(total=Amount(1000))
    node.layer_of = lambda _container_id: 5000
    code, _, text = await refusal(node.service(), "shop", "web", "app")
    assert code == 500
    assert "the archive may take 5000 bytes" in text
    assert not node.runtime.called("checkpoint_container")


async def test_copies_that_the_runtime_makes_meanwhile_need_room_too(node: Node) -> None:
    """containerd took three times 300 MB, of 568 that were free, and no disk space was left."""
    node.memory_bytes = node.index.space().free_bytes // 2
    code, _, text = await refusal(node.service(), "shop", "web", "app")
    assert code == 500
    assert f"creating the archive may take {3 * node.memory_bytes} bytes" in text
    assert not node.runtime.called("checkpoint_container")


async def test_what_cannot_be_measured_is_not_checkpointed(node: Node) -> None:
    def unmeasured(_container_id: str) -> int:
        raise LayerUnmeasured("it is deeper than 128 levels")

    node.layer_of = unmeasured
    code, _, text = await refusal(node.service(), "shop", "web", "app")
    assert code == 500
    assert "cannot be measured: it is deeper than 128 levels" in text
    assert not node.runtime.called("checkpoint_container")
