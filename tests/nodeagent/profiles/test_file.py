"""Files that can, and files that cannot, be a container's profile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.profiles import file
from nodeagent.runtime.isolation import SeccompKind, SeccompSetting
from nodeagent.seccomp import CREATE_ERROR, SeccompError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "seccomp"
    root.mkdir()
    return root


def setting(path: Path) -> SeccompSetting:
    return SeccompSetting(SeccompKind.LOCALHOST, str(path))


def require(root: Path, path: Path, source: str = "") -> None:
    file.require_profile_file(setting(path), root=str(root), source=source)


def test_a_profile_in_the_directory_is_usable_also_behind_a_link_within_it(root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "a.json").write_text("{}")
    (root / "link.json").symlink_to("real/a.json")
    (root / "operator").symlink_to("real")

    for name in ("real/a.json", "link.json", "operator/a.json"):
        require(root, root / name)


def test_the_directory_itself_may_be_a_link(root: Path) -> None:
    (root / "a.json").write_text("{}")
    (root.parent / "other").symlink_to(root)

    require(root.parent / "other", root.parent / "other" / "a.json")


@pytest.mark.parametrize("target", ["../outside.json", "/etc/hostname", "../seccomp-other/a.json"])
def test_no_link_leads_out_of_the_directory(root: Path, target: str) -> None:
    (root.parent / "outside.json").write_text("{}")
    (root.parent / "seccomp-other").mkdir()
    (root.parent / "seccomp-other" / "a.json").write_text("{}")
    (root / "link.json").symlink_to(target)

    with pytest.raises(SeccompError, match=r"a link leads to .*, out of ") as caught:
        require(root, root / "link.json")
    assert caught.value.reason == CREATE_ERROR


def test_a_missing_file_is_reported_with_its_field_and_similar_names(
    root: Path,
) -> None:
    (root / "team").mkdir()
    (root / "team" / "web.json").write_text("{}")
    path = root / "team" / "wbe.json"
    field = "spec.containers[0].securityContext.seccompProfile"

    with pytest.raises(SeccompError) as caught:
        require(root, path, field)
    assert caught.value.message == (
        f"cannot use the seccomp profile {path}, which {field} specifies: "
        "No such file or directory; similar: team/web.json"
    )
    with pytest.raises(SeccompError, match="there is no similar file in"):
        require(root, root / "x")


@pytest.mark.parametrize("kind", [SeccompKind.UNCONFINED, SeccompKind.RUNTIME_DEFAULT])
def test_settings_without_a_file_need_none(kind: SeccompKind) -> None:
    file.require_profile_file(SeccompSetting(kind), root="/absent")


def absent(path: Path) -> None:
    return


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, file.MAX_PROFILE_BYTES + 1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (absent, "No such file or directory"),
        (Path.mkdir, "it is not a regular file"),
        (os.mkfifo, "it is not a regular file"),
        (huge, "are more than"),
        (lambda path: path.symlink_to("absent.json"), "No such file or directory"),
        (lambda path: path.symlink_to(path.name), "symbolic link"),
    ],
)
def test_an_unusable_file_is_refused_by_name(
    root: Path, make: Callable[[Path], None], told: str
) -> None:
    path = root / "profile.json"
    make(path)

    with pytest.raises(SeccompError, match=told) as caught:
        require(root, path)
    assert caught.value.reason == CREATE_ERROR
    assert str(path) in caught.value.message
