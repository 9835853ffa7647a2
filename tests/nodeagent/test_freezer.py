"""Frozen containers run again: by the runtime where it can, by their cgroup where it cannot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent import freezer
from nodeagent.freezer import ContainerThawer
from nodeagent.runtime import base
from tests.fakes.runtime import FakeRuntime

ID = "c0ffee" * 10


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezer, "RETRY_S", 0.001)
    monkeypatch.setattr(freezer, "SETTLE_S", 0.001)


@pytest.fixture
async def fake() -> FakeRuntime:
    runtime = FakeRuntime()
    sandbox = base.SandboxSpec("web", "shop", "u1")
    sandbox_id = await runtime.run_sandbox(sandbox)
    spec = base.ContainerSpec("app", 0, "localhost/busybox:1")
    made = await runtime.create_container(sandbox_id, spec, sandbox)
    runtime.containers[ID] = runtime.containers.pop(made)
    return runtime


def v1(root: Path, state: str, *, name: str = ID) -> Path:
    cgroup = root / "freezer" / "orchpods" / "podu1" / name
    cgroup.mkdir(parents=True)
    (cgroup / "freezer.state").write_text(f"{state}\n")
    return cgroup / "freezer.state"


def v2(root: Path, state: str, *, name: str = ID, below: str = "") -> Path:
    cgroup = root / below / "orchpods" / "podu1" / name
    cgroup.mkdir(parents=True)
    (cgroup / "cgroup.freeze").write_text(f"{state}\n")
    return cgroup / "cgroup.freeze"


@pytest.mark.parametrize("state", ["FROZEN", "FREEZING"])
def test_a_frozen_v1_cgroup_is_thawed(tmp_path: Path, state: str) -> None:
    control = v1(tmp_path, state)

    assert freezer.thaw(tmp_path, ID) is True
    assert control.read_text() == "THAWED"


async def test_an_unreadable_state_is_neither_frozen_nor_running(
    tmp_path: Path, fake: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    control = v1(tmp_path, "FROZEN")
    thawer = ContainerThawer(fake, cgroup_root=tmp_path)
    assert await thawer.is_frozen(ID) is True
    control.unlink()
    assert await thawer.is_frozen(ID) is False  # it has just ended
    control.mkdir()

    assert await thawer.is_frozen(ID) is None
    assert "cannot see whether container" in caplog.text


@pytest.mark.parametrize("name", [ID, f"cri-containerd-{ID}.scope", f"crio-{ID}.scope"])
def test_a_frozen_v2_cgroup_is_thawed_under_either_cgroup_driver(tmp_path: Path, name: str) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    control = v2(tmp_path, "1", name=name)

    assert freezer.thaw(tmp_path, ID) is True
    assert control.read_text() == "0"


def test_on_a_hybrid_host_both_hierarchies_are_thawed(tmp_path: Path) -> None:
    first, second = v1(tmp_path, "FROZEN"), v2(tmp_path, "1", below="unified")

    assert freezer.thaw(tmp_path, ID) is True
    assert (first.read_text(), second.read_text()) == ("THAWED", "0")


def test_running_and_other_containers_are_left_alone(tmp_path: Path) -> None:
    running = v1(tmp_path, "THAWED")
    other = v1(tmp_path, "FROZEN", name="other")

    assert freezer.thaw(tmp_path, ID) is False
    assert freezer.thaw(tmp_path, "") is False
    assert (running.read_text(), other.read_text()) == ("THAWED\n", "FROZEN\n")


@pytest.mark.parametrize("below", ["", "init.scope"])
@pytest.mark.parametrize(
    ("tracer", "comm", "expected"),
    [
        ("0", b"", {ID}), ("77", b"criu", set()), ("77", b"strace", {ID}), ("78", b"", {ID}),
        ("77", b"\xff", {ID}),
    ],
)  # fmt: skip
def test_a_container_being_dumped_by_criu_was_not_left_frozen(
    tmp_path: Path, tracer: str, comm: bytes, expected: set[str], below: str
) -> None:
    """A process names itself, with any bytes."""
    control = v1(tmp_path, "FROZEN")
    v1(tmp_path, "FROZEN", name="other")
    (control.parent / below).mkdir(exist_ok=True)
    (control.parent / below / "cgroup.procs").write_text("12\n13\n")
    traced = b"Name:\t\xff\nTracerPid:\t" + tracer.encode() + b"\nUid:\t0\n"
    for pid, status in (("13", traced), ("77", b"")):
        (tmp_path / "proc" / pid).mkdir(parents=True)
        (tmp_path / "proc" / pid / "status").write_bytes(status)
        (tmp_path / "proc" / pid / "comm").write_bytes(comm + b"\n")

    found, _ = freezer.left_frozen(tmp_path, {ID, "gone"}, proc=tmp_path / "proc")

    assert found == expected


def test_without_cgroups_there_is_nothing_to_thaw(tmp_path: Path) -> None:
    assert freezer.thaw(tmp_path, ID) is False


async def test_the_runtime_resumes_what_it_left_paused(
    quick: None, tmp_path: Path, fake: FakeRuntime
) -> None:
    fake.paused.add(ID)

    assert await ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID) is True
    assert fake.paused == set()
    assert len(fake.called("resume_container")) == 3


async def test_what_criu_freezes_again_as_it_ends_is_thawed(
    quick: None, tmp_path: Path, fake: FakeRuntime
) -> None:
    """The runtime, which has resumed the container, does not know of it."""
    control = v1(tmp_path, "THAWED")
    fake.paused.add(ID)
    reviving = asyncio.ensure_future(ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID))
    for state in ("THAWED", "FROZEN"):
        held = fake.hold("resume_container")
        await held.reached.wait()
        control.write_text(state)
        held.release()

    assert await reviving is True
    assert control.read_text() == "THAWED"


async def test_a_freeze_that_comes_late_is_found(
    quick: None, tmp_path: Path, fake: FakeRuntime
) -> None:
    held = fake.hold("resume_container")
    reviving = asyncio.ensure_future(ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID))
    await held.reached.wait()
    held.release()
    late = fake.hold("resume_container")
    await late.reached.wait()
    fake.paused.add(ID)
    late.release()

    assert await reviving is True


@pytest.mark.parametrize(("settled", "looks"), [(False, 3), (True, 1)])
async def test_a_running_container_is_checked_and_left_alone(
    quick: None, tmp_path: Path, fake: FakeRuntime, settled: bool, looks: int
) -> None:
    assert (
        await ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID, settled=settled)
        is False
    )
    assert len(fake.called("resume_container")) == looks


async def test_a_restarting_runtime_is_awaited(
    quick: None, tmp_path: Path, fake: FakeRuntime
) -> None:
    fake.paused.add(ID)
    fake.fail("resume_container", base.RuntimeUnavailable("Resume", "gone"), times=5)

    assert await ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID) is True
    assert len(fake.called("resume_container")) == 5 + 3


async def test_the_cgroup_is_thawed_when_the_runtime_stays_away(
    quick: None, tmp_path: Path, fake: FakeRuntime
) -> None:
    control = v1(tmp_path, "FROZEN")
    fake.fail("resume_container", base.RuntimeUnavailable("Resume", "gone"))

    assert (
        await ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID, limit_s=0.05) is True
    )
    assert control.read_text() == "THAWED"


@pytest.mark.parametrize("kind", [base.RuntimeNotSupported, base.RuntimeNotFound])
async def test_the_cgroup_is_thawed_at_once_when_the_runtime_cannot(
    quick: None, tmp_path: Path, fake: FakeRuntime, kind: type[base.RuntimeCallError]
) -> None:
    control = v1(tmp_path, "FROZEN")
    fake.fail("resume_container", kind("Resume", "no such thing"))

    assert await ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID) is True
    assert control.read_text() == "THAWED"
    assert len(fake.called("resume_container")) == 1


async def test_a_cgroup_that_cannot_be_thawed_is_logged(
    quick: None, tmp_path: Path, fake: FakeRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    control = v1(tmp_path, "FROZEN")
    control.unlink()
    control.mkdir()  # reading it fails with something else than "gone"
    fake.fail("resume_container", base.RuntimeNotSupported("Resume", "no such thing"))

    assert await ContainerThawer(fake, cgroup_root=tmp_path).ensure_running(ID) is False
    assert "cannot be thawed" in caplog.text


def test_a_cgroup_without_a_freezer_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "freezer" / ID).mkdir(parents=True)

    assert freezer.thaw(tmp_path, ID) is False
