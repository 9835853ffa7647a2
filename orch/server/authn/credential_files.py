"""Credentials in CSV files: static bearer tokens, and passwords as scrypt hashes.

The columns are secret, user, uid and, optionally, quoted groups separated by commas. Files are read
once, at startup; a malformed line aborts it, and no message quotes a secret. A password's secret is
`scrypt$LN$R$P$SALT$HASH` (`orch-apiserver hash-password` prints one; LN is the binary logarithm of
the cost). Hashes are checked in a thread, one at a time; users and addresses take turns, and few
may wait. A correct password is remembered, under a key of this process, until it was not used for a
minute, so that a busy client is not hashed for each request.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import csv
import hashlib
import hmac
import logging
import os
import stat
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from orch.component.http.connection_limit import network_of
from orch.component.http.fair_queue import (
    Bounds,
    FairQueue,
    Flow,
    QueueFull,
    pause_before_refusal,
)
from orch.component.process import loops
from orch.component.process.daemon import SetupError
from orch.server.authn.tokens import Holder, TokenAuthenticator
from orch.wire.errors import ApiError, unauthorized
from orch.wire.records.authentication import Identity, known

log = logging.getLogger(__name__)

_OTHERS = 0o077


def read_tokens(path: Path) -> TokenAuthenticator:
    """The authenticator for the tokens in a file; it keeps and compares digests, not tokens."""
    holders: dict[bytes, Holder] = {}
    for number, secret, identity in rows(path):
        if not secret:
            log.warning("%s line %d has no token: skipped", path, number)
            continue
        if not secret.isascii():
            raise SetupError(f"{path} line {number}: the token has characters outside ASCII")
        digest = _digest(secret)
        if digest in holders:
            log.warning("%s line %d repeats a token: the last line counts", path, number)
        holders[digest] = Holder(identity)
    return lambda token: holders.get(_digest(token))


def rows(path: Path) -> Iterator[tuple[int, str, Identity]]:
    """Line number, secret and identity; SetupError."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & _OTHERS:
                log.warning(
                    "others can read or change the credentials in %s (mode %04o): chmod 600 it",
                    path,
                    mode,
                )
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
            f" it has {len(row)}"
        )
    groups = (group.strip() for group in (row[3] if len(row) > 3 else "").split(","))
    if not row[1]:
        raise SetupError(f"{path} line {number}: the user is empty")
    return Identity(row[1], tuple(group for group in groups if group), row[2])


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


SCHEME = "scrypt"
REMEMBERED_S = 60.0
_WAITING = 256  # checks, a twelfth of a second each
_TURNS = Bounds(seats=1, waiting_per_flow=8, wait_s=10.0)
_LN, _R, _P = 15, 8, 1
_MAX_LN = 20  # a gibibyte
_MEMORY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Hashed:
    """A password's hash and its parameters."""

    ln: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def fits(self, password: str) -> bool:
        """Slow, depending on the cost parameters: never call it on the event loop's thread."""
        return hmac.compare_digest(_scrypt(password, self), self.hash)

    def __str__(self) -> str:
        parts = (SCHEME, self.ln, self.r, self.p, _base64(self.salt), _base64(self.hash))
        return "$".join(str(part) for part in parts)


def hash_password(password: str) -> str:
    """An entry for the file."""
    made = Hashed(_LN, _R, _P, os.urandom(16), bytes(32))
    return str(Hashed(_LN, _R, _P, made.salt, _scrypt(password, made)))


def parse_hash(text: str) -> Hashed:
    """ValueError says what is wrong, without the entry."""
    scheme, *parts = text.split("$")
    if scheme != SCHEME or len(parts) != 5:
        text = "`orch-apiserver hash-password` makes an entry"
        raise ValueError(f"the password is not hashed as {SCHEME}$LN$R$P$SALT$HASH; {text}")
    try:
        ln, r, p = (int(part) for part in parts[:3])
        salt, hashed = (base64.b64decode(part, validate=True) for part in parts[3:])
    except (ValueError, binascii.Error):
        raise ValueError("the numbers or the base64 of the hash cannot be read") from None
    if not (0 < ln <= _MAX_LN and 0 < r <= 64 and 0 < p <= 16 and salt and len(hashed) >= 16):
        raise ValueError("the parameters of the hash are out of bounds")
    return Hashed(ln, r, p, salt, hashed)


class Passwords:
    """The entries of a file; `authenticate` is an `authn.Authenticator` for the scheme Basic."""

    def __init__(self, path: Path) -> None:
        self._entries: dict[str, tuple[Hashed, Identity]] = {}
        for number, secret, identity in rows(path):
            try:
                self._entries[identity.name] = (parse_hash(secret), known(identity))
            except ValueError as error:
                raise SetupError(f"{path} line {number}: {error}") from None
        self._key = os.urandom(32)
        self._right: dict[str, tuple[bytes, float]] = {}  # by user: which password, until when
        self._turns = FairQueue(_TURNS)
        self._flows: weakref.WeakValueDictionary[tuple[str, str], Flow] = (
            weakref.WeakValueDictionary()
        )
        self._unknown_user = parse_hash(hash_password(""))  # they take as long as known ones

    async def authenticate(self, request: web.Request) -> Identity | None:
        """ApiError 401 when user and password do not match, 429 when too many are checked."""
        scheme, _, credential = request.headers.get("Authorization", "").strip().partition(" ")
        if scheme.lower() != "basic":
            return None
        user, password = _decode(credential)
        network = network_of(request.remote or "")
        if not request.secure or not await self._fits(user, password, network):
            raise unauthorized()
        return self._entries[user][1]

    async def _fits(self, user: str, password: str, network: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        digest = hmac.digest(self._key, f"{user}\0{password}".encode(), "sha256")
        remembered, until_s = self._right.get(user, (b"", 0.0))
        if now_s >= until_s or not hmac.compare_digest(remembered, digest):
            is_known = user in self._entries
            hashed = self._entries[user][0] if is_known else self._unknown_user
            # Names that are made up share a flow: a caller could make up any number.
            fits = await self._check(hashed, password, (network, user if is_known else ""))
            if not fits or not is_known:
                return False
        self._right[user] = (digest, now_s + REMEMBERED_S)
        return True

    async def _check(self, hashed: Hashed, password: str, who: tuple[str, str]) -> bool:
        """In turn: a check takes tens of milliseconds and megabytes, and cannot be cancelled."""
        flow = self._flows.setdefault(who, Flow())
        try:
            if self._turns.waiting >= _WAITING:
                raise QueueFull
            await self._turns.enter(flow)
        except QueueFull:
            await pause_before_refusal()
            raise _too_many() from None
        except TimeoutError:
            raise _too_many() from None
        check = loops.spawn(asyncio.to_thread(hashed.fits, password), name="password check")
        check.add_done_callback(lambda _: self._turns.leave(flow))
        return await asyncio.shield(check)


def _too_many() -> ApiError:
    text = "too many passwords are being checked; please try again in a second"
    return ApiError(429, "TooManyRequests", text, retry_after_s=1)


def _decode(credential: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(credential, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise unauthorized() from None
    user, colon, password = text.partition(":")
    if not colon:
        raise unauthorized()
    return user, password


def _scrypt(password: str, how: Hashed) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=how.salt,
        n=2**how.ln,
        r=how.r,
        p=how.p,
        maxmem=_MEMORY,
        dklen=len(how.hash),
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
