"""Asks the cluster for a certificate of this node, and collects it once it is issued.

The name of a request follows from its key, so whoever was interrupted goes on with the same one.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from orch.client.resources import ApiClient
from orch.component import signing_requests
from orch.wire.errors import ApiError
from orch.wire.names import GROUP_NODES, SIGNER_NODE_CLIENT, SIGNER_NODE_SERVING, USER_NODE_PREFIX
from orch.wire.records.authentication import (
    CLIENT_AUTH,
    DENIED,
    DIGITAL_SIGNATURE,
    FAILED,
    SERVER_AUTH,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orch.wire.records.meta import ObjectMeta

POLL_S = 0.5
_MAX_CERTIFICATE_BYTES = 64 * 1024


class NotGranted(Exception):
    """No certificate will come of this request; the text says why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The certificate of a node: as a client, or with `hosts` as a server."""

    node_name: str
    hosts: tuple[str, ...] = ()


async def ask(client: ApiClient, wanted: Wanted, key_pem: bytes) -> str:
    """The name of the request, new or as it was left; ApiError, TransportError."""
    name = f"node-csr-{signing_requests.fingerprint(key_pem)}"
    user = f"{USER_NODE_PREFIX}{wanted.node_name}"
    pem = signing_requests.make_request(key_pem, user, GROUP_NODES, wanted.hosts)
    request = CertificateSigningRequest(
        metadata=ObjectMeta(name=name),
        spec=CertificateSigningRequestSpec(
            request=base64.b64encode(pem).decode(),
            signerName=SIGNER_NODE_SERVING if wanted.hosts else SIGNER_NODE_CLIENT,
            usages=[DIGITAL_SIGNATURE, SERVER_AUTH if wanted.hosts else CLIENT_AUTH],
        ),
    )
    try:
        await client.create(request)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    return name


async def collect(client: ApiClient, name: str, key_pem: bytes) -> bytes | None:
    """The certificate as PEM; None while it is not issued. NotGranted, ApiError, TransportError."""
    try:
        found = await client.get(CertificateSigningRequest, name)
    except ApiError as error:
        if error.code in (403, 404):  # who asked may read it as long as it is there
            raise NotGranted(f"the request {name} is gone") from error
        raise
    for kind in (DENIED, FAILED):
        if condition := found.condition(kind):
            raise NotGranted(condition.message or f"the request {name} is {kind.lower()}")
    if not found.status.certificate:
        return None
    pem = base64.b64decode(found.status.certificate)
    with contextlib.suppress(ValueError):
        if len(pem) <= _MAX_CERTIFICATE_BYTES and signing_requests.belongs(pem, key_pem):
            return pem
    raise NotGranted(f"the certificate of {name} is not for the key that asked for it")


async def wait(client: ApiClient, name: str, key_pem: bytes) -> bytes:
    """The certificate, once it is issued: bound the time. As `collect`."""
    while True:
        pem = await collect(client, name, key_pem)
        if pem is not None:
            return pem
        await asyncio.sleep(POLL_S)


def hosts_for(node_name: str, reported: Sequence[str]) -> tuple[str, ...]:
    """What a node serves as: its name, and the addresses that it reports."""
    others = [host for host in reported if signing_requests.is_address(host)]
    return tuple(dict.fromkeys((node_name, *others))) if reported else ()
