"""Gives every namespace what its pods need: the account `default`, and whom its clients trust.

Pods that name no service account run as `default`; the ConfigMap `kube-root-ca.crt` has the
certificates by which they know this server. Both are made again when somebody deletes or changes
them. A pod that comes sooner than its namespace's account has it made at once.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog
from orch.server import turns
from orch.server.admission.service_accounts import ROOT_CA, ROOT_CA_KEY, wanted_account
from orch.server.controllers.namespaces import SELF
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.document import Document, ObjectTarget, decode, key_of, prefix_of
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed, Stored
from orch.server.strategy import namespaces, table
from orch.server.strategy.configuration import CONFIG_MAP_STRATEGY
from orch.wire.errors import ApiError
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules.podspec import mirror_hash
from orch.wire.records.kinds import NAMESPACES, PODS, SERVICE_ACCOUNTS

log = logging.getLogger(__name__)

_MAX_BYTES = 512 * 1024  # of certificates, which a ConfigMap has room for
_BEGIN = "-----BEGIN CERTIFICATE-----"


class NamespaceDefaults:
    """`before_creation` is called by the backend, which every method is given."""

    def __init__(self, root_ca_file: Path | None) -> None:
        """SetupError for a file without certificates; None: nothing is published."""
        self._file = root_ca_file
        self._published = read_root_ca(root_ca_file) if root_ca_file is not None else ""
        self._troubles = OnceLog(log)

    async def step(self, backend: Backend) -> None:
        """One round; failures are left to the next."""
        await asyncio.to_thread(self._reread)
        async for stored in turns.in_turns(backend.storage.list(prefix_of(NAMESPACES)).items):
            namespace = stored.key.rpartition("/")[2]
            if self._lacking(backend, namespace) and not namespaces.is_terminating(decode(stored)):
                await self._provide(backend, namespace)

    async def before_creation(
        self, backend: Backend, target: ObjectTarget, document: Document
    ) -> None:
        """Complete the namespace of a pod that comes sooner than the loop."""
        if target.strategy.resource is not PODS or mirror_hash(document) is not None:
            return
        if wanted_account(document.get("spec") or {}) != DEFAULT_SERVICE_ACCOUNT:
            return
        key = key_of(SERVICE_ACCOUNTS, target.namespace, DEFAULT_SERVICE_ACCOUNT)
        found = backend.storage.get(key_of(NAMESPACES, "", target.namespace))
        if backend.storage.get(key) is not None or found is None:
            return
        if not namespaces.is_terminating(decode(found)):
            await self._provide(backend, target.namespace)

    async def _provide(self, backend: Backend, namespace: str) -> None:
        try:
            for target, document in self._lacking(backend, namespace):
                if backend.storage.get(target.key) is None:
                    await create(backend, target, document)
                else:
                    await _put_right(backend, target, document)
        except StorageFailed as error:
            log.debug("namespace %s does not have its defaults yet: %s", namespace, error)
        except ApiError as error:
            if error.reason in ("AlreadyExists", "Forbidden"):
                return  # another server of this cluster was quicker, or a quota has no room
            text = "namespace %s does not have its defaults yet: %s"
            self._troubles.failed(text, namespace, error, subject=namespace)
        else:
            self._troubles.recovered(subject=namespace)

    def _lacking(self, backend: Backend, namespace: str) -> list[tuple[ObjectTarget, Document]]:
        """What has to be made, or made good."""
        account = ObjectTarget(
            table.SERVICE_ACCOUNT_STRATEGY, SELF, namespace=namespace, name=DEFAULT_SERVICE_ACCOUNT
        )
        trust = ObjectTarget(CONFIG_MAP_STRATEGY, SELF, namespace=namespace, name=ROOT_CA)
        lacking: list[tuple[ObjectTarget, Document]] = []
        if backend.storage.get(account.key) is None:
            lacking.append((account, {}))
        if self._published:
            stored, data = backend.storage.get(trust.key), {ROOT_CA_KEY: self._published}
            if stored is None or stored.once("published", _mark_of) != _mark(data):
                lacking.append((trust, {"data": data}))
        return lacking

    def _reread(self) -> None:
        """The file may have been replaced; an unusable one changes nothing."""
        if self._file is None:
            return
        try:
            self._published = read_root_ca(self._file)
        except SetupError as error:
            self._troubles.failed("pods keep the certificates they have: %s", error, subject="")
        else:
            self._troubles.recovered("%s can be used again", self._file, subject="")


def read_root_ca(path: Path) -> str:
    """The certificates in a PEM file; SetupError when there is none."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES + 1).decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"--root-ca-file={path}: cannot be read: {error}") from error
    if len(text) > _MAX_BYTES or _BEGIN not in text or "PRIVATE KEY" in text:
        raise SetupError(
            f"--root-ca-file={path}: has to be PEM certificates without a key, of at most"
            f" {_MAX_BYTES} bytes"
        )
    return text


def _mark_of(stored: Stored) -> int:
    """A few bytes that stand for the data of a ConfigMap, whose text is not kept twice."""
    return _mark(decode(stored).get("data") or {})


def _mark(data: Document) -> int:
    return hash(tuple(sorted(data.items())))


async def _put_right(backend: Backend, target: ObjectTarget, wanted: Document) -> None:
    """Give it this data. One that somebody made immutable is made anew, whatever holds it."""
    found = backend.storage.get(target.key)
    if found is None or not decode(found).get("immutable"):
        await modify(backend, target, partial(_with_data, wanted))
        return
    await modify(backend, target, _released)
    await delete(backend, target, DeleteOptions())
    await create(backend, target, wanted)


def _released(document: Document) -> Document:
    kept = {name: part for name, part in document["metadata"].items() if name != "finalizers"}
    return {**document, "metadata": kept}


def _with_data(wanted: Document, document: Document) -> Document:
    return {**document, **wanted}
