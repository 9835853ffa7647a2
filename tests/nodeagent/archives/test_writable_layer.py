"""The size of what a container has written, found through the mounts of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent.archives import writable_layer
from nodeagent.archives.writable_layer import LayerUnmeasured

OVERLAY = (
    "612 540 0:61 / / rw,relatime - overlay overlay rw,lowerdir=/l1:/l2,upperdir={},workdir=/w"
)
OTHERS = "613 612 0:62 / /proc rw,nosuid - proc proc rw\n614 612 0:63 / /dev rw - tmpfs tmpfs rw\n"


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """The layer of the container whose only process is 7."""
    upper = tmp_path / "upper"
    upper.mkdir()
    process = tmp_path / "proc" / "7"
    process.mkdir(parents=True)
    (process / "mountinfo").write_text(f"{OVERLAY.format(upper)}\n{OTHERS}")
    own = tmp_path / "proc" / "self"
    own.mkdir()
    (own / "mountinfo").write_text(OTHERS)
    return upper


def measured(layer: Path, *pids: str) -> int:
    return writable_layer.measure("c0ffee", pids or ("7",), proc=layer.parent / "proc")


def test_a_sparse_file_counts_with_its_length(layer: Path) -> None:
    with (layer / "large").open("wb") as file:
        file.truncate(1 << 32)
    assert (layer / "large").stat().st_blocks == 0
    assert measured(layer) >= 1 << 32


def test_a_process_cannot_show_another_layer_than_the_runtime_mounted(layer: Path) -> None:
    """In namespaces of its own it may mount an overlay as its root."""
    (layer / "file").write_bytes(bytes(100_000))
    mounts = layer.parent / "proc" / "7" / "mountinfo"
    mounts.write_text(f"{OVERLAY.format('/nowhere')}\n{OTHERS}")
    assert measured(layer) == 0, "all that is known of it"
    place = " /run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/rootfs "
    others, own = (
        OVERLAY.replace(" / / ", " /" + place.format(name)) for name in ("decaf", "c0ffee")
    )
    listed = f"{others.format('/other')}\n{own.format(layer)}\n{OTHERS}"
    (layer.parent / "proc" / "self" / "mountinfo").write_text(listed)
    assert measured(layer) >= 100_000


def test_a_process_that_has_exited_is_passed_over(layer: Path) -> None:
    (layer / "file").write_bytes(bytes(100_000))
    assert measured(layer, "6", "7") >= 100_000


def test_a_root_that_is_no_overlay_counts_as_nothing(layer: Path) -> None:
    mounts = layer.parent / "proc" / "7" / "mountinfo"
    mounts.write_text(f"612 540 8:1 /x / rw - ext4 /dev/sda1 rw\n{OTHERS}")
    assert measured(layer) == 0
    assert measured(layer, "6") == 0


def test_a_layer_too_deep_to_be_measured_is_an_error(layer: Path) -> None:
    (layer / "/".join(["d"] * 200)).mkdir(parents=True)
    with pytest.raises(LayerUnmeasured, match="deeper than 128"):
        measured(layer)
