"""The records of `authentication.orch.io/v1` and `certificates.orch.io/v1`, and the identity of an
authenticated caller.

Reviews (whose token is this, who am I) and token requests are answered, never stored. Of a request
for a certificate `request` and `certificate` are PEM, in base64; the server itself says who asks
(`username`, `uid`, `groups`, `extra`), and nobody changes that afterwards.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import Field

from orch.wire.names import (
    AUTHENTICATION_GROUP,
    CERTIFICATES_GROUP,
    GROUP_AUTHENTICATED,
    GROUP_NODES,
    GROUP_UNAUTHENTICATED,
    SIGNERS_UPSTREAM,
    USER_NODE_PREFIX,
)
from orch.wire.records.configuration import Base64
from orch.wire.records.meta import ApiObject, Int32, WireModel

_API_VERSION = f"{AUTHENTICATION_GROUP}/v1"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
DIGITAL_SIGNATURE, KEY_ENCIPHERMENT = "digital signature", "key encipherment"
CLIENT_AUTH, SERVER_AUTH = "client auth", "server auth"


class UserInfo(WireModel):
    username: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class TokenReviewSpec(WireModel):
    """`audiences`: the verifier; empty means the API server itself."""

    token: str = ""
    audiences: list[str] = Field(default_factory=list)


class TokenReviewStatus(WireModel):
    authenticated: bool | None = None
    user: UserInfo | None = None
    audiences: list[str] | None = None
    error: str | None = None


class TokenReview(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "TokenReview"
    spec: TokenReviewSpec = Field(default_factory=TokenReviewSpec)
    status: TokenReviewStatus | None = None


class SelfSubjectReviewStatus(WireModel):
    userInfo: UserInfo = Field(default_factory=UserInfo)


class SelfSubjectReview(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "SelfSubjectReview"
    status: SelfSubjectReviewStatus | None = None


class BoundObjectReference(WireModel):
    """A Pod, Secret or Node; a token is valid only as long as it exists."""

    kind: str | None = None
    apiVersion: str | None = None
    name: str | None = None
    uid: str | None = None


class TokenRequestSpec(WireModel):
    """`audiences` empty: the API server; the default lifetime is an hour."""

    audiences: list[str] = Field(default_factory=list)
    expirationSeconds: int | None = None
    boundObjectRef: BoundObjectReference | None = None


class TokenRequestStatus(WireModel):
    token: str = ""
    expirationTimestamp: str | None = None


class TokenRequest(ApiObject):
    apiVersion: str = _API_VERSION
    kind: str = "TokenRequest"
    spec: TokenRequestSpec = Field(default_factory=TokenRequestSpec)
    status: TokenRequestStatus | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """An authenticated caller; `extra` carries what the authenticator added (lower-case keys)."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)


def node_name_of(identity: Identity) -> str | None:
    """The node of a node identity; None for any other.

    A node identity has both the user name `system:node:<name>` and the group `system:nodes`.
    """
    if GROUP_NODES not in identity.groups or not identity.name.startswith(USER_NODE_PREFIX):
        return None
    return identity.name[len(USER_NODE_PREFIX) :] or None


def known(identity: Identity) -> Identity:
    """The identity as a member of `system:authenticated`, unless it is `system:unauthenticated`."""
    if GROUP_AUTHENTICATED in identity.groups or GROUP_UNAUTHENTICATED in identity.groups:
        return identity
    return replace(identity, groups=(*identity.groups, GROUP_AUTHENTICATED))


def user_info(identity: Identity) -> UserInfo:
    """An identity in the form of review records."""
    return UserInfo(
        username=identity.name,
        uid=identity.uid or None,
        groups=list(identity.groups) or None,
        extra={key: list(values) for key, values in identity.extra.items()} or None,
    )


class CertificateSigningRequestSpec(WireModel):
    request: Base64 = ""
    signerName: str = ""
    expirationSeconds: Int32 | None = None
    usages: list[str] | None = None
    username: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class CertificateSigningRequestCondition(WireModel):
    type: str
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    lastUpdateTime: str | None = None
    lastTransitionTime: str | None = None


class CertificateSigningRequestStatus(WireModel):
    conditions: list[CertificateSigningRequestCondition] | None = None
    certificate: Base64 | None = None


class CertificateSigningRequest(ApiObject):
    apiVersion: str = f"{CERTIFICATES_GROUP}/v1"
    kind: str = "CertificateSigningRequest"
    spec: CertificateSigningRequestSpec = Field(default_factory=CertificateSigningRequestSpec)
    status: CertificateSigningRequestStatus = Field(default_factory=CertificateSigningRequestStatus)

    @property
    def signer(self) -> str:
        """The signer by this service's own name."""
        return SIGNERS_UPSTREAM.get(self.spec.signerName, self.spec.signerName)

    @property
    def pem(self) -> bytes:
        return base64.b64decode(self.spec.request)

    def condition(self, kind: str) -> CertificateSigningRequestCondition | None:
        return next((c for c in self.status.conditions or () if c.type == kind), None)
