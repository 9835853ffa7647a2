"""Encryption at rest: archives for age recipients, so that no key that opens one is on the node.

The one door to pyrage (extra `encrypt`), which is loaded only where recipients are configured.
Blocking: encrypting takes some 6 s per GB, beside the runtime that still writes.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from nodeagent.archives.streaming import Reader, Sealed

_BLOCK = 1 << 20


class EncryptionError(Exception):
    """Recipients that cannot be used, or an archive that could not be encrypted; the text why."""


class Encryption:
    """For the public keys `recipients`: `age1…`, or OpenSSH's `ssh-ed25519 …`, `ssh-rsa …`.

    EncryptionError names the one that is none, or says which package is missing.
    """

    def __init__(self, recipients: Sequence[str]) -> None:
        self._pyrage = _load()
        self._recipients = [_recipient(self._pyrage, text) for text in recipients]

    def encrypt(self, reader: Reader, target: int) -> Sealed:
        """Encrypt what there is to read into the open file `target`, block by block."""
        writer = _Writer(target)
        try:
            self._pyrage.encrypt_io(reader, writer, self._recipients)
            writer.flush()
        except OSError as error:
            raise EncryptionError(f"the archive cannot be encrypted: {error.strerror}") from error
        except self._pyrage.EncryptError as error:
            raise EncryptionError(f"the archive cannot be encrypted: {error}") from error
        return Sealed(writer.size_bytes, writer.sha256.hexdigest())


def configured(recipients: Iterable[str], recipients_file: str) -> Encryption | None:
    """The encryption that the configuration asks for, None when it asks for none.

    EncryptionError names the file that cannot be read or the recipient that is wrong.
    """
    listed = [text.strip() for text in recipients]
    if recipients_file:
        listed += _read_file(recipients_file)
    return Encryption(listed) if listed else None


def _read_file(path: str) -> list[str]:
    """One recipient a line; empty lines and those that begin with # are skipped, as age does."""
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
            "checkpoints are to be encrypted and the package pyrage is missing; "
            "install nodeagent[encrypt]"
        ) from None


def _recipient(pyrage: ModuleType, text: str) -> Any:
    if text.startswith("AGE-SECRET-KEY-"):
        raise EncryptionError("a secret key stands among the recipients; give its public key")
    kind = pyrage.ssh if text.startswith("ssh-") else pyrage.x25519
    try:
        return kind.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise EncryptionError(f"{text!r} is no age recipient: {error}") from None


class _Writer:
    """What pyrage writes to; counts and digests what goes to the disk."""

    def __init__(self, descriptor: int) -> None:
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0
        self._descriptor = descriptor
        self._buffer = memoryview(bytearray(_BLOCK))
        self._waiting = 0  # bytes of the buffer

    def write(self, data: bytes) -> int:
        """As much as there is room for, as a file takes it."""
        size = min(len(data), _BLOCK - self._waiting)
        self._buffer[self._waiting : self._waiting + size] = data[:size]
        self._waiting += size
        if self._waiting == _BLOCK:
            self.flush()
        return size

    def flush(self) -> None:
        block = self._buffer[: self._waiting]
        self._waiting = 0
        self.sha256.update(block)
        self.size_bytes += len(block)
        while block:
            block = block[os.write(self._descriptor, block) :]
