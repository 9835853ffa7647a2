"""Object metadata and the base of every record that crosses the network.

Field names are the wire's own. `None` (or absence) means "not reported"; unknown fields are kept
and written back, so that an older program never loses a newer one's data. Times are strings (see
`times`).
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from orch.wire.quantity import parse_quantity
from orch.wire.times import is_stored_time

# The validation context of objects to be stored, in which times and quantities are checked as well.
TO_STORE = {"to_store": True}

INT32 = "int32"
Int32 = Annotated[int, INT32]  # what is stored is checked; what is read need not fit


def _checked_quantity(text: str, info: ValidationInfo) -> str:
    if info.context is not None:
        parse_quantity(text)
    return text


def _checked_time(text: str, info: ValidationInfo) -> str:
    """Typed clients cannot read a list with an invalid one."""
    if info.context is not None and not is_stored_time(text):
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    return text


Quantity = Annotated[str, AfterValidator(_checked_quantity)]
Time = Annotated[str, AfterValidator(_checked_time)]


class WireModel(BaseModel):
    """A record that keeps unknown fields and writes only those that are set."""

    model_config = ConfigDict(extra="allow", validate_assignment=False)

    def to_wire(self) -> dict[str, Any]:
        """JSON data; fields that are None are left out."""
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Read JSON data; pydantic.ValidationError names each field that does not fit."""
        return cls.model_validate(data)


class LocalObjectReference(WireModel):
    name: str = ""


class OwnerReference(WireModel):
    apiVersion: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    blockOwnerDeletion: bool | None = None


class ObjectMeta(WireModel):
    name: str = ""
    generateName: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resourceVersion: str | None = None
    generation: int | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    deletionGracePeriodSeconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    ownerReferences: list[OwnerReference] | None = None
    finalizers: list[str] | None = None

    def label(self, key: str) -> str:
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        return (self.annotations or {}).get(key, "")


class ApiObject(WireModel):
    """The base of every object; subclasses set `apiVersion` and `kind` as defaults."""

    apiVersion: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)

    @property
    def key(self) -> str:
        """`namespace/name`, or `name` without a namespace."""
        if self.metadata.namespace:
            return f"{self.metadata.namespace}/{self.metadata.name}"
        return self.metadata.name
