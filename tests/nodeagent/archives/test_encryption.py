"""Archives for age recipients: only their keys open them; invalid recipients are refused."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pyrage
import pytest

from nodeagent.archives.encryption import Encryption, EncryptionError, encryption_of
from nodeagent.archives.streaming import ArchiveReader
from nodeagent.config.types import CheckpointPolicy

SSH = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIYgJGbNyaySV6+Y8XjKT+dGlR1Nu2qgGf3fLrMNhGfG node@example"
)


def policy(recipients: list[str], file: Path | str = "") -> CheckpointPolicy:
    section = {"recipients": recipients, "recipientsFile": str(file)}
    return CheckpointPolicy.model_validate({"encryption": section})


@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_every_recipient_can_open_the_archive(tmp_path: Path, size: int) -> None:
    keys = [pyrage.x25519.Identity.generate() for _ in range(2)]
    plain = os.urandom(size)
    (tmp_path / "plain").write_bytes(plain)
    with (tmp_path / "plain").open("rb") as source, (tmp_path / "cipher").open("wb") as target:
        source.seek(size // 2)  # left by an earlier reader
        digest = Encryption([str(key.to_public()) for key in keys]).encrypt(
            ArchiveReader(source.fileno()), target.fileno()
        )

    cipher = (tmp_path / "cipher").read_bytes()
    assert [pyrage.decrypt(cipher, [key]) for key in keys] == [plain, plain]
    assert (digest.size_bytes, digest.sha256) == (len(cipher), hashlib.sha256(cipher).hexdigest())
    with pytest.raises(pyrage.DecryptError):
        pyrage.decrypt(cipher, [pyrage.x25519.Identity.generate()])


def test_recipients_come_from_the_configuration_and_a_file(tmp_path: Path) -> None:
    first, second = (str(pyrage.x25519.Identity.generate().to_public()) for _ in range(2))
    listed = tmp_path / "recipients"
    listed.write_text(f"# of the on-call team\n\n  {first}  \n")

    assert encryption_of(policy([])) is None
    assert encryption_of(policy([second], listed)) is not None


@pytest.mark.parametrize(
    ("recipients", "message"),
    [
        (["age1nonsense"], "'age1nonsense' is not an age recipient"),
        ([""], "'' is not an age recipient"),
        (["ssh-ed25519 nonsense"], "is not an age recipient"),
        (["AGE-SECRET-KEY-1QQ"], "a secret key is among the recipients; configure its public key"),
    ],
)
def test_an_invalid_recipient_is_named(recipients: list[str], message: str) -> None:
    with pytest.raises(EncryptionError, match=message):
        Encryption(recipients)


def test_a_secret_key_is_not_repeated_in_the_error() -> None:
    key = str(pyrage.x25519.Identity.generate())

    with pytest.raises(EncryptionError) as caught:
        Encryption([key])
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the recipients in .*: No such file"),
        (b"# nobody\n", "names no recipient"),
        (b"\xff\xfe", "cannot read the recipients"),
    ],
)
def test_a_file_without_recipients_is_an_error(
    tmp_path: Path, text: bytes | None, message: str
) -> None:
    path = tmp_path / "recipients"
    if text is not None:
        path.write_bytes(text)

    with pytest.raises(EncryptionError, match=message):
        encryption_of(policy([], path))


def test_without_the_package_the_error_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyrage", None)

    with pytest.raises(EncryptionError, match=r"install nodeagent\[encrypt\]"):
        Encryption(["age1…"])
