"""Tokens of service accounts: K:pkg/serviceaccount/{claims,jwt}_test.go as far as they apply."""

from __future__ import annotations

import base64
import hmac
import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from orch.component.process.daemon import SetupError
from orch.server.authn.service_account_tokens import (
    AccountTokens,
    read_public_keys,
    read_signing_key,
)
from orch.server.authn.tokens import Bound, TokenRefused

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ISSUER = "https://orch.default.svc"
HOUR = timedelta(hours=1)
BOUND = Bound("red", "bot", "u1", (("pod", "p", "u2"), ("node", "n", "u3")))


def write(path: Path, key) -> Path:
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def with_hmac(claims: dict, kid: str, secret: bytes) -> str:
    """Signed with the public key as if it were a secret."""
    header = {"alg": "HS256", "kid": kid}
    signed = ".".join(encoded(json.dumps(one).encode()) for one in (header, claims))
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


class World:
    """An issuer with one key, a clock that can be moved, and objects that can be deleted."""

    def __init__(self, path: Path, issuer: str = ISSUER, key=None) -> None:
        self.now = NOW
        self.objects: dict = {
            ("serviceaccounts", "red", "bot"): ("u1", None),
            ("pods", "red", "p"): ("u2", None),
            ("nodes", "", "n"): ("u3", None),
        }
        file = write(path / "sa.key", key or ec.generate_private_key(ec.SECP256R1()))
        (self.public,), self.signing = read_public_keys([file]), read_signing_key(file)
        self.tokens = AccountTokens(
            issuer,
            [self.public],
            self.signing,
            lambda *place: self.objects.get(place),
            lambda: self.now,
        )

    def sign(self, bound: Bound = BOUND, audience: str = "api") -> str:
        return self.tokens.sign(bound, (audience,), HOUR)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_token_says_who_and_for_whom(world: World) -> None:
    holder = world.tokens.authenticate(world.sign())
    assert holder is not None
    assert holder.audiences == ("api",)
    identity = holder.identity
    assert (identity.name, identity.uid) == ("system:serviceaccount:red:bot", "u1")
    assert identity.groups == ("system:serviceaccounts", "system:serviceaccounts:red")
    extra = {key.partition("/")[2]: value for key, value in identity.extra.items()}
    assert extra["pod-name"] == ("p",)
    assert extra["pod-uid"] == ("u2",)
    assert extra["node-name"] == ("n",)
    assert extra["credential-id"][0].startswith("JTI=")


@pytest.mark.parametrize("key", [rsa.generate_private_key(65537, 2048),
                                 ec.generate_private_key(ec.SECP384R1())])  # fmt: skip
def test_other_keys_sign_too(tmp_path: Path, key) -> None:
    world = World(tmp_path, key=key)
    assert world.tokens.authenticate(world.sign()) is not None


@pytest.mark.parametrize(
    ("place", "now"),
    [
        (("serviceaccounts", "red", "bot"), None),
        (("serviceaccounts", "red", "bot"), ("other", None)),
        (("pods", "red", "p"), None),
        (("pods", "red", "p"), ("u2", NOW - timedelta(seconds=61))),
        (("nodes", "", "n"), ("other", None)),
    ],
)
def test_it_ends_with_what_it_is_bound_to(world: World, place, now) -> None:
    token = world.sign()
    world.tokens.authenticate(token)
    world.objects[place] = now
    with pytest.raises(TokenRefused):
        world.tokens.authenticate(token)


def test_an_object_that_is_being_deleted_still_counts_for_a_minute(world: World) -> None:
    world.objects["pods", "red", "p"] = ("u2", NOW - timedelta(seconds=59))
    assert world.tokens.authenticate(world.sign()) is not None


@pytest.mark.parametrize("moved", [HOUR, HOUR + timedelta(days=1), -timedelta(minutes=5)])
def test_it_has_its_time(world: World, moved: timedelta) -> None:
    token = world.sign()
    world.tokens.authenticate(token)
    world.now = NOW + moved
    with pytest.raises(TokenRefused):
        world.tokens.authenticate(token)


def test_what_is_not_of_this_issuer_is_left_to_others(world: World, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert World(tmp_path / "other", "https://other").tokens.authenticate(world.sign()) is None
    for text in ("", "abc", "abcdef.0123456789abcdef"):
        assert world.tokens.authenticate(text) is None


def test_a_forged_token_is_refused(world: World, tmp_path: Path) -> None:
    token = world.sign()
    head, body, signature = token.split(".")
    claims = jwt.decode(token, options={"verify_signature": False})
    kid = jwt.get_unverified_header(token)["kid"]
    es256 = {"algorithm": "ES256"}
    (tmp_path / "forger").mkdir()
    forger = World(tmp_path / "forger")
    public = world.public.key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    forged = [
        forger.sign(),
        f"{head}.{body}.{signature[:-4]}AAAA",
        jwt.encode(claims, None, algorithm="none", headers={"kid": kid}),
        with_hmac(claims, kid, public),
        "a.b.c",
        *(f"{part}.{body}.{signature}" for part in (encoded(b"[" * 4000), encoded(b"[]"), "{}")),
        jwt.encode({**claims, "aud": None}, world.signing.key, headers={"kid": kid}, **es256),
        jwt.encode(claims, world.signing.key, headers={"kid": kid, "crit": ["x"]}, **es256),
    ]
    for text in forged:
        with pytest.raises(TokenRefused):
            world.tokens.authenticate(text)


@pytest.mark.parametrize(
    "change",
    [
        {"sub": "system:serviceaccount:red:other"},
        {"orch.io": None},
        {"orch.io": {"namespace": "red"}},
        {"orch.io": {"namespace": "blue", "serviceaccount": {"name": "bot", "uid": "u1"}}},
        {"exp": "soon"},
    ],
)
def test_claims_must_fit_together(world: World, change: dict) -> None:
    token = world.sign()
    claims = {**jwt.decode(token, options={"verify_signature": False}), **change}
    key = world.signing
    signed = jwt.encode(claims, key.key, algorithm=key.algorithm, headers={"kid": key.id})
    with pytest.raises(TokenRefused):
        world.tokens.authenticate(signed)


def test_a_key_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    with pytest.raises(SetupError, match="nothing"):
        read_public_keys([nothing])
    nothing.write_text("no key")
    with pytest.raises(SetupError, match="not a PEM key"):
        read_signing_key(nothing)
    other = write(tmp_path / "ed.key", ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(SetupError, match="private key"):
        read_signing_key(other)
    key = ec.generate_private_key(ec.SECP256R1())
    public = tmp_path / "public.pem"
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    assert read_public_keys([public])[0].id == read_signing_key(write(tmp_path / "k", key)).id
    with pytest.raises(SetupError, match="no private key"):
        read_signing_key(public)


def test_of_a_token_for_hundreds_of_audiences_nothing_is_kept(world: World) -> None:
    """4,096 of them took 220 MB, for good."""
    audiences = [f"{number:03x}" for number in range(500)]
    tokens = [world.tokens.sign(BOUND, audiences, HOUR) for _ in range(21)]
    assert world.tokens.authenticate(tokens.pop()) is not None  # what is imported only then
    tracemalloc.start()
    try:
        assert all(world.tokens.authenticate(token) for token in tokens)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20 * 2_000, kept
