"""Which images an archive names; what others may put into one is in `tests/attacks`."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from nodeagent.commands.image_archive import ImageArchiveError, names_in

MOST = 1 << 20
MANIFEST = [{"RepoTags": ["shop/web:1", "shop/web:2"]}, {"RepoTags": None}]
OCI = "org.opencontainers.image.ref.name"
CONTAINERD = "io.containerd.image.name"


def archive(members: dict[str, Any], *, form: int = tarfile.GNU_FORMAT, layer: int = 700) -> bytes:
    """A layer whose name is too long for one header, a link, a folder, and the members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as tar:
        long = tarfile.TarInfo("blobs/" + "a" * 200)
        long.size = layer
        long.mtime = 1.5 if form == tarfile.PAX_FORMAT else 1
        tar.addfile(long, io.BytesIO(bytes(layer)))
        link, folder = tarfile.TarInfo("link"), tarfile.TarInfo("folder")
        link.type, link.linkname, folder.type = tarfile.SYMTYPE, "b" * 150, tarfile.DIRTYPE
        tar.addfile(link)
        tar.addfile(folder)
        for name, value in members.items():
            content = json.dumps(value).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize(
    ("members", "names"),
    [
        ({"manifest.json": MANIFEST}, ["shop/web:1", "shop/web:2"]),
        ({"./manifest.json": MANIFEST, "index.json": {}}, ["shop/web:1", "shop/web:2"]),
        ({"index.json": {"manifests": [{"annotations": {OCI: "1"}}, {}]}}, ["1"]),
        ({"index.json": {"manifests": [{"annotations": {OCI: "1", CONTAINERD: "a:1"}}]}}, ["a:1"]),
    ],
)
def test_the_names_are_read(
    form: int, is_packed: bool, members: dict[str, Any], names: list[str], tmp_path: Path
) -> None:
    path, plain = tmp_path / "images", archive(members, form=form)
    path.write_bytes(gzip.compress(plain) if is_packed else plain)
    assert names_in(path, MOST) == names


def test_an_extended_header_may_hold_the_size(tmp_path: Path) -> None:
    """As for members above 8 GiB, whose size does not fit into a plain one."""
    layer = tarfile.TarInfo("layer")
    layer.pax_headers = {"size": "1024", "comment": "a\nb"}
    plain = layer.tobuf(tarfile.PAX_FORMAT) + bytes(1024) + archive({"manifest.json": MANIFEST})
    (tmp_path / "images").write_bytes(plain)
    assert names_in(tmp_path / "images", MOST) == ["shop/web:1", "shop/web:2"]


def test_what_it_unpacks_to_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "images").write_bytes(
        gzip.compress(archive({"manifest.json": MANIFEST}, layer=MOST + 1))
    )
    with pytest.raises(ImageArchiveError, match="holds more than --max-mib=1"):
        names_in(tmp_path / "images", MOST)
