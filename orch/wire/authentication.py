"""The records of `authentication.orch.io/v1`: whose is this token, who am I, a token to be made.

Reviews are questions: they are answered, never stored.
"""

from __future__ import annotations

from pydantic import Field

from orch.wire.meta import ApiObject, WireModel
from orch.wire.names import AUTHENTICATION_GROUP

_API_VERSION = f"{AUTHENTICATION_GROUP}/v1"


class UserInfo(WireModel):
    username: str | None = None
    uid: str | None = None
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class TokenReviewSpec(WireModel):
    """`audiences`: who asks; empty means the API server itself."""

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
    """An object that a token is good as long as it exists: a Pod, Secret or Node."""

    kind: str | None = None
    apiVersion: str | None = None
    name: str | None = None
    uid: str | None = None


class TokenRequestSpec(WireModel):
    """`audiences` empty: the API server; a lifetime of an hour unless said otherwise."""

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
