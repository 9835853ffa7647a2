"""The variables of a container's environment, and what their values come from.

Fields of the pod and amounts serve files of volumes as well.
"""

from __future__ import annotations

from orch.wire.records.meta import WireModel


class FieldRef(WireModel):
    apiVersion: str | None = None
    fieldPath: str


class ResourceFieldRef(WireModel):
    containerName: str | None = None  # of a volume's item; in a variable: its own container
    resource: str  # limits.cpu, requests.memory, …
    divisor: str | int | None = None


class KeySelector(WireModel):
    name: str = ""  # of a ConfigMap or Secret in the pod's namespace
    key: str
    optional: bool | None = None


class FileKeySelector(WireModel):
    """A line of a file that an init container wrote into an emptyDir."""

    volumeName: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvVarSource(WireModel):
    fieldRef: FieldRef | None = None
    resourceFieldRef: ResourceFieldRef | None = None
    configMapKeyRef: KeySelector | None = None
    secretKeyRef: KeySelector | None = None
    fileKeyRef: FileKeySelector | None = None


class EnvObjectRef(WireModel):
    name: str = ""
    optional: bool | None = None


class EnvFromSource(WireModel):
    """Every value of an object becomes a variable, its name after the prefix."""

    prefix: str | None = None
    configMapRef: EnvObjectRef | None = None
    secretRef: EnvObjectRef | None = None


class EnvVar(WireModel):
    name: str
    value: str | None = None
    valueFrom: EnvVarSource | None = None
