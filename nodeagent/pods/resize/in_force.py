"""The sizes that are in force, kept in a file: what the runtime and the pods' cgroups were told.

A container carries the size that it was created with, a sandbox that of its pod; the file adds what
has changed since. Without the file they would be told again, which changes nothing that runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodeagent.pods.observed import ObservedPod, recorded_pod_size, recorded_size
from nodeagent.pods.resize.sizes import (
    InForce,
    Size,
    SizeGrant,
    allocated_pod,
    container_size,
    parse_size,
    pod_size,
)
from nodeagent.pods.resize.state_file import StateFile
from orch.wire.podrules.podspec import find_container
from orch.wire.records.pods import Pod


@dataclass(frozen=True, slots=True)
class _Told:
    """`sandbox` is the id of that whose cgroup has the size `whole`."""

    sandbox: str = ""
    whole: Size | None = None
    containers: Mapping[str, Size] = field(default_factory=dict)  # by id
    restarting: frozenset[str] = frozenset()


_NOTHING = _Told()


class SizesInForce:
    """By uid; only pods that were resized have an entry."""

    def __init__(self, file: StateFile) -> None:
        self._file = file
        self._told: dict[str, _Told] = {}

    def restore(self) -> None:
        """Take over what the last agent knew. SetupError for a file that cannot be trusted."""
        for uid, entry in self._file.read().items():
            try:
                self._told[uid] = _read(entry)
            except (ValueError, TypeError, AttributeError, KeyError):
                raise self._file.refuse_entry(uid) from None

    def of(self, pod: Pod, seen: ObservedPod, allocation: SizeGrant | None) -> InForce:
        """What is in force of the pod."""
        uid = pod.metadata.uid or ""
        told = self._told.get(uid, _NOTHING)
        first = allocation.first if allocation else {}
        former = allocated_pod(pod, SizeGrant(first)) if first else pod
        sandbox, whole = seen.sandbox, None
        if sandbox is not None:
            whole = told.whole if told.sandbox == sandbox.sandbox.id else None
            recorded = recorded_pod_size(sandbox)
            whole = whole or (parse_size(recorded) if recorded else pod_size(former))
        found = {}
        for detail in seen.active:
            row = detail.container
            size = told.containers.get(row.id)
            if size is None and (text := recorded_size(detail)):
                size = parse_size(text) or Size()  # not readable: told once more
            elif size is None and (container := find_container(former, row.name)):
                size = container_size(former, container)
            if size is not None:
                found[row.id] = size
        return InForce(whole, found, told.restarting, first)

    async def note(
        self,
        seen: ObservedPod,
        *,
        whole: Size | None = None,
        containers: Mapping[str, Size] | None = None,
        restarting: Iterable[str] = (),
    ) -> None:
        """Keep what was told, or which containers are about to be stopped for a restart."""
        told = self._told.get(seen.uid, _NOTHING)
        here = {detail.container.id for detail in seen.containers}
        sizes = {**told.containers, **(containers or {})}
        sandbox = seen.sandbox.sandbox.id if seen.sandbox else ""
        self._told[seen.uid] = _Told(
            sandbox=sandbox,
            whole=whole or (told.whole if told.sandbox == sandbox else None),
            containers={id_: size for id_, size in sizes.items() if id_ in here},
            restarting=frozenset({*told.restarting, *restarting} & here),
        )
        await self._file.save(self._entries)

    def forget(self, uid: str) -> None:
        """The pod was removed; the file forgets it when it is next written."""
        self._told.pop(uid, None)

    def _entries(self) -> dict[str, Any]:
        return {uid: _written(told) for uid, told in self._told.items()}


def _written(told: _Told) -> dict[str, Any]:
    return {
        "sandbox": told.sandbox,
        "whole": told.whole.text() if told.whole else "",
        "containers": {id_: size.text() for id_, size in told.containers.items()},
        "restarting": sorted(told.restarting),
    }


def _read(entry: Any) -> _Told:
    return _Told(
        sandbox=str(entry["sandbox"]),
        whole=_size(entry["whole"]) if entry["whole"] else None,
        containers={str(id_): _size(text) for id_, text in entry["containers"].items()},
        restarting=frozenset(map(str, entry["restarting"])),
    )


def _size(text: str) -> Size:
    size = parse_size(text)
    if size is None:
        raise ValueError(f"{text!r} is not a size")
    return size
