"""Pod cgroups in trees made of plain directories, as v1 with a unified one beside, and as v2."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.pods import counts
from nodeagent.pods.cgroups.pod_cgroups import CgroupError, PodCgroups
from nodeagent.pods.counts import Timings
from nodeagent.pods.spec.policy import ResourcePolicy
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import named
from tests.fakes.timings import observed

LIMITED = pod(container_data("app", resources={"limits": {"cpu": "1", "memory": "64Mi"}}))


class KernelDirectory:
    """Gives a new cgroup its files, as the kernel would."""

    def __init__(self, path: Path, **files: str) -> None:
        path.mkdir(parents=True)
        for name, content in files.items():
            (path / name.replace("__", ".")).write_text(content)


async def test_every_hierarchy_gets_the_pods_cgroup_and_loses_it(tmp_path: Path) -> None:
    for name in ("cpu", "memory", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpu,cpuacct").symlink_to("cpu")
    times = Timings()
    cgroups = PodCgroups("/orchpods", times, root=str(tmp_path))
    await cgroups.ensure(LIMITED)
    made = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/orchpods/*"))
    assert made == [
        f"cpu,cpuacct/orchpods/pod{UID}",
        f"cpu/orchpods/pod{UID}",
        f"memory/orchpods/pod{UID}",
        f"unified/orchpods/pod{UID}",
    ]
    (tmp_path / f"cpu/orchpods/pod{UID}/container/nested").mkdir(parents=True)
    await cgroups.remove(UID)
    await cgroups.remove(UID)
    assert not list(tmp_path.glob("*/orchpods/*"))
    await cgroups.balance([LIMITED])
    await cgroups.balance([LIMITED])
    await cgroups.remove_parent()
    assert not list(tmp_path.glob("*/orchpods"))
    took = observed(times, counts.CGROUPS)
    assert {operation: held.count for (operation,), held in took.items()} == {
        "create": 1,
        "destroy": 2,
        "update": 1,
    }


CLASSES = [
    ({"limits": {"cpu": "1", "memory": "64Mi"}}, "orchpods"),
    ({"requests": {"cpu": "250m"}}, "orchpods/burstable"),
    ({}, "orchpods/besteffort"),
]


@pytest.mark.parametrize(("resources", "parent"), CLASSES)
async def test_each_class_of_service_has_its_place(
    tmp_path: Path, resources: dict[str, dict[str, str]], parent: str
) -> None:
    (tmp_path / "cpu").mkdir()
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path))
    await cgroups.ensure(pod(container_data("app", resources=resources)))
    assert (tmp_path / "cpu" / parent / f"pod{UID}").is_dir()
    await cgroups.remove(UID)
    assert not list(tmp_path.glob("cpu/**/pod*"))


@pytest.mark.parametrize(("unified", "shares", "least"), [
    (False, "768", "2"),
    (True, "30", "1"),
])  # fmt: skip
async def test_the_classes_share_the_processor_by_what_their_pods_ask_for(
    tmp_path: Path, unified: bool, shares: str, least: str
) -> None:
    root, file = (tmp_path, "cpu.weight") if unified else (tmp_path / "cpu", "cpu.shares")
    for name in ("burstable", "besteffort"):
        KernelDirectory(root / "orchpods" / name, **{file.replace(".", "__"): "1024"})
    if unified:
        (tmp_path / "cgroup.controllers").write_text("cpu\n")
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path))
    asking = [
        pod(container_data("app", resources={"requests": {"cpu": c}})) for c in ("250m", "500m")
    ]
    await cgroups.balance([*asking, LIMITED, pod()])
    assert (root / "orchpods/burstable" / file).read_text() == shares
    assert (root / "orchpods/besteffort" / file).read_text() == least
    await cgroups.balance([pod()])
    assert (root / "orchpods/burstable" / file).read_text() == least, "nobody asks any more"
    await cgroups.remove_parent()


async def test_only_what_has_changed_is_added_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of containers took 15 ms at each change of any pod."""
    read: list[str] = []
    real = podspec.qos_class

    def counted(one: Pod) -> str:
        read.append(one.metadata.name)
        return real(one)

    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path))
    many = [named(LIMITED, f"p{number}", f"u{number}") for number in range(10)]
    await cgroups.balance(many)
    monkeypatch.setattr(podspec, "qos_class", counted)
    await cgroups.balance([*many[1:], named(LIMITED, "new", "u-new")])
    await cgroups.remove_parent()
    assert read == ["new"]


@pytest.mark.parametrize("protects", [True, False])
async def test_what_pods_request_is_protected_in_the_cgroups_above_them(
    tmp_path: Path, protects: bool
) -> None:
    for name, file in (("", "memory.min"), ("burstable", "memory.low")):
        KernelDirectory(tmp_path / "orchpods" / name, **{file.replace(".", "__"): "7"})
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    policy = ResourcePolicy(unified=True, throttling_factor=0.9, protects_memory=protects)
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path), policy=policy)
    burstable = container_data("app", resources={"requests": {"memory": "1Mi"}})
    await cgroups.balance([LIMITED, pod(burstable), pod()])
    guaranteed, shared = tmp_path / "orchpods/memory.min", "orchpods/burstable/memory.low"
    assert guaranteed.read_text() == (str(65 * 2**20) if protects else "0")
    assert (tmp_path / shared).read_text() == (str(2**20) if protects else "0")
    await cgroups.balance([])
    assert guaranteed.read_text() == (tmp_path / shared).read_text() == "0"


LIMITS = [
    ("memory", "memory.limit_in_bytes", 3 << 30, "3221225472"),
    ("memory", "memory.limit_in_bytes", None, "-1"),
    ("", "memory.max", 3 << 30, "3221225472"),
    ("", "memory.max", None, "max"),
]


@pytest.mark.parametrize(("hierarchy", "file", "limit", "text"), LIMITS)
async def test_all_pods_together_have_the_memory_that_is_not_reserved(
    tmp_path: Path, hierarchy: str, file: str, limit: int | None, text: str
) -> None:
    KernelDirectory(tmp_path / hierarchy / "orchpods", **{file.replace(".", "__"): "4096"})
    if not hierarchy:
        (tmp_path / "cgroup.controllers").write_text("memory\n")
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path), memory_bytes=limit)
    await cgroups.balance([])
    assert (tmp_path / hierarchy / "orchpods" / file).read_text() == text


async def test_a_cgroup_that_is_there_gets_its_bounds_all_the_same(tmp_path: Path) -> None:
    """As when an agent was killed between making the directory and writing to it."""
    KernelDirectory(
        tmp_path / f"memory/orchpods/pod{UID}", memory__limit_in_bytes="9223372036854771712"
    )
    await PodCgroups("/orchpods", Timings(), root=str(tmp_path)).ensure(LIMITED)
    limit = tmp_path / f"memory/orchpods/pod{UID}/memory.limit_in_bytes"
    assert limit.read_text() == str(64 * 2**20)


async def test_the_parent_stays_while_it_holds_another_pod(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path))
    await cgroups.ensure(LIMITED)
    await cgroups.remove_parent()
    assert list(tmp_path.glob("cpu/orchpods/*"))


async def test_on_v2_controllers_are_passed_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu")
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path))
    await cgroups.ensure(LIMITED)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (tmp_path / f"orchpods/pod{UID}").is_dir()


async def test_what_may_not_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/orchpods").touch()
    cgroups = PodCgroups("/orchpods", Timings(), root=str(tmp_path))
    await cgroups.ensure(LIMITED)
    await cgroups.ensure(LIMITED)
    assert caplog.text.count("pods run without bounds of their own") == 1


@pytest.mark.looptime
async def test_a_cgroup_that_cannot_go_is_an_error_that_names_it(tmp_path: Path) -> None:
    stuck = tmp_path / f"cpu/orchpods/pod{UID}"
    KernelDirectory(stuck, cgroup__procs="")
    with pytest.raises(CgroupError, match=f"orchpods/pod{UID} still holds processes"):
        await PodCgroups("/orchpods", Timings(), root=str(tmp_path)).remove(UID)


@pytest.mark.parametrize("uid", ["", "a/b"])
async def test_only_a_uid_names_a_cgroup_to_remove(tmp_path: Path, uid: str) -> None:
    with pytest.raises(CgroupError, match="is not a pod uid"):
        await PodCgroups("/orchpods", Timings(), root=str(tmp_path)).remove(uid)
