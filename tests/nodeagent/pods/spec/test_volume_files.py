"""Volumes made of objects and fields, as in the reference's configmap and projected tests."""

from __future__ import annotations

import time
from typing import Any

import pytest

from nodeagent.pods.spec import references, volume_files
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.references import NotThere, ObjectData, Reference, TokenReference
from nodeagent.pods.spec.volume_files import VolumeFile
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod

CONFIG, SECRET = Reference("ConfigMap", "c"), Reference("Secret", "s")
OBJECTS = {CONFIG: ObjectData({"a": b"1", "b": b"2"}), SECRET: ObjectData({"k": b"\xff"})}
GONE = {CONFIG: ObjectData(absent=True), SECRET: ObjectData(absent=True)}
NAME_FIELD = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}


def made(volume: dict[str, Any], objects: references.Objects = OBJECTS) -> dict[str, Any]:
    """Path → content and mode."""
    wanted = pod(volumes=[{"name": "v", **volume}])
    [record] = wanted.spec.volumes or []
    files = volume_files.files(wanted, record, objects, {})
    return {file.path: (file.content, file.mode) for file in files}


GOOD: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"configMap": {"name": "c"}}, {"a": (b"1", 0o644), "b": (b"2", 0o644)}),
    ({"configMap": {"name": "c", "defaultMode": 0o400}}, {"a": (b"1", 0o400), "b": (b"2", 0o400)}),
    (
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "x/y", "mode": 0o600}]}},
        {"x/y": (b"1", 0o600)},
    ),
    ({"secret": {"secretName": "s"}}, {"k": (b"\xff", 0o644)}),
    (
        {"configMap": {"name": "c", "optional": True, "items": [{"key": "none", "path": "x"}]}},
        {},
    ),
    (
        {
            "projected": {
                "defaultMode": 0o440,
                "sources": [
                    {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
                    {"secret": {"name": "s"}},
                    {"downwardAPI": {"items": [NAME_FIELD]}},
                ],
            }
        },
        {"a": (b"1", 0o440), "k": (b"\xff", 0o440), "name": (b"web", 0o440)},
    ),
    ({"downwardAPI": {"items": [NAME_FIELD], "defaultMode": 0o444}}, {"name": (b"web", 0o444)}),
]


@pytest.mark.parametrize(("volume", "expected"), GOOD)
def test_a_volume_has_the_files_asked_for(volume: dict[str, Any], expected: dict[str, Any]) -> None:
    assert made(volume) == expected


BAD: list[tuple[dict[str, Any], references.Objects, type[Exception], str]] = [
    ({"configMap": {"name": "c"}}, GONE, NotThere, 'configmap "c" not found'),
    ({"secret": {"secretName": "s"}}, GONE, NotThere, 'secret "s" not found'),
    (
        {"configMap": {"name": "c", "items": [{"key": "none", "path": "x"}]}},
        OBJECTS,
        NotThere,
        'configmap "c" references non-existent key: none',
    ),
    (
        {"configMap": {"name": "c", "optional": True}},
        {CONFIG: ObjectData(problem="the API is away")},
        NotThere,
        "the API is away",
    ),
    (
        {"configMap": {"name": "c", "items": [{"key": "a", "path": "../x"}]}},
        OBJECTS,
        SpecError,
        "must be relative",
    ),
    *(
        (
            {"configMap": {"name": "c", "items": [{"key": "a", "path": path}]}},
            OBJECTS,
            SpecError,
            "not begin with it",
        )
        for path in ("..data", "./..data", "./..x/y")
    ),
    ({"configMap": {"name": "c", "defaultMode": 0o1000}}, OBJECTS, SpecError, "mode 512 is not"),
    (
        {
            "configMap": {
                "name": "c",
                "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}],
            }
        },
        OBJECTS,
        SpecError,
        "which is a file",
    ),
    (
        {"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        OBJECTS,
        NotThere,
        'token of serviceaccount "default" was not read',
    ),
    (
        {"projected": {"sources": [{"podCertificate": {"keyPath": "k"}}]}},
        OBJECTS,
        SpecError,
        "projected source podCertificate is not supported",
    ),
]


@pytest.mark.parametrize(("volume", "objects", "error", "text"), BAD)
def test_what_cannot_be_is_named(
    volume: dict[str, Any], objects: references.Objects, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        made(volume, objects)


def shown_often(times: int, of: dict[str, Any]) -> dict[str, Any]:
    items = [{"path": str(number), **of} for number in range(times)]
    kind = "downwardAPI" if "fieldRef" in of else "configMap"
    return {"projected": {"sources": [{kind: {"name": "c", "items": items}}]}}


def deep(times: int) -> dict[str, Any]:
    """Each file in 512 directories of its own."""
    items = [{"key": "a", "path": f"{number:02}/{'d/' * 510}f"} for number in range(times)]
    return {"configMap": {"name": "c", "items": items}}


MANY: list[tuple[dict[str, Any], references.Objects]] = [
    (shown_often(65, {"key": "a"}), {CONFIG: ObjectData({"a": b"x" * 2**20})}),
    (shown_often(20_001, {"key": "a"}), {CONFIG: ObjectData({"a": b""})}),
    (deep(40), {CONFIG: ObjectData({"a": b""})}),
    (shown_often(300, {"fieldRef": {"fieldPath": "metadata.annotations"}}), {}),
]


def test_what_is_shown_again_and_again_is_held_once() -> None:
    """Four pods with 60 MB of their own annotations took 200 MB of the agent."""
    field = {"fieldPath": "metadata.annotations"}
    items = [{"path": name, "fieldRef": field} for name in "ab"]
    shown = pod(
        metadata={"annotations": {"a": "x"}},
        volumes=[{"name": "v", "downwardAPI": {"items": items}}],
    )
    first, second = volume_files.files(shown, (shown.spec.volumes or [])[0], {}, {})
    assert first.content is second.content
    assert first.content == b'a="x"'


@pytest.mark.parametrize(
    ("volume", "objects"), MANY, ids=["bytes", "files", "directories", "annotations"]
)
def test_what_is_shown_again_and_again_is_bounded(
    volume: dict[str, Any], objects: references.Objects
) -> None:
    """A pod of 3 MiB asked for 6 GB in memory, or for 1.5 GB of its annotations, or for one and a
    half million directories.
    """
    shown = pod(volumes=[{"name": "v", **volume}])
    shown.metadata.annotations = {"a": "x" * 250_000}
    [record] = shown.spec.volumes or []
    with pytest.raises(SpecError, match="show more than 20000 files and directories, or 64 MiB"):
        volume_files.files(shown, record, objects, {})


@pytest.mark.parametrize("path", ["a/" * 1_500_000 + "b", "a\0b", ".", "./"])
def test_a_path_that_no_file_can_have_is_refused_at_once(path: str) -> None:
    item = {"key": "a", "path": path}
    with pytest.raises(SpecError, match="path"):
        made({"configMap": {"name": "c", "items": [item]}})


def test_small_files_take_whole_pages_of_memory_and_inodes() -> None:
    """15,000 of one byte took 82 MB, and counted as 15 kB."""
    files = [VolumeFile(f"d/{number}", b"x" * number, 0o644) for number in range(10)]
    assert volume_files.in_memory_bytes(files) == 9 * 4096 + (10 + 1) * 2048


def test_files_that_lie_deep_or_side_by_side_are_told_apart_in_linear_time() -> None:
    deep = [{"key": "a", "path": f"{'d/' * 500}{number}"} for number in range(2000)]
    beside = [{"key": "a", "path": path} for path in ("d-/x", "d.x", "d0")]
    began_s = time.process_time()
    assert len(made({"configMap": {"name": "c", "items": [*deep, *beside]}})) == 2003
    assert time.process_time() - began_s < 2
    hidden = {"key": "a", "path": "d"}
    with pytest.raises(SpecError, match="lies below 'd', which is a file"):
        made({"configMap": {"name": "c", "items": [*beside, hidden, *deep]}})


def test_a_pod_whose_volumes_are_made_anew_counts_with_all_that_it_had() -> None:
    """While its first volume was compared with the API, another pod took the place of the others,
    and so on: a namespace had as much as it liked.
    """
    shares, most = volume_files.MemoryShares(), volume_files.MAX_IN_MEMORY
    shares.hold("u1", "red", most)
    shares.hold("u1", "red", 1)
    for _ in range(2):
        with pytest.raises(SpecError, match="namespace red on this node show more than 128 MiB"):
            shares.hold("u2", "red", 1)
    shares.hold("u1", "red", most)
    shares.hold("u2", "blue", most)
    shares.release("u1")
    shares.hold("u3", "red", most)


def test_what_is_optional_and_absent_is_empty() -> None:
    assert made({"configMap": {"name": "c", "optional": True}}, GONE) == {}
    assert made({"secret": {"secretName": "s", "optional": True}}, GONE) == {}


TOKEN = {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 900}}
MIXED = {
    "projected": {
        "sources": [
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "ca.crt"}]}},
            {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [NAME_FIELD]}},
            TOKEN,
        ]
    }
}
TOKENS = {**OBJECTS, TokenReference("bot", "vault", 900): ObjectData({"token": b"t"})}


def container(**security: Any) -> dict[str, Any]:
    return container_data("c", **({"securityContext": security} if security else {}))


@pytest.mark.parametrize(
    ("spec", "mode", "owner"),
    [
        ({}, 0o644, None),
        ({"securityContext": {"runAsUser": 7}}, 0o600, 7),
        ({"securityContext": {"runAsUser": 0}}, 0o600, 0),
        ({"securityContext": {"fsGroup": 5}}, 0o600, None),  # whose right to read is added
        ({"containers": [container(runAsUser=8)], "securityContext": {"runAsUser": 7}}, 0o600, 8),
        ({"containers": [container(runAsUser=8)], "initContainers": [container()]}, 0o644, None),
        ({"containers": [container()], "initContainers": [container(runAsUser=8)]}, 0o644, None),
        ({"containers": [container(runAsUser=8), container(runAsUser=9)]}, 0o644, None),
        (
            {"containers": [container(runAsUser=8)], "ephemeralContainers": [container()]},
            0o600,
            8,
        ),
    ],
)
def test_a_token_is_for_the_one_user_of_its_pod(
    spec: dict[str, Any], mode: int, owner: int | None
) -> None:
    """As K:pkg/volume/util FsUserFrom and the projected volumes of the reference have it."""
    wanted = Pod.from_wire(
        {
            "metadata": {"name": "web"},
            "spec": {
                "serviceAccountName": "bot",
                "containers": [container()],
                **spec,
                "volumes": [{"name": "v", **MIXED}],
            },
        }
    )
    [record] = wanted.spec.volumes or []
    found = {file.path: file for file in volume_files.files(wanted, record, TOKENS, {})}
    assert sorted(found) == ["ca.crt", "k", "name", "token"]
    token = found["token"]
    assert (token.content, token.mode, token.owner) == (b"t", mode, owner)
    assert (found["k"].mode, found["k"].owner) == (0o644, None)
