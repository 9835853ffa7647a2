"""Odd answers of runtimes; the ordinary ones are in the contract suite."""

import pytest

from nodeagent.runtime import base, cri_responses, cri_usage, isolation
from nodeagent.runtime import cri_pb2 as pb


@pytest.mark.parametrize(
    ("info", "pid"),
    [
        ({"info": '{"pid": 4242, "runtimeSpec": {}}'}, 4242),
        ({"info": '{"pid": 0}'}, None),
        ({"info": '{"pid": "7"}'}, None),
        ({"info": '{"pid": true}'}, None),
        ({"info": "[" * 100_000}, None),
        ({"info": "[]"}, None),
        ({"info": "{not json"}, None),
        ({"info": "[" * 100_000}, None),
        ({"info": ""}, None),
        ({"other": '{"pid": 1}'}, None),
        ({}, None),
    ],
)
def test_the_process_id_is_read_from_the_verbose_json(
    info: dict[str, str], pid: int | None
) -> None:
    assert cri_responses.process_id(info) == pid


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (pb.CONTAINER_CREATED, base.ContainerState.CREATED),
        (pb.CONTAINER_RUNNING, base.ContainerState.RUNNING),
        (pb.CONTAINER_EXITED, base.ContainerState.EXITED),
        (pb.CONTAINER_UNKNOWN, base.ContainerState.UNKNOWN),
        (17, base.ContainerState.UNKNOWN),
    ],
)
def test_a_state_from_the_future_is_unknown(state: int, expected: base.ContainerState) -> None:
    assert cri_responses.container_state(state) is expected


def test_all_addresses_of_a_dual_stack_sandbox_are_kept_in_order() -> None:
    status = pb.PodSandboxStatus(
        network=pb.PodSandboxNetworkStatus(ip="10.0.0.5", additional_ips=[pb.PodIP(ip="fd00::5")])
    )

    detail = cri_responses.sandbox_detail(pb.PodSandboxStatusResponse(status=status))

    assert detail.ips == ("10.0.0.5", "fd00::5")


def test_texts_for_a_pods_status_are_cut_and_a_path_can_be_opened() -> None:
    """A container that cannot start is told with its command, which may have megabytes."""
    status = pb.ContainerStatus(reason="r" * 5000, message="m" * 5_000_000, log_path="/a\0b")
    detail = cri_responses.container_detail(pb.ContainerStatusResponse(status=status))
    assert (detail.reason, detail.message) == ("r" * 4096, "m" * 4096)
    assert detail.log_path == ""


def test_an_empty_status_has_only_defaults() -> None:
    detail = cri_responses.container_detail(pb.ContainerStatusResponse())

    assert detail.container.id == ""
    assert detail.container.state is base.ContainerState.CREATED
    assert detail.pid is None


def test_a_filesystem_without_inodes_reports_none() -> None:
    usage = pb.FilesystemUsage(
        timestamp=5,
        fs_id=pb.FilesystemIdentifier(mountpoint="/var/lib/x"),
        used_bytes=pb.UInt64Value(value=10),
    )

    answer = cri_usage.image_filesystems(pb.ImageFsInfoResponse(image_filesystems=[usage]))

    assert answer == (base.FilesystemUsage("/var/lib/x", 10, None, 5),)


def test_a_row_is_rebuilt_when_its_state_differs_and_dropped_when_it_is_not_listed() -> None:
    rows = cri_responses.RowCache(cri_responses.container)

    def listed(**states: int) -> tuple[base.Container, ...]:
        return rows.of([pb.Container(id=one, state=state) for one, state in states.items()])

    first, other = listed(a=pb.CONTAINER_RUNNING, b=pb.CONTAINER_RUNNING)
    again, ended = listed(a=pb.CONTAINER_RUNNING, b=pb.CONTAINER_EXITED)
    assert again is first
    assert (other.state, ended.state) == (base.ContainerState.RUNNING, base.ContainerState.EXITED)
    assert listed() == ()
    assert listed(a=pb.CONTAINER_RUNNING)[0] is not first


def test_the_user_and_the_stop_signal_of_a_container_are_read_where_they_are_reported() -> None:
    user = pb.LinuxContainerUser(uid=1000, gid=0, supplemental_groups=[5, 7])
    status = pb.ContainerStatus(
        user=pb.ContainerUser(linux=user), stop_signal=pb.Signal.Value("SIGRTMINPLUS3")
    )
    detail = cri_responses.container_detail(pb.ContainerStatusResponse(status=status))
    assert detail.user == isolation.ContainerUser(1000, 0, (5, 7))
    assert detail.stop_signal == "SIGRTMIN+3"
    silent = cri_responses.container_detail(pb.ContainerStatusResponse())
    assert (silent.user, silent.stop_signal) == (None, "")
    odd = cri_responses.container_detail(
        pb.ContainerStatusResponse(status=pb.ContainerStatus(stop_signal=999))
    )
    assert odd.stop_signal == ""


def test_the_handlers_that_can_make_user_namespaces_are_known() -> None:
    handlers = [
        pb.RuntimeHandler(name=name, features=pb.RuntimeHandlerFeatures(user_namespaces=can))
        for name, can in (("", True), ("old", False))
    ]
    found = cri_responses.features(pb.StatusResponse(runtime_handlers=handlers))
    assert found.user_namespaces == {""}
