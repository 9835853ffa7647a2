"""The parts of a pod that are measured, by what the runtime holds of it."""

from __future__ import annotations

from nodeagent.pods.registry import pod_target
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import ContainerState
from nodeagent.stats.samples import VolumeTarget
from tests.fakes.pods import UID, exited, instance, pod, sandbox, seen

SETTINGS = PodSettings("n1", "/root-dir", "/logs")


def test_a_running_pod_is_measured_with_its_sandbox_and_its_running_containers() -> None:
    view = seen(sandbox(), instance("app"), instance("side", 2), exited("old"),
                instance("new", state=ContainerState.CREATED))  # fmt: skip
    target = pod_target(view, pod("app", "side"), SETTINGS)
    assert target
    assert (target.namespace, target.name, target.uid) == ("default", "web", UID)
    assert (target.sandbox_id, target.sandbox_pid) == ("s0", 100)
    assert target.started_at_ns == sandbox().sandbox.created_at_ns
    assert target.cgroup_parent.endswith(f"/pod{UID}")
    assert sorted(c.name for c in target.containers) == ["app", "side"]
    [app] = [c for c in target.containers if c.name == "app"]
    assert (app.id, app.image) == ("app0", "localhost/busybox:1")
    assert target.log_dir == f"/logs/default_web_{UID}"
    assert app.log_dir == f"{target.log_dir}/app"


def test_a_pod_is_measured_in_the_cgroup_its_sandbox_was_made_in() -> None:
    path = f"/orchpods/burstable/pod{UID}"
    made = sandbox(annotations={"orch.io/pod.cgroupParent": path})
    target = pod_target(seen(made, instance()), pod(), SETTINGS)
    assert target
    assert target.cgroup_parent == path


def test_a_pod_of_which_nothing_runs_is_not_measured() -> None:
    assert pod_target(seen(), pod(), SETTINGS) is None
    assert pod_target(seen(sandbox(ready=False), exited()), pod(), SETTINGS) is None


def test_a_container_that_outlives_its_sandbox_is_measured_without_its_network() -> None:
    target = pod_target(seen(sandbox(ready=False), instance()), pod(), SETTINGS)
    assert target
    assert (target.sandbox_id, target.sandbox_pid) == (None, None)
    assert [c.name for c in target.containers] == ["app"]


def test_the_pods_age_is_that_of_its_first_sandbox() -> None:
    target = pod_target(seen(sandbox(1), sandbox(0, ready=False)), pod(), SETTINGS)
    assert target
    assert target.sandbox_id == "s1"
    assert target.started_at_ns == sandbox(0).sandbox.created_at_ns


def test_a_pod_that_nobody_wants_any_more_is_measured_without_volumes() -> None:
    target = pod_target(seen(sandbox()), None, SETTINGS)
    assert target
    assert target.volumes == ()
    assert not target.host_network


def test_volumes_are_measured_where_they_lie() -> None:
    wanted = pod(
        volumes=[
            {"name": "scratch", "emptyDir": {}},
            {"name": "fast", "emptyDir": {"medium": "Memory"}},
            {"name": "key", "secret": {"secretName": "key"}},
            {"name": "own", "hostPath": {"path": "/srv/own"}},
            {"name": "facts", "downwardAPI": {"items": []}},
            {"name": "files", "image": {"reference": "localhost/files:1"}},
        ],
        hostNetwork=True,
    )
    target = pod_target(seen(sandbox()), wanted, SETTINGS)
    assert target
    assert target.host_network
    below = f"/root-dir/pods/{UID}/volumes"
    assert target.volumes == (
        VolumeTarget("scratch", f"{below}/empty-dir/scratch", "emptyDir"),
        VolumeTarget("fast", f"{below}/empty-dir/fast", "emptyDir", in_memory=True),
        VolumeTarget("key", f"{below}/secret/key", "secret", in_memory=True),
        VolumeTarget("own", "/srv/own", "hostPath"),
        VolumeTarget("facts", f"{below}/downward-api/facts", "downwardAPI"),
    )
