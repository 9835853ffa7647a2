"""`nodeagent image`: archives that are taken and refused, and what the runtime has then."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from nodeagent.commands.dispatch import dispatch
from tests.conftest_runtime import BASE, RealRuntime
from tests.fakes.programs import make_tool
from tools.runtime_lib import images

ENDPOINT = "--container-runtime-endpoint=unix:///absent/containerd.sock"


def archive(path: Path, **members: Any) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, value in members.items():
            content = json.dumps(value).encode()
            member = tarfile.TarInfo(f"{name}.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


NO_IMAGES = [
    ("no tar", b"hello" * 1000, "is no archive of images"),
    ("empty", b"", "is no archive of images"),
]


@pytest.mark.parametrize(("case", "content", "said"), NO_IMAGES)
def test_a_file_without_images_is_named(
    case: str, content: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "images.tar"
    path.write_bytes(content)
    assert dispatch(["image", "import", str(path), ENDPOINT]) == 1
    assert f"{path} {said}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"other": {}}, "neither manifest.json nor index.json"),
        ({"manifest": [{"RepoTags": None}]}, "names no image"),
        ({"manifest": {"RepoTags": 1}}, "is no archive of images"),
        ({"index": {"manifests": [{"annotations": {}}]}}, "names no image"),
        ({"manifest": ["x" * (5 << 20)]}, "is larger than 4194304 bytes"),
    ],
)
def test_an_archive_without_names_is_refused(
    members: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = archive(tmp_path / "images.tar", **members)
    assert dispatch(["image", "import", str(path), ENDPOINT]) == 1
    assert said in capsys.readouterr().err


def test_an_archive_above_the_bound_is_refused_unread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.tar"
    with path.open("wb") as file:
        file.truncate(3 << 20)
    assert dispatch(["image", "import", "--max-mib=2", str(path), ENDPOINT]) == 1
    assert "is larger than --max-mib=2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ctr", "said"),
    [
        ("echo first >&2; echo 'ctr: it is broken' >&2; exit 1", "ctr: it is broken"),
        (None, "ctr is missing, which comes with containerd; for CRI-O use: skopeo copy"),
    ],
)
def test_what_keeps_containerd_from_taking_it_is_told(
    ctr: str | None,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = archive(tmp_path / "images.tar", manifest=[{"RepoTags": ["shop/web:1"]}])
    tools = tmp_path / "bin"
    tools.mkdir()
    if ctr:
        make_tool(tools, "ctr", ctr)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin" if ctr else str(tools))
    assert dispatch(["image", "import", str(path), ENDPOINT]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.real
def test_an_archive_is_imported_into_a_real_containerd_and_listed(
    tmp_path: Path,
    real_runtime: RealRuntime,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busybox = BASE / "root/usr/bin/busybox"
    made = images.build(busybox)  # pause is in it, and stays what it is
    path = tmp_path / "images.tar"
    path.write_bytes(made.archive.replace(b"localhost/busybox:1", b"localhost/carried:7"))
    monkeypatch.setenv("PATH", f"{BASE / 'root/usr/bin'}:{os.environ['PATH']}")
    endpoint = f"--container-runtime-endpoint={real_runtime.endpoint}"
    assert dispatch(["image", "import", str(path), endpoint]) == 0
    assert "imported localhost/carried:7\n" in capsys.readouterr().out
    assert dispatch(["image", "list", "-o", "json", endpoint]) == 0
    listed = {item["name"]: item for item in json.loads(capsys.readouterr().out)["items"]}
    assert listed["localhost/carried:7"]["sizeBytes"] > 100_000
