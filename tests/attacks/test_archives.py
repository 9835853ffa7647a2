"""Archives that somebody else made: images that are imported, checkpoints with their manifests.

Archives of images are read by a process that may have 512 MiB and a minute: it ends with one line.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent.commands.dispatch import dispatch
from tests import preloaded

MEMORY_BYTES = 512 << 20
ENDPOINT = "--container-runtime-endpoint=unix:///absent/containerd.sock"
NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
END = bytes(1024)


def member(content: bytes, name: str = "manifest.json", kind: bytes = tarfile.REGTYPE) -> bytes:
    return header(len(content), name, kind) + content + bytes(-len(content) % 512)


def header(size: int, name: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


def packed(head: bytes, zeros: int) -> bytes:
    """A megabyte and little more for each gigabyte."""
    return gzip.compress(head) + gzip.compress(bytes(1 << 20)) * (zeros >> 20)


def backwards() -> bytes:
    plain = bytearray(header(0, "layer"))
    plain[124:136] = b"\xff" * 8 + struct.pack(">i", -1024)
    plain[148:156] = b" " * 8
    plain[148:156] = b"%06o\0 " % sum(plain)
    return bytes(plain)


IMAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a member of a size below zero": (backwards, "a size below zero"),
    "extended headers of extended headers": (
        lambda: member(b"9 a=bbbb\n", "x", tarfile.XHDTYPE) * 5000 + member(b"[]"), "names no image"
    ),
    "an extended header of a gigabyte": (
        lambda: packed(header(1 << 30, "x", tarfile.XHDTYPE), 1 << 30), "larger than 65536 bytes"
    ),
    "a name of a gigabyte": (
        lambda: packed(header(1 << 30, "x", tarfile.GNUTYPE_LONGNAME), 1 << 30), "--max-mib=512"
    ),
    "an extended header of digits": (
        lambda: member(b"1" * (1 << 20), "x", tarfile.XHDTYPE), "larger than 65536 bytes"
    ),
    "many of them": (
        lambda: member(b"1" * (64 << 10), "x", tarfile.XHDTYPE) * 200, "no archive of images"
    ),
    "a size of digits": (
        lambda: member(b"9 size=" + b"9" * 60_000, "x", tarfile.XHDTYPE) + member(b"[]"),
        "larger than",
    ),
    "an index as deep as it is long": (lambda: member(b"[" * (4 << 20)), "no archive of images"),
    "more unpacked than may be": (lambda: packed(header(1 << 30, "x"), 1 << 30), "--max-mib=512"),
    "members without end": (
        lambda: packed(header(0, "x") * 30_000, 0), "has more than 20000 members"
    ),
    "a name for the terminal": (
        lambda: member(json.dumps([{"RepoTags": ["a:1\x1b[2J"]}]).encode()), "that is no name"
    ),
    "another shape": (lambda: member(b'[["RepoTags"]]'), "no archive of images"),
    "cut off": (lambda: member(b" " * 4096)[:1024], "it ends early"),
    "packed and cut off": (lambda: packed(header(1 << 20, "x"), 1 << 20)[:200], "no archive"),
    "packed and damaged": (lambda: b"\x1f\x8b\x08" + b"\xff" * 600, "no archive of images"),
}  # fmt: skip


def refusal(path: Path) -> str:
    """The one line that the command says."""
    command = ("image", "import", "--max-mib=512", str(path), ENDPOINT)
    done = preloaded.run("nodeagent.main", *command, memory_bytes=MEMORY_BYTES)
    said = done.stderr
    assert done.returncode == 1, said
    assert said.count("\n") == 1, said
    assert "\x1b" not in said
    return said


@pytest.mark.parametrize("case", IMAGES)
def test_an_archive_of_images_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    make, told = IMAGES[case]
    path = tmp_path / "images.tar"
    path.write_bytes(make() + END)
    assert told in refusal(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "images.tar")
    assert "is not a regular file" in refusal(tmp_path / "images.tar")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """With one good archive, which every list must show."""
    directory = tmp_path / "checkpoints"
    directory.mkdir(mode=0o700)
    (directory / NAME).write_bytes(b"tar")
    (directory / f"{NAME}.json").write_text(json.dumps({"name": NAME, "namespace": "shop"}))
    yield directory
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]


OTHER = NAME.replace("web", "other")
MANIFESTS = {
    "deep": b"[" * 65_000,
    "deep in a field": b'{"name":' + b"[" * 65_000,
    "no text": b'{"name":"%s","namespace":"\\ud800"}' % OTHER.encode(),
    "for the terminal": json.dumps({"name": OTHER, "container": "\x1b[2J\rgone"}).encode(),
    "a line's end": json.dumps({"name": OTHER, "namespace": "a\nb"}).encode(),
    "a long text": json.dumps({"name": OTHER, "image": "x" * 2000}).encode(),
    "a size of digits": b'{"name":"%s","size":%s}' % (OTHER.encode(), b"9" * 4000),
    "a size below zero": b'{"name":"%s","size":-1}' % OTHER.encode(),
    "a time before all times": json.dumps(
        {"name": OTHER, "created": "0001-01-01T00:00:00+23:59"}
    ).encode(),
}


@pytest.fixture
def listed(store: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """The store as text, as JSON, verified and judged: which names there are."""

    def show(*action: str) -> str:
        code = dispatch(["checkpoint", *action, f"--root-dir={store.parent}"])
        said = capsys.readouterr().out
        assert said.encode().isascii()
        assert code == int(action == ("verify",)), said
        return said

    def names() -> list[str]:
        assert "\x1b" not in show("list")
        show("prune", "--explain")
        assert "no manifest" in show("verify")
        records = json.loads(show("list", "-o", "json"))
        assert all(0 <= record["size"] < 2**63 for record in records)
        return [record["name"] for record in records]

    return names


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_costs_nothing_but_its_own_archive(
    case: str, store: Path, listed: Callable[[], list[str]]
) -> None:
    (store / OTHER).write_bytes(b"tar")
    (store / f"{OTHER}.json").write_bytes(MANIFESTS[case])
    assert sorted(listed()) == sorted((NAME, OTHER))


def test_names_and_kinds_of_file_cost_nobody_anything(
    store: Path, listed: Callable[[], list[str]]
) -> None:
    outside = store.parent.parent / f"{store.parent.name}-outside"
    outside.write_text("theirs")
    stamps = ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "2026-99-99T99:99:99Z")
    dated = [f"checkpoint-web_shop-app-{stamp}.tar" for stamp in stamps]
    for name in dated:
        (store / name).touch()
    (store / NAME.replace("web", "link")).symlink_to(outside)
    (store / NAME.replace("web", "folder")).mkdir()
    os.mkfifo(store / NAME.replace("web", "pipe"))
    Path(os.fsdecode(os.fsencode(store) + b"/checkpoint-\xff_a-b-2026-01-31T12:00:00Z.tar")).touch()
    (store / OTHER).touch()
    os.mkfifo(store / f"{OTHER}.json")
    os.truncate(store / OTHER, 1 << 40)
    assert sorted(listed()) == sorted((NAME, OTHER, *dated))
    assert outside.read_text() == "theirs"
    outside.unlink()


def test_a_manifest_of_a_gigabyte_is_not_read(store: Path, listed: Callable[[], list[str]]) -> None:
    (store / OTHER).touch()
    (store / f"{OTHER}.json").touch()
    os.truncate(store / f"{OTHER}.json", 1 << 30)
    assert sorted(listed()) == sorted((NAME, OTHER))
