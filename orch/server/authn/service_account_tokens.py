"""Tokens of service accounts: signed and verified here, bound to audience, time and object.

A token is valid while its account, and the pod, secret or node it is bound to, exist under the same
uid. The only module that knows how a JSON Web Token is signed; imported only where there are keys.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import orjson
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from orch.component.process.daemon import SetupError
from orch.server.authn.tokens import Bound, Holder, TokenRefused
from orch.wire import names
from orch.wire.records.authentication import Identity

CLAIM = "orch.io"
_EXTRA = "authentication.orch.io"
_REMEMBERED = 4096
_REMEMBERED_CHARS = 2048  # of a token: one with a thousand audiences takes 70 kB
_GRACE_AFTER_DELETION_S = 60.0
_SKEW_S = 10.0
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_BOUND = ("pod", "node", "secret")
_REQUIRED = ("iss", "sub", "exp", "iat", "aud")
_JWS = jwt.PyJWS()  # checks the signature, and reads no claims

Claims = dict[str, Any]
# Plural, namespace and name → uid and deletion time of an object; None when there is none.
Lookup = Callable[[str, str, str], tuple[str, datetime | None] | None]


@dataclass(frozen=True, slots=True)
class Key:
    """A key with the algorithm that fits it; `id` is in the token's header."""

    key: Any
    algorithm: str
    id: str


def read_public_keys(paths: Sequence[Path]) -> list[Key]:
    """The keys to verify tokens with, from PEM files of public or private keys; SetupError."""
    return [_key(path, _public(_load(path))) for path in paths]


def read_signing_key(path: Path) -> Key:
    """SetupError when the file has no private key that can sign tokens."""
    loaded = _load(path)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise SetupError(f"{path} has no private key to sign tokens with")
    public = _key(path, _public(loaded))
    return Key(loaded, public.algorithm, public.id)


class AccountTokens:
    """Signs and verifies tokens; `authenticate` is a `tokens.TokenAuthenticator`."""

    def __init__(
        self,
        issuer: str,
        keys: Sequence[Key],
        signing_key: Key | None,
        lookup: Lookup,
        now: Callable[[], datetime],
    ) -> None:
        self.issuer = issuer
        self._keys = {key.id: key for key in keys}
        self._signing_key = signing_key
        self._lookup = lookup
        self._now = now
        self._verified: dict[bytes, Claims] = {}

    @property
    def can_sign(self) -> bool:
        return self._signing_key is not None

    @property
    def algorithms(self) -> list[str]:
        return sorted({key.algorithm for key in self._keys.values()})

    def public_keys(self) -> list[Claims]:
        """The keys that tokens are verified with, as JSON Web Keys."""
        return [_web_key(key) for key in self._keys.values()]

    def sign(self, bound: Bound, audiences: Sequence[str], lifetime: timedelta) -> str:
        if self._signing_key is None:
            raise AssertionError("asked to sign without a key")
        now = self._now()
        own: Claims = {
            "namespace": bound.namespace,
            "serviceaccount": {"name": bound.account, "uid": bound.account_uid},
        }
        own |= {kind: {"name": name, "uid": uid} for kind, name, uid in bound.objects}
        claims = {
            "iss": self.issuer,
            "sub": f"{names.USER_SERVICE_ACCOUNT_PREFIX}{bound.namespace}:{bound.account}",
            "aud": list(audiences),
            "iat": int(now.timestamp()),
            "nbf": int(now.timestamp()),
            "exp": int((now + lifetime).timestamp()),
            "jti": str(uuid.uuid4()),
            CLAIM: own,
        }
        key = self._signing_key
        return jwt.encode(claims, key.key, algorithm=key.algorithm, headers={"kid": key.id})

    def authenticate(self, token: str) -> Holder | None:
        """None for a token of another kind or issuer; TokenRefused for an invalid token."""
        if token.count(".") != 2:
            return None
        claims = self._claims(token)
        if claims is None:
            return None
        self._check_times(claims)
        own = claims.get(CLAIM)
        if not isinstance(own, dict):
            raise TokenRefused("the token names no service account")
        return Holder(self._identity(claims, own), tuple(_audiences(claims)))

    def _claims(self, token: str) -> Claims | None:
        """The claims of a token with a valid signature; cached, since it stays valid."""
        digest = hashlib.sha256(token.encode()).digest()
        found = self._verified.get(digest)
        if found is not None:
            return found
        header, claims = (_json_of(part) for part in token.split(".")[:2])
        if claims.get("iss") != self.issuer:
            return None
        key = self._keys.get(_text(header.get("kid")))
        if key is None:
            raise TokenRefused("the token was signed with a key that is not trusted here")
        try:
            _JWS.decode(token, _public(key.key), algorithms=[key.algorithm])
        except jwt.PyJWTError as error:
            raise TokenRefused(f"the token is not valid: {error}") from None
        if lacking := [name for name in _REQUIRED if claims.get(name) is None]:
            raise TokenRefused(f"the token is not valid: it lacks the claims {lacking}")
        if len(token) <= _REMEMBERED_CHARS:
            if len(self._verified) >= _REMEMBERED:
                self._verified.clear()
            self._verified[digest] = claims
        return claims

    def _check_times(self, claims: Claims) -> None:
        now_s = self._now().timestamp()
        if now_s >= _number(claims, "exp"):
            raise TokenRefused("the token has expired")
        if now_s + _SKEW_S < _number(claims, "nbf"):
            raise TokenRefused("the token is not valid yet")

    def _identity(self, claims: Claims, own: Claims) -> Identity:
        namespace = _text(own.get("namespace"))
        account, uid = _reference(own, "serviceaccount")
        user = f"{names.USER_SERVICE_ACCOUNT_PREFIX}{namespace}:{account}"
        if claims.get("sub") != user:
            raise TokenRefused("the subject of the token is not the service account it names")
        self._require("serviceaccounts", namespace, account, uid)
        extra = {f"{_EXTRA}/credential-id": (f"JTI={claims.get('jti', '')}",)}
        for kind in _BOUND:
            if kind in own:
                name, bound_uid = _reference(own, kind)
                self._require(f"{kind}s", "" if kind == "node" else namespace, name, bound_uid)
                if kind != "secret":
                    extra[f"{_EXTRA}/{kind}-name"] = (name,)
                    extra[f"{_EXTRA}/{kind}-uid"] = (bound_uid,)
        groups = (
            names.GROUP_SERVICE_ACCOUNTS, f"{names.GROUP_SERVICE_ACCOUNTS}:{namespace}",
        )  # fmt: skip
        return Identity(user, groups, uid, extra)

    def _require(self, plural: str, namespace: str, name: str, uid: str) -> None:
        """TokenRefused unless the object exists under the same uid and was not deleted long ago."""
        found = self._lookup(plural, namespace, name)
        shown = f"{plural} {namespace}/{name}" if namespace else f"{plural} {name}"
        if found is None or found[0] != uid:
            raise TokenRefused(f"{shown} no longer exists")
        deleted = found[1]
        if deleted is not None and (
            (self._now() - deleted).total_seconds() > _GRACE_AFTER_DELETION_S
        ):
            raise TokenRefused(f"{shown} was deleted")


def _web_key(key: Key) -> Claims:
    public = _public(key.key)
    kind = RSAAlgorithm if isinstance(public, rsa.RSAPublicKey) else ECAlgorithm
    values: Claims = kind.to_jwk(public, as_dict=True)
    values.pop("key_ops", None)
    return {"use": "sig", "kid": key.id, "alg": key.algorithm, **values}


def _load(path: Path) -> Any:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SetupError(f"cannot read the key {path}: {error.strerror}") from error
    try:
        if b"PRIVATE KEY" in data:
            return serialization.load_pem_private_key(data, password=None)
        return serialization.load_pem_public_key(data)
    except (ValueError, TypeError) as error:
        raise SetupError(f"{path} is not a PEM key that can be used: {error}") from error


def _public(key: Any) -> Any:
    private = (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)
    return key.public_key() if isinstance(key, private) else key


def _key(path: Path, public: Any) -> Key:
    if isinstance(public, rsa.RSAPublicKey):
        algorithm = "RS256"
    elif isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        algorithm = _CURVES[public.curve.name]
    else:
        raise SetupError(f"{path}: only RSA keys and the curves {', '.join(_CURVES)} are used")
    encoded = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Key(public, algorithm, hashlib.sha256(encoded).hexdigest()[:43])


def _json_of(part: str) -> Claims:
    """Before PyJWT has a look, which takes several times as long for 8 kB."""
    try:
        padding = "=" * (-len(part) % 4)
        found = orjson.loads(base64.b64decode(part + padding, altchars=b"-_", validate=True))
    except ValueError as error:
        raise TokenRefused(f"the token is not valid: {error}") from None
    if not isinstance(found, dict):
        raise TokenRefused("the token is not valid: a part of it is no JSON object")
    return found


def _reference(own: Claims, kind: str) -> tuple[str, str]:
    record = own.get(kind)
    if not isinstance(record, dict):
        raise TokenRefused(f"the token names no {kind}")
    return _text(record.get("name")), _text(record.get("uid"))


def _audiences(claims: Claims) -> list[str]:
    audience = claims.get("aud")
    return [audience] if isinstance(audience, str) else [_text(item) for item in audience or ()]


def _number(claims: Claims, name: str) -> float:
    value = claims.get(name, 0)
    if not isinstance(value, int | float):
        raise TokenRefused(f"the claim {name} of the token is not a number")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
