"""Files that can, and files that cannot, be a container's profile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent import seccompfile
from nodeagent.runtime.base import SeccompKind, SeccompSetting
from nodeagent.seccomp import CREATE_ERROR, SeccompError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "seccomp"
    root.mkdir()
    return root


def setting(path: Path) -> SeccompSetting:
    return SeccompSetting(SeccompKind.LOCALHOST, str(path))


def test_a_profile_in_the_directory_is_usable_also_behind_a_link(root: Path) -> None:
    (root.parent / "operator").mkdir()
    (root.parent / "operator" / "link.json").write_text("{}")
    (root / "a.json").write_text("{}")
    (root / "operator").symlink_to(root.parent / "operator")

    seccompfile.require_profile_file(setting(root / "a.json"))
    seccompfile.require_profile_file(setting(root / "operator" / "link.json"))


@pytest.mark.parametrize("kind", [SeccompKind.UNCONFINED, SeccompKind.RUNTIME_DEFAULT])
def test_settings_without_a_file_need_none(kind: SeccompKind) -> None:
    seccompfile.require_profile_file(SeccompSetting(kind))


def absent(path: Path) -> None:
    return


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, seccompfile.MAX_PROFILE_BYTES + 1)


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
def test_what_is_no_usable_profile_is_refused_by_name(
    root: Path, make: Callable[[Path], None], told: str
) -> None:
    path = root / "profile.json"
    make(path)

    with pytest.raises(SeccompError, match=told) as caught:
        seccompfile.require_profile_file(setting(path))
    assert caught.value.reason == CREATE_ERROR
    assert str(path) in caught.value.message
