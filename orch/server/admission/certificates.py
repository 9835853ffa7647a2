"""Requests for certificates: who asks is written down, who decides and signs is checked; pure.

As the reference's CertificateApproval, CertificateSigning and CertificateSubjectRestriction: beside
the right to change a request, its approver needs `approve` on its signer, who issues it `sign`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from orch.component import signing_requests
from orch.server.authz.authorizer import Authorizer
from orch.server.objects.document import Document, ObjectTarget
from orch.server.request.attributes import RequestInfo
from orch.server.strategy.base import text_at
from orch.server.strategy.signing_requests import APPROVAL
from orch.wire import errors
from orch.wire.names import (
    CERTIFICATES_GROUP,
    GROUP_MASTERS,
    SIGNER_CLIENT,
    SIGNERS_UPSTREAM,
    USER_SERVICE_ACCOUNT_PREFIX,
)
from orch.wire.records.authentication import user_info
from orch.wire.records.kinds import SIGNING_REQUESTS, Resource

MAX_KEPT = 1000  # requests of one user, or the accounts of a namespace, at a time

Askers = Callable[[], Sequence[str]]  # `asker` of every request that is stored


class CertificateRequests:
    """The `Admission` of requests for certificates, which it completes."""

    def __init__(self, authorizer: Authorizer, askers: Askers) -> None:
        self._authorizer = authorizer
        self._askers = askers

    def judges(self, resource: Resource) -> bool:
        return resource is SIGNING_REQUESTS

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for a signer that the caller may not decide for, or a subject that no client
        may have; 429 for who asks without end.
        """
        if old is None:
            self._create(target, new)
        elif target.subresource == APPROVAL:
            self._require(target, old, "approve")
        elif target.subresource == "status" and new.get("status") != old.get("status"):
            self._require(target, old, "sign")

    def _create(self, target: ObjectTarget, new: Document) -> None:
        spec, who = new["spec"], target.identity
        asked: dict[str, Any] = user_info(who).to_wire()
        for name in ("username", "uid", "groups", "extra"):
            spec.pop(name, None)
            if name in asked:
                spec[name] = asked[name]
        name = new["metadata"].get("name", "")
        if SIGNERS_UPSTREAM.get(spec["signerName"], spec["signerName"]) == SIGNER_CLIENT:
            read = signing_requests.read(base64.b64decode(spec["request"]))
            if GROUP_MASTERS in read.organizations:
                text = f"use of {SIGNER_CLIENT} signer with {GROUP_MASTERS} group is not allowed"
                raise target.forbidden(name, text)
        if GROUP_MASTERS not in who.groups and self._kept(who.name) >= MAX_KEPT:
            text = f"{who.name} has {MAX_KEPT} requests for certificates: wait for some to go"
            raise errors.ApiError(429, "TooManyRequests", text, retry_after_s=60)

    def _kept(self, username: str) -> int:
        return self._askers().count(_sharing(username))

    def _require(self, target: ObjectTarget, old: Document, verb: str) -> None:
        signer = text_at(old, "spec.signerName")
        domain = signer.partition("/")[0]
        for name in (signer, f"{domain}/*"):
            if self._authorizer.decide(target.identity, _on_signer(verb, name)).allowed:
                return
        text = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise target.forbidden(target.name, text)


def asker(document: Document) -> str:
    """Whose requests count together with this one."""
    return _sharing(text_at(document, "spec.username"))


def _sharing(username: str) -> str:
    """The user, or the namespace of the service account."""
    is_account = username.startswith(USER_SERVICE_ACCOUNT_PREFIX)
    return username.rpartition(":")[0] if is_account else username


def _on_signer(verb: str, name: str) -> RequestInfo:
    return RequestInfo(
        verb,
        path="",
        is_resource=True,
        group=CERTIFICATES_GROUP,
        version="v1",
        resource="signers",
        name=name,
    )
