from __future__ import annotations

import asyncio
import base64
import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from orch.component.process.daemon import SetupError
from orch.server.authn import credential_files
from orch.server.authn.credential_files import Hashed, Passwords, hash_password, parse_hash
from orch.wire.errors import ApiError


def cheap(password: str) -> str:
    """An entry that costs nothing to check."""
    hashed = hashlib.scrypt(password.encode(), salt=b"salt", n=2, r=1, p=1, dklen=32)
    return str(Hashed(1, 1, 1, b"salt", hashed))


@pytest.fixture
def entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Passwords:
    monkeypatch.setattr(credential_files, "hash_password", cheap)
    path = tmp_path / "basic.csv"
    path.write_text(f'{cheap("s3cret:")},ann,1,"devs"\n{cheap("")},empty,2\n')
    return Passwords(path)


def request(credential: str, *, secure: bool = True) -> web.Request:
    tls = object() if secure else None
    return make_mocked_request("GET", "/", headers={"Authorization": credential}, sslcontext=tls)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


async def test_user_and_password_make_an_identity(entries: Passwords) -> None:
    for _ in range(2):  # hashed, then remembered
        found = await entries.authenticate(request(basic("ann", "s3cret:")))
        assert found is not None
        assert (found.name, found.uid) == ("ann", "1")
        assert found.groups == ("devs", "system:authenticated")


@pytest.mark.parametrize(
    "credential",
    [
        basic("ann", "s3cret"),
        basic("ann", ""),
        basic("bob", "s3cret:"),
        basic("nobody", ""),
        "Basic !",
        "Basic",
        "basic " + base64.b64encode(b"ann").decode(),
        "Basic " + base64.b64encode(b"\xff:x").decode(),
    ],
)
async def test_anything_else_is_refused(entries: Passwords, credential: str) -> None:
    await entries.authenticate(request(basic("ann", "s3cret:")))
    with pytest.raises(ApiError) as caught:
        await entries.authenticate(request(credential))
    assert caught.value.code == 401


async def test_a_password_in_the_clear_is_refused(entries: Passwords) -> None:
    with pytest.raises(ApiError):
        await entries.authenticate(request(basic("ann", "s3cret:"), secure=False))


async def test_another_scheme_is_for_others(entries: Passwords) -> None:
    assert await entries.authenticate(request("Bearer x")) is None


async def test_a_right_password_is_hashed_once(
    entries: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    fits = Hashed.fits
    monkeypatch.setattr(Hashed, "fits", lambda one, text: counted.append(text) or fits(one, text))
    for _ in range(3):
        await entries.authenticate(request(basic("ann", "s3cret:")))
    assert counted == ["s3cret:"]


def test_a_made_entry_fits_its_password_only() -> None:
    entry = hash_password("tr0ub4dor")
    assert entry.startswith("scrypt$15$8$1$")
    assert parse_hash(entry).fits("tr0ub4dor")
    assert not parse_hash(entry).fits("tr0ub4dor ")
    assert hash_password("tr0ub4dor") != entry


@pytest.mark.parametrize(
    "entry",
    ["hunter2", "scrypt$1$1$1$c2FsdA==", "scrypt$x$1$1$c2FsdA==$AAAA", "scrypt$1$1$1$!$AAAA",
     "scrypt$40$8$1$c2FsdA==$" + base64.b64encode(bytes(32)).decode(), "bcrypt$1$1$1$a$b"],
)  # fmt: skip
def test_an_entry_that_is_no_hash_ends_the_start(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "basic.csv"
    path.write_text(f"{entry},ann,1\n")
    with pytest.raises(SetupError, match="line 1") as caught:
        Passwords(path)
    assert entry not in str(caught.value)


def test_what_is_no_hash_is_told_how_to_make_one() -> None:
    with pytest.raises(ValueError, match="`orch-apiserver hash-password` makes an entry"):
        parse_hash("hunter2")


class Slow:
    """Checks of passwords that end when they are told to; `asked` are the passwords, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.at_once = 0
        self._most = 0
        self.go_on = threading.Semaphore(0)
        monkeypatch.setattr(Hashed, "fits", lambda _one, password: self._fits(password))

    def _fits(self, password: str) -> bool:
        self._most += 1
        self.at_once = max(self.at_once, self._most)
        self.asked.append(password)
        assert self.go_on.acquire(timeout=30)
        self._most -= 1
        return password == "right"

    def let_all(self) -> None:
        self.go_on.release(1000)


@pytest.fixture
def slow(entries: Passwords, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    checks = Slow(monkeypatch)
    yield checks
    checks.let_all()


def signing_in(entries: Passwords, user: str, password: str) -> asyncio.Task[int]:
    """Its result is the code."""

    async def sign_in() -> int:
        try:
            await entries.authenticate(request(basic(user, password)))
        except ApiError as error:
            return error.code
        return 200

    return asyncio.ensure_future(sign_in())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.001)


async def test_users_take_turns_and_made_up_names_share_one(entries: Passwords, slow: Slow) -> None:
    guesses = [signing_in(entries, f"made-up-{n}", f"guess-{n}") for n in range(6)]
    guesses += [signing_in(entries, "ann", f"ann-{n}") for n in range(6)]
    await until(lambda: len(slow.asked) == 1)
    right = signing_in(entries, "empty", "right")
    await asyncio.sleep(0)
    slow.let_all()
    assert await right == 200
    assert set(await asyncio.gather(*guesses)) == {401}
    assert slow.asked.index("right") <= 3, slow.asked
    assert slow.at_once == 1


@pytest.mark.slow
async def test_few_checks_of_one_user_wait(entries: Passwords, slow: Slow) -> None:
    guesses = [signing_in(entries, "ann", f"guess-{number}") for number in range(20)]
    await until(lambda: sum(task.done() for task in guesses) == 11)
    assert [await task for task in guesses if task.done()] == [429] * 11
    slow.let_all()
    assert sorted([await task for task in guesses]) == [401] * 9 + [429] * 11


async def test_who_leaves_does_not_make_another_check_begin(entries: Passwords, slow: Slow) -> None:
    """A thread cannot be cancelled: else a guesser could have any number of them."""
    first = signing_in(entries, "ann", "guess-1")
    await until(lambda: len(slow.asked) == 1)
    first.cancel()
    second = signing_in(entries, "ann", "guess-2")
    await asyncio.sleep(0.05)
    assert slow.asked == ["guess-1"]
    slow.let_all()
    assert await second == 401
    assert slow.at_once == 1


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o644, True)])
def test_a_file_that_others_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("secret,ann,1\n")
    path.chmod(mode)
    credential_files.read_tokens(path)
    assert ("chmod 600" in caplog.text) is warned
    assert "secret" not in caplog.text
