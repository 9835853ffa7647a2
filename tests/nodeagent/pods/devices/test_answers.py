"""Registrations and answers of plugins, good and hostile."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nodeagent.pods.devices import answers
from nodeagent.pods.devices import deviceplugin_pb2 as pb
from nodeagent.pods.devices.answers import AnswerError
from nodeagent.pods.devices.inventory import Device
from nodeagent.runtime.base import HostDevice, Mount

GOOD = ("v1beta1", "example.com/foo", "foo.sock")


@pytest.mark.parametrize("endpoint", ["foo.sock", "dp.1700000000", "intel.com_sriov-1", "a:b@c"])
def test_a_plugin_registers_with_a_name_of_its_own(endpoint: str) -> None:
    answers.require_registration(*GOOD[:2], endpoint)


@pytest.mark.parametrize(
    ("registration", "text"),
    [
        (
            ("v1alpha1", *GOOD[1:]),
            'requested API version "v1alpha1" is not supported by this agent. '
            'Supported version is ["v1beta1"]',
        ),
        (("v1beta2", *GOOD[1:]), 'requested API version "v1beta2" is not supported'),
        (("", *GOOD[1:]), 'requested API version "" is not supported'),
        *(
            (("v1beta1", name, "foo.sock"), f'the ResourceName "{name[:100]}" is invalid')
            for name in (
                *("", "foo", "/foo", "example.com/", "a/b/c", "kubernetes.io/foo", "EX_.com/foo"),
                *("sub.kubernetes.io/foo", "requests.example.com/foo", "example.com/" + "x" * 64),
                *("cpu", "hugepages-2Mi", "example.com/foo\n"),
            )
        ),
        *(
            ((*GOOD[:2], endpoint), f'the endpoint "{endpoint[:100]}" is not the name of a socket')
            for endpoint in (
                *("", ".", "..", "../foo.sock", "/run/foo.sock", "a/b", "..%2Ffoo", "foo%2Fbar"),
                *("kubelet.sock", ".foo", "foo\0bar", "foo sock", "x" * 91, "foo?a", "foo#a"),
            )
        ),
    ],
)
def test_a_bad_registration_is_refused_with_the_reason(
    registration: tuple[str, str, str], text: str
) -> None:
    with pytest.raises(AnswerError) as refused:
        answers.require_registration(*registration)
    assert str(refused.value).startswith(text)


def test_devices_are_read_with_their_numa_nodes() -> None:
    topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=1), pb.NUMANode(ID=0)])
    message = pb.ListAndWatchResponse(
        devices=[
            pb.Device(ID="a", health="Healthy", topology=topology),
            pb.Device(ID="b", health="Unhealthy"),
            pb.Device(ID="c", health="healthy"),
        ]
    )
    assert list(answers.devices(message.SerializeToString()).values()) == [
        Device("a", True, (1, 0)),
        Device("b", False),
        Device("c", False),
    ]


def test_a_device_listed_twice_is_one() -> None:
    twice = [pb.Device(ID="a", health="Healthy"), pb.Device(ID="a")]
    found = pb.ListAndWatchResponse(devices=twice).SerializeToString()
    assert answers.devices(found) == {"a": Device("a", False)}


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ([pb.Device(ID="")], "devices[0].ID"),
        ([pb.Device(ID="a"), pb.Device(ID="x" * 257)], "devices[1].ID"),
        ([pb.Device(ID=str(n)) for n in range(16_385)], "devices: 16385 are listed"),
        (
            [pb.Device(ID="a", topology=pb.TopologyInfo(nodes=[pb.NUMANode()] * 65))],
            "devices[0].topology.nodes",
        ),
    ],
)
def test_a_list_beyond_the_bounds_is_refused(listed: list[Any], text: str) -> None:
    with pytest.raises(AnswerError) as refused:
        answers.devices(pb.ListAndWatchResponse(devices=listed).SerializeToString())
    assert str(refused.value).startswith(text)


def allocated(**fields: Any) -> bytes:
    answer = pb.ContainerAllocateResponse(**fields)
    return pb.AllocateResponse(container_responses=[answer]).SerializeToString()  # type: ignore[no-any-return]


def test_a_grant_has_all_that_a_plugin_adds() -> None:
    grant = answers.grant(
        allocated(
            envs={"B": "2", "A": ""},
            mounts=[pb.Mount(container_path="/in", host_path="/out", read_only=True)],
            devices=[pb.DeviceSpec(container_path="/dev/a", host_path="/dev/b", permissions="mrw")],
            annotations={"a/b": "c"},
            cdi_devices=[pb.CDIDevice(name="vendor.com/gpu=gpu0")],
        )
    )
    assert grant.env == (("A", ""), ("B", "2"))
    assert grant.mounts == (Mount("/out", "/in", readonly=True),)
    assert grant.devices == (HostDevice("/dev/a", "/dev/b", "mrw"),)
    assert grant.annotations == {"a/b": "c"}
    assert grant.cdi_devices == ("vendor.com/gpu=gpu0",)


@pytest.mark.parametrize(
    ("fields", "at"),
    [
        ({"envs": {"": "x"}}, "envs"),
        ({"envs": {"A=B": "x"}}, "envs"),
        ({"envs": {"A": "x\0"}}, "envs[A]"),
        ({"envs": {"A": "x" * (128 * 1024 + 1)}}, "envs[A]"),
        ({"mounts": [pb.Mount(container_path="in", host_path="/o")]}, "mounts[0].container_path"),
        ({"mounts": [pb.Mount(container_path="/in", host_path="/../o")]}, "mounts[0].host_path"),
        ({"devices": [pb.DeviceSpec(container_path="/a")]}, "devices[0].host_path"),
        (
            {"devices": [pb.DeviceSpec(container_path="/a", host_path="/b", permissions="rx")]},
            "devices[0].permissions",
        ),
        (
            {"devices": [pb.DeviceSpec(container_path="/a", host_path="/b\0", permissions="r")]},
            "devices[0].host_path",
        ),
        ({"annotations": {"a": "\0"}}, "annotations"),
        ({"cdi_devices": [pb.CDIDevice(name="gpu0")]}, "cdi_devices[0].name"),
        ({"mounts": [pb.Mount(container_path="/a", host_path="/b")] * 1025}, "mounts: '1025'"),
        ({"annotations": {str(n): "x" * 1100 for n in range(1000)}}, "container_responses[0]"),
        ({"annotations": {str(n): "x" * 999 for n in range(9)}}, "annotations: '9000'"),
    ],
)
def test_a_grant_that_no_container_may_have_is_refused(fields: dict[str, Any], at: str) -> None:
    with pytest.raises(AnswerError) as refused:
        answers.grant(allocated(**fields))
    assert str(refused.value).startswith(at)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("count", [0, 2])
def test_one_container_has_one_answer(count: int) -> None:
    answer = pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse()] * count)
    with pytest.raises(AnswerError, match=f"{count} answers for one container"):
        answers.grant(answer.SerializeToString())


def test_no_preference_is_none() -> None:
    assert answers.preferred(b"") == ()
    liked = pb.ContainerPreferredAllocationResponse(deviceIDs=["b", "a"])
    found = pb.PreferredAllocationResponse(container_responses=[liked])
    assert answers.preferred(found.SerializeToString()) == ("b", "a")


EMPTY = b"\x0a\x00"  # a part without content


def part(number: int, content: bytes) -> bytes:
    """A field that holds bytes, with a length of four bytes."""
    size = bytes(len(content) >> shift & 0x7F | 0x80 for shift in (0, 7, 14))
    return bytes((number << 3 | 2,)) + size + bytes((len(content) >> 21,)) + content


MANY = EMPTY * 2_000_000


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (answers.devices, MANY),
        (answers.devices, part(1, part(3, MANY))),
        (answers.preferred, part(1, MANY)),
        (answers.grant, MANY),
        (answers.grant, part(1, part(1, b"\x0a\x01a") * 300_000)),
        (partial(answers.decoded, pb.DevicePluginOptions), b"\x08\x01" * 1_000_000),
    ],
)
def test_millions_of_fields_are_refused_before_they_are_made(
    read: Callable[[bytes], object], found: bytes
) -> None:
    """4 MB of them were objects within half a second, in which nothing else ran."""
    with pytest.raises(AnswerError, match="more than 131072 fields"):
        read(found)


@pytest.mark.parametrize(
    "found",
    [
        b"\x0a",
        b"\x0a\x05a",
        b"\x0a\x02\x0a\x05",
        b"\x0b\x0c",
        b"\xff" * 20,
        b"\x0a\x03\x0a\x01\xff",
        b"\x0a\xff\xff\xff\xff\x0f",
    ],
)
def test_bytes_that_are_no_answer_are_refused(found: bytes) -> None:
    with pytest.raises(AnswerError, match="no ListAndWatchResponse: "):
        answers.devices(found)
