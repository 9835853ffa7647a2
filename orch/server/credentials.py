"""Every way a caller can prove who it is but by a certificate, put together from the flags.

In order, and after the client certificate: password, bearer token (static, service account,
bootstrap). Who presents nothing may ask for health, if that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orch.component.clock import Now
from orch.server import authn, bootstraptokens, credentialfile
from orch.server.authflags import AuthFlags
from orch.server.authn import Authenticate
from orch.server.passwords import Passwords
from orch.server.resources.document import decode, key_of
from orch.server.storage.base import Storage
from orch.server.tokens import TokenAuthenticator, Tokens
from orch.wire import times
from orch.wire.kinds import NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from orch.wire.names import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from orch.server.accounttokens import AccountTokens, Lookup

_BY_PLURAL = {one.plural: one for one in (SERVICE_ACCOUNTS, PODS, SECRETS, NODES)}
_BASIC = 'Basic realm="orch-apiserver"'


class Credentials:
    """`authenticate` is for requests, `tokens` for reviews; `accounts` (None: no key) makes tokens.

    `open_paths` are answered without any; `challenge` is what a refused caller is asked for.
    """

    def __init__(self, flags: AuthFlags, storage: Storage, now: Now) -> None:
        self._storage = storage
        self.accounts = _account_tokens(flags, self._lookup, now)
        bootstrap = bootstraptokens.authenticator(self._secret, now)
        static: list[TokenAuthenticator] = []
        if flags.token_file is not None:
            static.append(credentialfile.read_tokens(flags.token_file))
        if self.accounts is not None:
            static.append(self.accounts.authenticate)
        self.tokens = Tokens((*static, bootstrap), flags.audiences)
        by_password = []
        if flags.password_file is not None:
            by_password.append(Passwords(flags.password_file).authenticate)
        self.challenge = _BASIC if by_password else ""
        self.open_paths = authn.HEALTH_PATHS if flags.anonymous_health else frozenset[str]()
        self.authenticate: Authenticate = authn.chain(
            *by_password,
            authn.by_bearer(self.tokens),
        )

    def _lookup(self, plural: str, namespace: str, name: str) -> tuple[str, datetime | None] | None:
        """The uid and the deletion time of an object, read once per revision."""
        stored = self._storage.get(key_of(_BY_PLURAL[plural], namespace, name)) if name else None
        if stored is None:
            return None
        if "life" not in stored.memo:
            metadata = decode(stored)["metadata"]
            deleted = metadata.get("deletionTimestamp")
            stored.memo["life"] = (metadata["uid"], times.parse_time(deleted) if deleted else None)
        life: tuple[str, datetime | None] = stored.memo["life"]
        return life

    def _secret(self, name: str) -> Mapping[str, Any] | None:
        stored = self._storage.get(key_of(SECRETS, SYSTEM_NAMESPACE, name))
        return None if stored is None else decode(stored)


def _account_tokens(flags: AuthFlags, lookup: Lookup, now: Now) -> AccountTokens | None:
    """SetupError for keys that cannot be used. What is signed here is also accepted here."""
    signing = flags.signing_key_file
    files = [*flags.key_files, *([signing] if signing is not None else [])]
    if not files:
        return None
    from orch.server import accounttokens  # with cryptography: 16 MiB and a part of the start

    signing_key = None if signing is None else accounttokens.read_signing_key(signing)
    keys = accounttokens.read_public_keys(files)
    return accounttokens.AccountTokens(flags.issuer, keys, signing_key, lookup, now)
