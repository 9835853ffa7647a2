"""The isolation that a pod asks for: what agents would drop is refused; pure.

No pod runs with less isolation than it asks for. A field of a security context is therefore known
to the records, and applied by the agent; without effect; or refused by its path, misspelt ones too.
Rules and texts are the reference's where it has any (K:pkg/apis/core/validation). What only a node
can tell (AppArmor, the handlers of its runtime) is checked in `nodeagent.pods.spec.isolation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orch.wire import causes, names
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import document_places
from orch.wire.records.fields import shapes_of
from orch.wire.records.meta import WireModel
from orch.wire.records.pods import PodSecurityContext, SecurityContext
from orch.wire.validation import descending_path_problems, dns1123_subdomain_problems

Document = Mapping[str, Any]

_NO_USER_NAMESPACE = "agents cannot give a pod a user namespace"
_REFUSED = {
    "hostUsers": f"{_NO_USER_NAMESPACE}; leave it out, or set it to true",
    "procMount": f"only Default is possible: Unmasked needs hostUsers: false, and "
    f"{_NO_USER_NAMESPACE}",
    "resources": "agents do not bound a pod as a whole; bound each of its containers",
    "seLinuxOptions": "agents do not apply SELinux labels; leave it out",
    "windowsOptions": "pods run on Linux; leave it out",
}
_UNKNOWN = "there is no such field, so no agent would apply it; correct its name or leave it out"
_NOTHING: tuple[Any, ...] = (None, "", {}, [])
# Values that change nothing, of fields that the records do not have.
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {"hostUsers": (True,), "procMount": ("Default",)}
_ONE_OF = {  # how to do what is done or refused in any case
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}
_OF_PODS = ("hostUsers", "resources")

_ID_MAX = 2**31 - 1  # a larger one is cut to 32 bits by some runtimes, where it may be root's
_IDS = ("runAsUser", "runAsGroup", "fsGroup")
_GROUP_POLICIES = ("Merge", "Strict")
_PROFILE_NAMES = ("", "runtime/default", "unconfined")  # in annotations
_OF_HOST = "localhost/"
_SHOWN_MAX = 100
_SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}")
_SYSCTL_MAX = 253
_SYSCTL_TEXT = f"must have at most {_SYSCTL_MAX} characters and match regex ^{_SYSCTL.pattern}$"
_SWAPPED = str.maketrans("./", "/.")  # the two ways to write a name
_OF_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_PROFILE_TYPES = _LOCALHOST, _, _ = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_causes(spec: Document) -> Iterator[Cause]:
    """What is wrong with the isolation of the pod as a whole."""
    yield from _refused({name: spec.get(name) for name in _OF_PODS}, "spec")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield causes.invalid_value("spec.securityContext.shareProcessNamespace", True, text)
    if name := spec.get("runtimeClassName"):
        for problem in dns1123_subdomain_problems(name):
            yield causes.invalid_value("spec.runtimeClassName", name, problem)
    context, path = spec.get("securityContext") or {}, "spec.securityContext"
    yield from _context_causes(context, path, PodSecurityContext)
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id_causes(group, f"{path}.supplementalGroups[{index}]")
    yield from causes.unless_one_of(context, "supplementalGroupsPolicy", _GROUP_POLICIES, path)
    if context.get("sysctls"):
        yield from _sysctl_causes(spec, context, f"{path}.sysctls")


def container_causes(container: Document, path: str) -> Iterator[Cause]:
    """What is wrong with the isolation of a container of any list."""
    context, path = container.get("securityContext") or {}, f"{path}.securityContext"
    yield from _context_causes(context, path, SecurityContext)
    if context.get("allowPrivilegeEscalation") is not False:
        return
    text = "cannot set `allowPrivilegeEscalation` to false and"
    if context.get("privileged"):
        yield causes.invalid_value(path, context, f"{text} `privileged` to true")
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        yield causes.invalid_value(path, context, f"{text} `capabilities.Add` CAP_SYS_ADMIN")


def annotation_causes(new: Document, old: Document) -> Iterator[Cause]:
    """Forbidden changes: a container that restarts would run with another profile."""
    changed = {key for key, _ in {*new.items()} ^ {*old.items()}} if new != old else ()
    for key in sorted(changed):
        if key.startswith(names.ANNOTATION_APPARMOR_PREFIX):
            may_not = "remove or update" if key in old else "add"
            text = f"may not {may_not} AppArmor annotations"
            yield causes.forbidden(f"metadata.annotations[{key}]", text)


def created_annotation_causes(annotations: Document, spec: Document) -> Iterator[Cause]:
    """What is wrong with the annotations that older clients choose AppArmor profiles by."""
    chosen = [key for key in annotations if key.startswith(names.ANNOTATION_APPARMOR_PREFIX)]
    known = {container.get("name") for _, container in document_places(spec)} if chosen else ()
    for key in chosen:
        name, profile = key.removeprefix(names.ANNOTATION_APPARMOR_PREFIX), annotations[key]
        at = causes.at_key("metadata.annotations", key)
        if name not in known:
            yield causes.invalid_value(at, name, "container not found")
        if profile not in _PROFILE_NAMES and not profile.startswith(_OF_HOST):
            text = f'invalid AppArmor profile name: "{profile[:_SHOWN_MAX]}"'
            yield causes.invalid_value(at, profile, text)


def _sysctl_causes(spec: Document, context: Document, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, sysctl in enumerate(context.get("sysctls") or ()):
        name, at = sysctl.get("name") or "", f"{path}[{index}].name"
        if not name:
            yield causes.required(at)
        elif len(name) > _SYSCTL_MAX or not _SYSCTL.fullmatch(name):
            yield causes.invalid_value(at, name, _SYSCTL_TEXT)
        elif name in seen:
            yield causes.duplicate(at, name)
        seen.add(name)
        if holder := _host_namespace(name, spec):
            yield causes.invalid_value(at, name, f"may not be specified when '{holder}' is true")


def _host_namespace(name: str, spec: Document) -> str:
    """The field by which the pod shares the host's value of a kernel parameter; "" for none."""
    slashed = 0 <= name.find("/") < (name.find(".") if "." in name else len(name))
    dotted = name.translate(_SWAPPED) if slashed else name
    if spec.get("hostNetwork") and dotted.startswith("net."):
        return "hostNetwork"
    return "hostIPC" if spec.get("hostIPC") and dotted.startswith(_OF_IPC) else ""


def _context_causes(context: Document, path: str, model: type[WireModel]) -> Iterator[Cause]:
    yield from _beyond(context, path, model)
    for name in _IDS:
        if context.get(name) is not None:
            yield from _id_causes(context[name], f"{path}.{name}")
    if (profile := context.get("seccompProfile")) is not None:
        yield from _profile_causes(profile, f"{path}.seccompProfile", "seccomp")
    if (profile := context.get("appArmorProfile")) is not None:
        yield from _profile_causes(profile, f"{path}.appArmorProfile", "AppArmor")


def _beyond(record: Document, path: str, model: type[WireModel]) -> Iterator[Cause]:
    """Fields that the records do not have, at any depth."""
    shapes = shapes_of(model)
    yield from _refused({k: v for k, v in record.items() if k not in shapes}, path)
    for name, value in record.items():
        below = shapes[name].record if name in shapes else None
        if below is not None and isinstance(value, dict):
            yield from _beyond(value, f"{path}.{name}", below)
        elif below is not None and isinstance(value, list):
            for index, item in enumerate(value):
                yield from _beyond(item, f"{path}.{name}[{index}]", below)


def _refused(fields: Document, path: str) -> Iterator[Cause]:
    for name, value in fields.items():
        if value in _NOTHING or value in _WITHOUT_EFFECT.get(name, ()):
            continue
        if name not in _ONE_OF:
            yield causes.forbidden(f"{path}.{name}", _REFUSED.get(name, _UNKNOWN))
        elif value not in _ONE_OF[name]:
            yield causes.not_supported(f"{path}.{name}", value, _ONE_OF[name])


def _id_causes(value: Any, path: str) -> Iterator[Cause]:
    if not (isinstance(value, int) and 0 <= value <= _ID_MAX):
        yield causes.invalid_value(path, value, f"must be between 0 and {_ID_MAX}, inclusive")


def _profile_causes(profile: Document, path: str, kind: str) -> Iterator[Cause]:
    """`kind` is `seccomp` or `AppArmor`."""
    given, name = profile.get("type"), profile.get("localhostProfile")
    at = f"{path}.localhostProfile"
    if not given:
        field = path.rpartition(".")[2]
        yield causes.required(f"{path}.type", f"type is required when {field} is set")
    elif given not in _PROFILE_TYPES:
        yield causes.not_supported(f"{path}.type", given, _PROFILE_TYPES)
    elif given != _LOCALHOST and name is not None:
        text = f"can only be set when {kind} type is Localhost"
        yield causes.invalid_value(at, name, text)
    elif given == _LOCALHOST and not name:
        yield causes.required(at, f"must be set when {kind} type is Localhost")
    elif name and kind == "AppArmor" and name != name.strip():
        yield causes.invalid_value(at, name, "must not be padded with whitespace")
    elif name and kind == "seccomp":
        yield from causes.invalid_values(at, name, descending_path_problems(name))
