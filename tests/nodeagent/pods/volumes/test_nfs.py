"""Which versions are tried, and what a process that waits for a server says."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from nodeagent.pods.volumes import nfs
from nodeagent.pods.volumes.nfs import NoAnswer, Share

SHARE = Share("192.0.2.1", "/exports/a b")


class Kernel:
    """Answers the attempts in turn: 0, or the number of an error."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str, str, bool]] = []

    def __call__(self, place: str, device: str, options: str, read_only: bool) -> None:
        self.asked.append((place, device, options, read_only))
        if answer := self._answers.pop(0):
            raise OSError(answer, os.strerror(answer), place)


def test_the_newest_version_of_the_server_is_taken() -> None:
    kernel = Kernel(errno.EPROTONOSUPPORT, errno.EINVAL, errno.ENOENT, 0)
    nfs.mount("/place", SHARE, kernel)
    options = [f"vers={version},addr=192.0.2.1" for version in ("4.2", "4.1", "4.0", "3")]
    device = "192.0.2.1:/exports/a b"
    assert kernel.asked == [("/place", device, each, False) for each in options]


def test_an_address_with_colons_is_set_off_from_the_path() -> None:
    kernel = Kernel(0)
    nfs.mount("/place", Share("2001:db8::1", "/e", read_only=True), kernel)
    assert kernel.asked == [("/place", "[2001:db8::1]:/e", "vers=4.2,addr=2001:db8::1", True)]


ANSWERS = [
    ([errno.ENODEV], "this kernel has no NFS client; load its module nfs"),
    ([errno.ECONNREFUSED], "Connection refused"),
    ([errno.EPROTONOSUPPORT, errno.EACCES, errno.EPROTONOSUPPORT, errno.ETIMEDOUT], "denied"),
    ([errno.EPROTONOSUPPORT] * 4, "Protocol not supported"),
]


@pytest.mark.parametrize(("answers", "said"), ANSWERS)
def test_the_error_that_tells_most_is_raised(answers: list[int], said: str) -> None:
    kernel = Kernel(*answers)
    with pytest.raises(OSError, match=said):
        nfs.mount("/place", SHARE, kernel)
    assert len(kernel.asked) == len(answers)


@pytest.mark.parametrize("share", [SHARE, Share("2001:db8::1", "/e", read_only=True)])
def test_a_share_is_read_back_from_its_text(share: Share) -> None:
    assert nfs.parse(share.text()) == share


def test_a_silent_server_ends_the_process_that_looks_at_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "python"  # waits, as for a server
    silent.write_text("#!/bin/sh\nexec sleep 600\n")
    silent.chmod(0o755)
    nfs.require_answer(str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(silent))
    monkeypatch.setattr(nfs, "ANSWER_S", 0.1)
    with pytest.raises(NoAnswer, match=r"has not answered within 0\.1 s"):
        nfs.require_answer(str(tmp_path))
