"""Authentication without a client certificate: a chain of authenticators built from the flags.

In order: password, bearer token (static, service account, bootstrap). Each authenticator knows an
identity, knows nothing (None), or finds an invalid credential (ApiError 401). A caller that
presents no credential is anonymous, which is enough for the health paths unless that is disabled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from aiohttp import web

from orch.component.process.clock import Now
from orch.server.authn import credential_files, tokens
from orch.server.authn.credential_files import Passwords
from orch.server.authn.flags import AuthFlags
from orch.server.authn.tokens import RemoteAuthenticator, TokenAuthenticator, Tokens
from orch.server.objects.document import decode, key_of
from orch.server.storage.base import Storage, Stored
from orch.wire import times
from orch.wire.errors import unauthorized
from orch.wire.names import GROUP_UNAUTHENTICATED, SYSTEM_NAMESPACE, USER_ANONYMOUS
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import NODES, PODS, SECRETS, SERVICE_ACCOUNTS

if TYPE_CHECKING:
    from orch.server.authn.service_account_tokens import AccountTokens, Lookup

ANONYMOUS = Identity(USER_ANONYMOUS, (GROUP_UNAUTHENTICATED,))
# Answered without credentials, unless --no-anonymous-health is given.
HEALTH_PATHS = frozenset(("/healthz", "/livez", "/readyz", "/version"))

Authenticator = Callable[[web.Request], Awaitable[Identity | None]]
Authenticate = Callable[[web.Request], Awaitable[Identity]]


def by_bearer(tokens: Tokens) -> Authenticator:
    """The holder of the bearer token; ApiError 401 for any other credential.

    A secret sent in the clear is refused too: it may have been overheard.
    """

    async def authenticate(request: web.Request) -> Identity | None:
        sent = request.headers.get("Authorization")
        if sent is None:
            return None
        scheme, _, credential = sent.strip().partition(" ")
        if scheme.lower() != "bearer" or not request.secure:
            raise unauthorized()
        return await tokens.authenticate(credential.strip())

    return authenticate


def chain(*authenticators: Authenticator) -> Authenticate:
    """The first identity found; ANONYMOUS when no credential was presented at all."""

    async def authenticate(request: web.Request) -> Identity:
        for authenticator in authenticators:
            identity = await authenticator(request)
            if identity is not None:
                return identity
        return ANONYMOUS

    return authenticate


_BY_PLURAL = {resource.plural: resource for resource in (SERVICE_ACCOUNTS, PODS, SECRETS, NODES)}
_BASIC = 'Basic realm="orch-apiserver"'


class Credentials:
    """`authenticate` is for requests, `tokens` for reviews; `accounts` (None: no key) makes tokens.

    `open_paths` are answered without credentials; `challenge` is for WWW-Authenticate.
    """

    def __init__(
        self,
        flags: AuthFlags,
        storage: Storage,
        now: Now,
        remote: RemoteAuthenticator | None = None,
    ) -> None:
        self._storage = storage
        self.accounts = _account_tokens(flags, self._lookup, now)
        bootstrap = tokens.authenticator(self._secret, now)
        static: list[TokenAuthenticator] = []
        if flags.token_file is not None:
            static.append(credential_files.read_tokens(flags.token_file))
        if self.accounts is not None:
            static.append(self.accounts.authenticate)
        self.tokens = Tokens((*static, bootstrap), flags.audiences, remote)
        by_password = []
        if flags.password_file is not None:
            by_password.append(Passwords(flags.password_file).authenticate)
        self.challenge = _BASIC if by_password else ""
        self.open_paths = HEALTH_PATHS if flags.anonymous_health else frozenset[str]()
        self.authenticate: Authenticate = chain(*by_password, by_bearer(self.tokens))

    def _lookup(self, plural: str, namespace: str, name: str) -> tuple[str, datetime | None] | None:
        stored = self._storage.get(key_of(_BY_PLURAL[plural], namespace, name)) if name else None
        return None if stored is None else stored.once("life", _life)

    def _secret(self, name: str) -> Mapping[str, Any] | None:
        stored = self._storage.get(key_of(SECRETS, SYSTEM_NAMESPACE, name))
        return None if stored is None else decode(stored)


def _life(stored: Stored) -> tuple[str, datetime | None]:
    """The uid and the deletion time of an object."""
    metadata = decode(stored)["metadata"]
    deleted = metadata.get("deletionTimestamp")
    return metadata["uid"], times.parse_time(deleted) if deleted else None


def _account_tokens(flags: AuthFlags, lookup: Lookup, now: Now) -> AccountTokens | None:
    """SetupError for keys that cannot be used. The signing key also verifies."""
    signing = flags.signing_key_file
    files = [*flags.key_files, *([signing] if signing is not None else [])]
    if not files:
        return None
    from orch.server.authn import (
        service_account_tokens,  # with cryptography: 16 MiB and a part of the start
    )

    signing_key = None if signing is None else service_account_tokens.read_signing_key(signing)
    keys = service_account_tokens.read_public_keys(files)
    return service_account_tokens.AccountTokens(flags.issuer, keys, signing_key, lookup, now)
