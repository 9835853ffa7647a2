"""Encryption at rest, for age recipients: the node holds no key that can decrypt an archive.

The only user of pyrage (extra `encrypt`), loaded only when recipients are configured. Blocking:
encryption takes some 6 s per GB, in parallel with the runtime's writes.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from nodeagent.archives.streaming import ArchiveReader, FileDigest
from nodeagent.config.types import CheckpointPolicy

_BLOCK = 1 << 20


class EncryptionError(Exception):
    """Recipients cannot be used, or an archive cannot be encrypted; the text says why."""


class Encryption:
    """For the public keys `recipients`: `age1…`, or OpenSSH's `ssh-ed25519 …`, `ssh-rsa …`.

    EncryptionError names the invalid recipient or the missing package.
    """

    def __init__(self, recipients: Sequence[str]) -> None:
        self._pyrage = _load()
        self._recipients = [_recipient(self._pyrage, text) for text in recipients]

    def encrypt(self, reader: ArchiveReader, target: int) -> FileDigest:
        """Encrypt everything that can be read into the open file `target`, block by block."""
        writer = _Writer(target)
        try:
            self._pyrage.encrypt_io(reader, writer, self._recipients)
            writer.flush()
        except OSError as error:
            raise EncryptionError(f"the archive cannot be encrypted: {error.strerror}") from error
        except self._pyrage.EncryptError as error:
            raise EncryptionError(f"the archive cannot be encrypted: {error}") from error
        return FileDigest(writer.size_bytes, writer.sha256.hexdigest())


def encryption_of(policy: CheckpointPolicy) -> Encryption | None:
    """The configured encryption; EncryptionError names the invalid recipient or unreadable file."""
    wanted = policy.encryption
    recipients = [text.strip() for text in wanted.recipients]
    if wanted.recipientsFile:
        recipients += _read_file(wanted.recipientsFile)
    return Encryption(recipients) if recipients else None


def _read_file(path: str) -> list[str]:
    """A recipient per line; empty lines and comments (#) are skipped, as in age."""
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise EncryptionError(f"cannot read the recipients in {path}: {why}") from None
    found = [text for line in lines if (text := line.strip()) and not text.startswith("#")]
    if not found:
        raise EncryptionError(f"{path} names no recipient")
    return found


def _load() -> ModuleType:
    try:
        return importlib.import_module("pyrage")
    except ImportError:
        raise EncryptionError(
            "checkpoint encryption is configured but the package pyrage is missing; "
            "install nodeagent[encrypt]"
        ) from None


def _recipient(pyrage: ModuleType, text: str) -> Any:
    if text.startswith("AGE-SECRET-KEY-"):
        raise EncryptionError("a secret key is among the recipients; configure its public key")
    kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
    try:
        return kind.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise EncryptionError(f"{text!r} is not an age recipient: {error}") from None


class _Writer:
    """The file object for pyrage; counts and digests the bytes written to disk."""

    def __init__(self, descriptor: int) -> None:
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0
        self._descriptor = descriptor
        self._buffer = memoryview(bytearray(_BLOCK))
        self._buffered = 0  # bytes

    def write(self, data: bytes) -> int:
        """Take as much as fits into the buffer, as a raw file may."""
        size = min(len(data), _BLOCK - self._buffered)
        self._buffer[self._buffered : self._buffered + size] = data[:size]
        self._buffered += size
        if self._buffered == _BLOCK:
            self.flush()
        return size

    def flush(self) -> None:
        block = self._buffer[: self._buffered]
        self._buffered = 0
        self.sha256.update(block)
        self.size_bytes += len(block)
        while block:
            block = block[os.write(self._descriptor, block) :]
