"""The service account that a new pod runs as: named by either of its fields, and there; pure.

As the reference's ServiceAccount plugin. A pod without pull secrets of its own gets the account's,
and every pod a volume with a token of its account, by which it reaches this server, unless the pod
or the account will not have it. A mirror pod names no account and gets nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from orch.server.objects.document import Document, ObjectTarget
from orch.wire import raw
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules.podspec import mirror_hash
from orch.wire.podrules.references import PULL_SECRETS, SECRET, api_references
from orch.wire.records.kinds import PODS, Resource
from orch.wire.validation import DNS_SUBDOMAIN_MAX

# What is `needed` of the account of a namespace and name; None: there is none.
Find = Callable[[str, str], Document | None]

TOKEN_VOLUME = "kube-api-access-"  # noqa: S105 - and a random suffix
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - where clients look
TOKEN_LIFE_S = 3607  # the reference's odd number: so many seconds are nobody's own choice
ROOT_CA, ROOT_CA_KEY = "kube-root-ca.crt", "ca.crt"  # the ConfigMap of every namespace, and its key


class ServiceAccounts:
    """The `Admission` of pods, which it completes.

    `new_suffix` gives a random name; None: pods get no tokens, because the server issues none.
    """

    def __init__(self, find: Find, new_suffix: Callable[[], str] | None) -> None:
        self._find = find
        self._new_suffix = new_suffix

    def judges(self, resource: Resource) -> bool:
        return resource is PODS

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for an account that is not there, and for a mirror pod that needs one."""
        if old is not None:
            return
        spec = new["spec"]
        if mirror_hash(new) is not None:
            for problem in _mirror_problems(spec):
                raise target.forbidden(new["metadata"].get("name", ""), problem)
            return
        name = wanted_account(spec)
        spec["serviceAccountName"] = name
        account = self._find(target.namespace, name)
        if account is None and target.dry_run and name == DEFAULT_SERVICE_ACCOUNT:
            account = {}  # the pod's creation would have it made first
        if account is None:
            raise target.forbidden(
                new["metadata"].get("name", ""),
                f"error looking up service account {target.namespace}/{name}:"
                f' serviceaccount "{name}" not found',
            )
        if self._new_suffix is not None and _mounts_token(spec, account):
            _give_token(spec, f"{TOKEN_VOLUME}{self._new_suffix()}")
        if not spec.get("imagePullSecrets"):
            _give_pull_secrets(spec, account)


def wanted_account(spec: Document) -> str:
    """The name of the account; `serviceAccount` is the older name of the field."""
    named = raw.text(spec, "serviceAccountName") or raw.text(spec, "serviceAccount")
    return named or DEFAULT_SERVICE_ACCOUNT


def _mirror_problems(spec: Document) -> Iterator[str]:
    if raw.text(spec, "serviceAccountName"):
        yield "a mirror pod may not reference service accounts"
    for found in api_references(spec):
        if found.kind == SECRET:
            yield "a mirror pod may not reference secrets"
        if found.kind == "serviceAccountToken":
            yield "a mirror pod may not use ServiceAccountToken volume projections"


def _mounts_token(spec: Document, account: Document) -> bool:
    """The pod's own word counts before the account's."""
    for record in (spec, account):
        if (given := record.get("automountServiceAccountToken")) is not None:
            return bool(given)
    return True


def _give_token(spec: Document, name: str) -> None:
    """Mount the token where every container looks for it, unless it has something else there."""
    volumes = spec.get("volumes") or []
    names = (raw.text(volume, "name") for volume in volumes)
    own = next((found for found in names if found.startswith(TOKEN_VOLUME)), None)
    lacking = [
        container
        for container in (*(spec.get("initContainers") or ()), *spec["containers"])
        if all(mount["mountPath"] != TOKEN_PATH for mount in container.get("volumeMounts") or ())
    ]
    for container in lacking:
        mount = {"name": own or name, "readOnly": True, "mountPath": TOKEN_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    if lacking and own is None:
        spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _token_volume() -> Document:
    where = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return {
        "defaultMode": 0o644,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_LIFE_S}},
            {"configMap": {"name": ROOT_CA, "items": [{"key": ROOT_CA_KEY, "path": ROOT_CA_KEY}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": where}]}},
        ],
    }


def needed(account: Document) -> Document:
    """What its pods need to know of an account, however large it is; to be kept."""
    secrets = raw.records(account, "imagePullSecrets")
    names = (raw.text(secret, "name") for secret in islice(secrets, PULL_SECRETS))
    given = [{"name": name} for name in names if len(name) <= DNS_SUBDOMAIN_MAX]
    return {
        "automountServiceAccountToken": account.get("automountServiceAccountToken"),
        "imagePullSecrets": given,
    }


def _give_pull_secrets(spec: Document, account: Document) -> None:
    if given := account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [dict(secret) for secret in given]
