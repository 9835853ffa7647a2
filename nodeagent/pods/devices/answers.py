"""Answers of device plugins → values, and what is wrong with them; pure.

A plugin is trusted with the devices of its node and with nothing else: counts and lengths have
bounds, the number of all fields before they become objects, and every path, variable and permission
is checked before it reaches the runtime. AnswerError names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from nodeagent.pods.devices import deviceplugin_pb2 as pb
from nodeagent.pods.devices.allocation import Grant
from nodeagent.pods.devices.inventory import Device
from nodeagent.runtime.base import HostDevice, Mount
from orch.wire.podrules.resources import is_extended_name
from orch.wire.protobuf import require_few_fields

VERSION = "v1beta1"
OWN_SOCKET = "kubelet.sock"  # as plugins know it
MAX_DEVICES = 16_384
FIELDS_MAX = 8 * MAX_DEVICES  # a device on one NUMA node has six
_ID_MAX = 256
_NODES_MAX = 64
_PARTS_MAX = 1024  # of a kind in a grant
_TEXT_MAX = 4096  # a path, an annotation's key
_VALUE_MAX = 128 * 1024  # the kernel takes no longer variable
_GRANT_MAX = 1024 * 1024  # of all texts together
_ANNOTATIONS_MAX = 8 * 1024  # in all: the runtime lists them with all containers in one message
_SHOWN_MAX = 100
_ENDPOINT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+=,~-]{0,89}")
_CDI_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+")


class AnswerError(Exception):
    """A plugin asks or answers what the API does not allow; the text names the field."""


def require_registration(version: str, resource: str, endpoint: str) -> None:
    """AnswerError unless such a plugin may register; texts as the reference agent's."""
    if version != VERSION:
        raise AnswerError(
            f'requested API version "{_shown(version)}" is not supported by this agent. '
            f'Supported version is ["{VERSION}"]'
        )
    if not is_extended_name(resource):
        raise AnswerError(
            f'the ResourceName "{_shown(resource)}" is invalid; it is a domain of yours, "/" and a '
            "name, and neither in kubernetes.io/ nor begins with requests."
        )
    if not _ENDPOINT.fullmatch(endpoint) or endpoint == OWN_SOCKET:
        raise AnswerError(
            f'the endpoint "{_shown(endpoint)}" is not the name of a socket beside {OWN_SOCKET}: '
            "at most 90 letters, digits and any of _.:@+=,~- without a folder"
        )


def decoded(kind: Any, found: bytes) -> Any:
    """The message of that kind."""
    try:
        require_few_fields(found, kind.DESCRIPTOR, FIELDS_MAX)
        return kind.FromString(found)
    except (DecodeError, ValueError) as error:
        raise AnswerError(f"no {kind.DESCRIPTOR.name}: {error}") from None


def devices(found: bytes) -> dict[str, Device]:
    """The devices of a ListAndWatchResponse by id; of one listed twice the last counts."""
    message = decoded(pb.ListAndWatchResponse, found)
    if len(message.devices) > MAX_DEVICES:
        count = len(message.devices)
        raise AnswerError(f"devices: {count} are listed, and {MAX_DEVICES} are allowed")
    read = (_device(listed, index) for index, listed in enumerate(message.devices))
    return {device.id: device for device in read}


def _device(listed: Any, index: int) -> Device:
    at = f"devices[{index}]"
    good = bool(listed.ID) and len(listed.ID) <= _ID_MAX
    _require(good, f"{at}.ID", listed.ID, f"has 1 to {_ID_MAX} characters")
    nodes = listed.topology.nodes
    _require(len(nodes) <= _NODES_MAX, f"{at}.topology.nodes", len(nodes), "are too many")
    return Device(listed.ID, listed.health == "Healthy", tuple(node.ID for node in nodes))


def preferred(found: bytes) -> Sequence[str]:
    """The device ids of a PreferredAllocationResponse; () for none."""
    answers = decoded(pb.PreferredAllocationResponse, found).container_responses
    ids = answers[0].deviceIDs if answers else ()
    _require(len(ids) <= MAX_DEVICES, "deviceIDs", len(ids), "are too many")
    return tuple(ids)


def grant(found: bytes) -> Grant:
    """What an AllocateResponse grants to its one container."""
    message = decoded(pb.AllocateResponse, found)
    if len(message.container_responses) != 1:
        count = len(message.container_responses)
        raise AnswerError(f"container_responses: {count} answers for one container")
    answer = message.container_responses[0]
    size = answer.ByteSize()
    _require(size <= _GRANT_MAX, "container_responses[0]", size, f"bytes, at most {_GRANT_MAX}")
    for name in ("envs", "mounts", "devices", "annotations", "cdi_devices"):
        count = len(getattr(answer, name))
        _require(count <= _PARTS_MAX, name, count, f"are more than {_PARTS_MAX}")
    return Grant(
        env=tuple(_variables(sorted(answer.envs.items()))),
        mounts=tuple(_mounts(answer.mounts)),
        devices=tuple(_host_devices(answer.devices)),
        annotations=dict(_annotations(sorted(answer.annotations.items()))),
        cdi_devices=tuple(_cdi_names(answer.cdi_devices)),
    )


def _variables(given: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for name, value in given:
        good = name and "=" not in name and "\0" not in name and len(name) <= _TEXT_MAX
        _require(bool(good), "envs", name, "is no name of a variable")
        good = "\0" not in value and len(value) <= _VALUE_MAX
        _require(good, f"envs[{_shown(name)}]", value, f"has no NUL and {_VALUE_MAX} characters")
        yield name, value


def _mounts(given: Iterable[Any]) -> Iterator[Mount]:
    for index, mount in enumerate(given):
        at = f"mounts[{index}]"
        _require_path(mount.container_path, f"{at}.container_path")
        _require_path(mount.host_path, f"{at}.host_path")
        yield Mount(mount.host_path, mount.container_path, readonly=mount.read_only)


def _host_devices(given: Iterable[Any]) -> Iterator[HostDevice]:
    for index, device in enumerate(given):
        at = f"devices[{index}]"
        _require_path(device.container_path, f"{at}.container_path")
        _require_path(device.host_path, f"{at}.host_path")
        rights = device.permissions
        good = bool(rights) and len(rights) <= 3 and set(rights) <= set("rwm")
        _require(good, f"{at}.permissions", rights, "is one or more of r, w and m")
        yield HostDevice(device.container_path, device.host_path, rights)


def _annotations(given: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    size = 0
    for name, value in given:
        good = 0 < len(name) <= _TEXT_MAX and "\0" not in name + value
        _require(good, "annotations", name, "is no name of an annotation")
        size += len(name.encode()) + len(value.encode())
        _require(
            size <= _ANNOTATIONS_MAX, "annotations", size, f"bytes, at most {_ANNOTATIONS_MAX}"
        )
        yield name, value


def _cdi_names(given: Iterable[Any]) -> Iterator[str]:
    for index, device in enumerate(given):
        good = len(device.name) <= _TEXT_MAX and _CDI_NAME.fullmatch(device.name)
        _require(bool(good), f"cdi_devices[{index}].name", device.name, "is vendor/class=name")
        yield device.name


def _require_path(path: str, at: str) -> None:
    good = path.startswith("/") and len(path) <= _TEXT_MAX and "\0" not in path
    _require(good and ".." not in path.split("/"), at, path, "is an absolute path without ..")


def _require(holds: bool, at: str, value: object, rule: str) -> None:
    if not holds:
        raise AnswerError(f"{at}: {_shown(value)!r}: {rule}")


def _shown(value: object) -> str:
    return str(value)[:_SHOWN_MAX]
