"""Requests for certificates: who asks never changes, approval and issue have a path each; pure.

From the reference's pkg/apis/certificates and pkg/registry/certificates.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import replace

import orjson

from orch.component import signing_requests
from orch.server.strategy.base import Document, Strategy, keep, text_at
from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.managed.ownership import including
from orch.wire.records.authentication import APPROVED, DENIED, FAILED
from orch.wire.records.kinds import SIGNING_REQUESTS
from orch.wire.validation import (
    DNS_LABEL_MAX,
    DNS_SUBDOMAIN_MAX,
    dns1123_label_problems,
    dns1123_subdomain_problems,
)

APPROVAL = "approval"  # a subresource
MIN_S = 600
_MAX_S = 2**31 - 1  # clients can read no more
_MAX_METADATA_BYTES = 16 * 1024  # whoever joins may write it
_MAX_BYTES = 64 * 1024  # of all of it, and who asks
_MAX_DECIDED_BYTES = 160 * 1024  # with conditions and a certificate
_MAX_CERTIFICATE_BYTES = 64 * 1024
_DECISIONS = (APPROVED, DENIED)
_LASTING = (*_DECISIONS, FAILED)
_STATES = ("False", "True", "Unknown")
_USAGES = frozenset(
    (
        "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign",
        "data encipherment", "decipher only", "digital signature", "email protection",
        "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement",
        "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
        "server auth", "signing", "timestamping",
    )
)  # fmt: skip
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+)-----END CERTIFICATE-----\n?"
)


def _prepare_create(document: Document) -> None:
    document["status"] = {}


def _prepare_update(new: Document, old: Document) -> None:
    keep(new, old, "spec")
    keep(new, old, "status")


def _prepare_status(new: Document, old: Document) -> None:
    keep(new, old, "spec")


def _prepare_approval(new: Document, old: Document) -> None:
    """Only the conditions of the sent request count."""
    conditions = raw.value(new, "status", "conditions")
    keep(new, old, "spec")
    new["status"] = dict(old.get("status") or {})
    if conditions is None:
        new["status"].pop("conditions", None)
    else:
        new["status"]["conditions"] = conditions


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    yield from _size_causes(new, old)
    if old is None:
        yield from _creation_causes(new, new.get("spec") or {})
    else:
        yield from _condition_causes(new, old)
        yield from _decision_causes(new, old)
        yield from _certificate_causes(new, old)


def _validate_approval(new: Document, old: Document | None) -> Iterator[Cause]:
    yield from _size_causes(new, old)
    yield from _condition_causes(new, old or {})


def _size_causes(new: Document, old: Document | None) -> Iterator[Cause]:
    """Of all of it: fields that no request has are kept, too."""
    most, path = (_MAX_BYTES, "spec") if old is None else (_MAX_DECIDED_BYTES, "status")
    size = len(orjson.dumps(new))
    if size > most and (old is None or size > len(orjson.dumps(old))):
        yield causes.too_long(path, f"all of it may not be more than {most} bytes")


def _creation_causes(new: Document, spec: Document) -> Iterator[Cause]:
    if len(orjson.dumps(new["metadata"])) > _MAX_METADATA_BYTES:
        yield causes.too_long("metadata", f"may not be more than {_MAX_METADATA_BYTES} bytes")
    yield from _request_causes(spec.get("request") or "")
    yield from _usage_causes(spec.get("usages") or [])
    yield from _signer_causes("spec.signerName", spec.get("signerName") or "")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < MIN_S:
        detail = f"may not specify a duration less than {MIN_S} seconds (10 minutes)"
        yield causes.invalid_value("spec.expirationSeconds", seconds, detail)
    if seconds is not None and seconds > _MAX_S:
        detail = f"may not specify a duration more than {_MAX_S} seconds"
        yield causes.invalid_value("spec.expirationSeconds", seconds, detail)


def _request_causes(encoded: str) -> Iterator[Cause]:
    if not encoded:
        yield causes.required("spec.request")
        return
    try:
        if len(encoded) > 2 * signing_requests.MAX_BYTES:
            raise ValueError(f"it has more than {signing_requests.MAX_BYTES} bytes")
        signing_requests.read(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as error:
        yield causes.invalid_value("spec.request", encoded[:40], str(error))


def _usage_causes(usages: list[str]) -> Iterator[Cause]:
    if not usages:
        yield causes.required("spec.usages")
    elif len(usages) > len(_USAGES):
        yield causes.too_many("spec.usages", len(usages), len(_USAGES))
        return
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield causes.not_supported(f"spec.usages[{index}]", usage, _USAGES)
        elif usage in usages[:index]:
            yield causes.duplicate(f"spec.usages[{index}]", usage)


def _signer_causes(path: str, name: str) -> Iterator[Cause]:
    if not name:
        yield causes.required(path)
        return
    domain, _, rest = name.partition("/")
    if name.count("/") != 1:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield causes.invalid_value(path, name, detail)
        return
    if len(name) > 2 * DNS_SUBDOMAIN_MAX + DNS_LABEL_MAX + 2:
        yield causes.too_long(path, f"may not be more than {2 * DNS_SUBDOMAIN_MAX} characters")
        return
    labels = domain.split(".")
    for label in labels:
        for problem in dns1123_label_problems(label):
            yield causes.invalid_value(path, domain, f'validating label "{label}": {problem}')
    if len(labels) < 2:
        detail = "should be a domain with at least two segments separated by dots"
        yield causes.invalid_value(path, domain, detail)
    for problem in dns1123_subdomain_problems(rest):
        yield causes.invalid_value(path, rest, f'validating label "{rest}": {problem}')


def _conditions(document: Document) -> list[Document]:
    return [dict(one) for one in raw.records(document, "status", "conditions")]


def _of(document: Document, kind: str) -> list[Document]:
    return [one for one in _conditions(document) if one.get("type") == kind]


def _condition_causes(new: Document, old: Document) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, condition in enumerate(_conditions(new)):
        path, kind = f"status.conditions[{index}]", condition.get("type") or ""
        states = _STATES if kind not in _LASTING else ("True",)
        if not kind:
            yield causes.required(f"{path}.type")
        if not condition.get("status"):
            yield causes.required(f"{path}.status")
        elif condition["status"] not in states:
            yield causes.not_supported(f"{path}.status", condition["status"], states)
        if kind in seen:
            yield causes.duplicate(f"{path}.type", kind)
        seen.add(kind)
    if seen.issuperset(_DECISIONS):
        detail = "Approved and Denied conditions are mutually exclusive"
        yield causes.invalid_value("status.conditions", DENIED, detail)
    for kind in _LASTING:
        if _of(old, kind) and not _of(new, kind):
            detail = f'updates may not remove a condition of type "{kind}"'
            yield causes.forbidden("status.conditions", detail)


def _decision_causes(new: Document, old: Document) -> Iterator[Cause]:
    for kind in _DECISIONS:
        if not _of(old, kind) and _of(new, kind):
            detail = f'updates may not add a condition of type "{kind}"'
            yield causes.forbidden("status.conditions", detail)


def _certificate_causes(new: Document, old: Document) -> Iterator[Cause]:
    path = "status.certificate"
    before, certificate = text_at(old, path), text_at(new, path)
    if certificate == before:
        return
    if before:
        yield causes.forbidden(path, "updates may not modify existing certificate content")
        return
    try:
        if len(certificate) > _MAX_CERTIFICATE_BYTES:
            raise ValueError(f"it has more than {_MAX_CERTIFICATE_BYTES} bytes")
        _require_certificates(base64.b64decode(certificate, validate=True))
    except (binascii.Error, ValueError) as error:
        yield causes.invalid_value(path, "<certificate data>", str(error))


def _require_certificates(pem: bytes) -> None:
    """ValueError unless it is PEM of certificates, and nothing besides."""
    blocks = list(_CERTIFICATE.finditer(pem.replace(b"\r", b"").strip()))
    if not blocks or _CERTIFICATE.sub(b"", pem.replace(b"\r", b"").strip()).strip():
        raise ValueError("must contain only CERTIFICATE PEM blocks, and at least one")
    for block in blocks:
        base64.b64decode(block[1].replace(b"\n", b""), validate=True)


_OBJECT = Strategy(
    SIGNING_REQUESTS,
    paths=("spec.signerName",),
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=_prepare_status,
    validate=_validate,
)
_APPROVAL = replace(
    _OBJECT,
    prepare_update=_prepare_approval,
    validate=_validate_approval,
    owned=including(("f:status", "f:conditions")),
)
STRATEGY = replace(_OBJECT, parts={APPROVAL: _APPROVAL})
