"""Objects as the server keeps them: JSON data while they are worked on, bytes when stored.

Stored bytes hold no resourceVersion: it is the revision they are stored at, and is inserted into
the text when they are served. `kind`, `apiVersion` and `metadata` come first, in that order, so
that its place is always found. A Document is a plain dict: the server keeps fields it does not
know.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from orch.server.storage.base import StorageFailed, Stored
from orch.server.strategy.base import Strategy
from orch.wire import errors
from orch.wire.errors import ApiError, Cause
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import Resource

Document = dict[str, Any]

_METADATA = b'"metadata":{'
_REVISION_BYTES = len('"resourceVersion":"",')
_NOT_STORED = ("resourceVersion", "selfLink")


def key_of(resource: Resource, namespace: str, name: str) -> str:
    """The storage key of one object; `namespace` counts for namespaced kinds only."""
    return prefix_of(resource, namespace) + name


def place_of(key: str) -> tuple[str, str]:
    """Namespace ("" for cluster scope) and name in a storage key."""
    _, _, *namespace, name = key.split("/")
    return "".join(namespace), name


def prefix_of(resource: Resource, namespace: str = "") -> str:
    """The key prefix of all objects of a kind, or of those in one namespace."""
    kind = resource.stored_name
    return f"/{kind}/{namespace}/" if resource.namespaced and namespace else f"/{kind}/"


def encode(document: Document) -> bytes:
    """The bytes to store. The metadata must have a name: `served` relies on it."""
    metadata = document["metadata"]
    if any(field in metadata for field in _NOT_STORED):
        metadata = {key: value for key, value in metadata.items() if key not in _NOT_STORED}
    ordered = {"kind": document["kind"], "apiVersion": document["apiVersion"], "metadata": metadata}
    for key, value in document.items():
        ordered.setdefault(key, value)
    return dumps(ordered)


def dumps(data: object) -> bytes:
    """JSON to keep: what orjson returns has room for up to eight times its size."""
    return memoryview(orjson.dumps(data)).tobytes()


def served(stored: Stored, revision: int | None = None) -> bytes:
    """The object as sent to clients; `revision` when not its own (that of its deletion)."""
    inserted = b'"metadata":{"resourceVersion":"%d",' % (
        stored.revision if revision is None else revision
    )
    return stored.data.replace(_METADATA, inserted, 1)


def served_parts(stored: Stored, revision: int) -> tuple[bytes, memoryview]:
    """`served` in two parts, of which the second, long one is not copied."""
    start = stored.data.index(_METADATA)
    inserted = b'"metadata":{"resourceVersion":"%d",' % revision
    return stored.data[:start] + inserted, memoryview(stored.data)[start + len(_METADATA) :]


def served_size(stored: Stored) -> int:
    """Bytes of `served`, at its own revision."""
    return len(stored.data) + _REVISION_BYTES + len(str(stored.revision))


def decode(stored: Stored) -> Document:
    """A new Document, with its resourceVersion; the caller may change it. StorageFailed names an
    object that cannot be read.
    """
    try:
        document: Document = orjson.loads(stored.data)
    except orjson.JSONDecodeError as error:
        text = f"what is stored as {stored.key} is no JSON, remove or replace it: {error}"
        raise StorageFailed(text) from error
    document["metadata"]["resourceVersion"] = str(stored.revision)
    return document


def decode_as(resource: Resource, stored: Stored) -> Document:
    """`decode`, in the resource's version of its kind."""
    document = decode(stored)
    if resource.stored_form:
        return resource.stored_form.from_stored(document, resource.api_version)
    if resource.stored_version:
        document["apiVersion"] = resource.api_version
    return document


def encode_as(resource: Resource, document: Document) -> bytes:
    """`encode`, in the version in which objects of the kind are stored."""
    if resource.stored_form:
        document = resource.stored_form.to_stored(document, resource.api_version)
    if resource.stored_version:
        document = {**document, "apiVersion": f"{resource.group}/{resource.stored_version}"}
    return encode(document)


def converted(document: Document, before: Resource, after: Resource) -> Document:
    """An object of a kind as one of another kind with the same stored objects."""
    if before.stored_form and before != after:
        document = before.stored_form.to_stored(document, before.api_version)
    if after.stored_form and before != after:
        document = after.stored_form.from_stored(document, after.api_version)
    return document


def is_in_version(resource: Resource, stored: Stored) -> bool:
    """Whether the object is stored in the version in which it would be stored now."""
    version = f"{resource.group}/{resource.stored_version or resource.version}"
    start = b'{"kind":"%b","apiVersion":"%b",' % (resource.kind.encode(), version.encode())
    return not resource.stored_version or stored.data.startswith(start)


_VERSION = re.compile(rb'"apiVersion":"[^"]*"')


def shown_in_version(resource: Resource, body: bytes) -> bytes:
    """A stored object's bytes, which begin with kind and apiVersion, in the resource's version."""
    if resource.stored_form:
        document = orjson.loads(body)
        return dumps(resource.stored_form.from_stored(document, resource.api_version))
    return _VERSION.sub(b'"apiVersion":"%b"' % resource.api_version.encode(), body, count=1)


def same(left: Document, right: Document) -> bool:
    """Whether both store as the same object."""
    return _stored_part(left) == _stored_part(right)


def _stored_part(document: Document) -> Document:
    metadata = {k: v for k, v in document["metadata"].items() if k not in _NOT_STORED}
    return {**document, "metadata": metadata}


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


@dataclass(slots=True)
class Notes:
    """The words of admission beside its verdict: for the client, and for the audit trail.

    `advice` gives further warnings; it takes longer, so it is asked for once the change is stored.
    """

    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    advice: Callable[[], Awaitable[Sequence[str]]] | None = None


class ObjectTarget(NamedTuple):
    """The caller and the object: `name` is "" for a creation, `namespace` for cluster scope;
    `notes` is None where nobody reads them; `alias` is the group's other name, if that was asked.
    With `dry_run` nothing is changed.
    """

    strategy: Strategy
    identity: Identity
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    notes: Notes | None = None
    alias: str = ""
    dry_run: bool = False

    @property
    def key(self) -> str:
        return key_of(self.strategy.resource, self.namespace, self.name)

    def not_found(self) -> ApiError:
        resource = self.strategy.resource
        return errors.not_found(resource.plural, self.name, resource.group)

    def conflict(self, why: str = MODIFIED) -> ApiError:
        resource = self.strategy.resource
        return errors.conflict(resource.plural, self.name, why, resource.group)

    def forbidden(self, name: str, why: str, causes: tuple[Cause, ...] = ()) -> ApiError:
        """`name` is that of the object, which a target for a creation does not have."""
        resource = self.strategy.resource
        return errors.forbidden_object(resource.plural, name, why, resource.group, causes)


class Admission(Protocol):
    """A step on the way of every write of the kinds it `judges`.

    `check` sees the very state that the write then depends on, after validation, and again at every
    further attempt to write. It refuses by ApiError, may complete `new`, and may leave notes.
    """

    def judges(self, resource: Resource) -> bool: ...

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """`old` is None for a creation."""


class Attempt(NamedTuple):
    """What is about to be done: CREATE, UPDATE, DELETE or CONNECT; `kind` is the version and kind
    of `new` where that is not the object itself.
    """

    operation: str
    new: Document | None
    old: Document | None = None
    dry_run: bool = False
    kind: tuple[str, str] | None = None


# Makes an object that webhooks changed fit to be stored: defaults, validation, admission.
Settle = Callable[[Document], Awaitable[Document]]


class Webhooks(Protocol):
    """Servers elsewhere that are asked before something is done; refusals are ApiErrors.

    `exist`: there are any, looked at before anything else: without webhooks they cost nothing.
    """

    exist: bool

    def concern(self, target: ObjectTarget, operation: str) -> bool:
        """Whether any might be asked."""

    async def complete(self, target: ObjectTarget, attempt: Attempt, settle: Settle) -> Attempt:
        """Ask those that may change the object, one after the other: what is attempted then."""

    async def judge(self, target: ObjectTarget, attempt: Attempt) -> None:
        """Ask those that only refuse, all at once."""
