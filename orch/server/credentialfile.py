"""Credentials in files: static bearer tokens, and passwords as hashes.

Both are CSV with the columns secret, user, uid and, optionally, groups in quotes separated by
commas (`--token-auth-file`, `--basic-auth-file`), read once at the start. A line that cannot be
understood ends the start; a message names the line and never its secret.
"""

from __future__ import annotations

import csv
import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from orch.component.daemon import SetupError
from orch.server.tokens import Holder, TokenAuthenticator
from orch.wire.identity import Identity

log = logging.getLogger(__name__)


def read_tokens(path: Path) -> TokenAuthenticator:
    """The holders of the tokens in a file. Digests are kept and compared, not the tokens."""
    holders: dict[bytes, Holder] = {}
    for number, secret, identity in rows(path):
        if not secret:
            log.warning("%s line %d has no token and is passed over", path, number)
            continue
        digest = _digest(secret)
        if digest in holders:
            log.warning("%s line %d repeats a token: the last one counts", path, number)
        holders[digest] = Holder(identity)
    return lambda token: holders.get(_digest(token))


def rows(path: Path) -> Iterator[tuple[int, str, Identity]]:
    """Line number, secret and whose it is; SetupError."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, skipinitialspace=True)
            for row in reader:
                if row:
                    yield reader.line_num, row[0], _identity(path, reader.line_num, row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise SetupError(f"cannot read the credentials in {path}: {cause}") from error


def _identity(path: Path, number: int, row: list[str]) -> Identity:
    if len(row) < 3:
        raise SetupError(
            f"{path} line {number}: at least three columns are needed (secret, user, uid),"
            f" there are {len(row)}"
        )
    groups = (group.strip() for group in (row[3] if len(row) > 3 else "").split(","))
    if not row[1]:
        raise SetupError(f"{path} line {number}: the user is empty")
    return Identity(row[1], tuple(group for group in groups if group), row[2])


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
