"""The isolation that a pod asks for: what agents would drop is refused; pure.

No pod runs with less isolation than it asks for, but for labels where SELinux is off. A field of a
security context is therefore known to the records, and applied by the agent; without effect; or
refused by its path, misspelt ones too.
Rules and texts are the reference's where it has any (K:pkg/apis/core/validation). What only a node
can tell (AppArmor, the handlers of its runtime) is checked in `nodeagent.pods.spec.isolation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from orch.wire import causes, names, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import document_places
from orch.wire.records.fields import shapes_of
from orch.wire.records.isolation import PodSecurityContext, SecurityContext
from orch.wire.records.meta import WireModel
from orch.wire.validation import descending_path_problems, dns1123_subdomain_problems

Document = Mapping[str, Any]

POD_FIELDS = ("securityContext", "shareProcessNamespace", "hostUsers", "runtimeClassName")
_WINDOWS = "windowsOptions"  # without effect, and named by the agent
_LINUX = "linux"
_NOT_OF_LINUX = "windows options cannot be set for a linux pod"
_UNKNOWN = "there is no such field, so no agent would apply it; correct its name or leave it out"
_NOTHING: tuple[Any, ...] = (None, "", {}, [])
_ONE_OF = {  # how to do what is done or refused in any case
    "fsGroupChangePolicy": ("Always", "OnRootMismatch"),
    "seLinuxChangePolicy": ("MountOption", "Recursive"),
}
_OF_THE_HOST = ("hostNetwork", "hostPID", "hostIPC")  # not together with users of the pod's own
_UNMASKED = "Unmasked"
_WITH_OWN_USERS = "when `hostUsers` is false"
_PROC_MOUNTS = ("Default", _UNMASKED)

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
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield causes.invalid_value("spec.securityContext.shareProcessNamespace", True, text)
    if spec.get("hostUsers") is False:
        yield from _own_users_causes(spec)
    if name := spec.get("runtimeClassName"):
        for problem in dns1123_subdomain_problems(name):
            yield causes.invalid_value("spec.runtimeClassName", name, problem)
    context, path = spec.get("securityContext") or {}, "spec.securityContext"
    yield from _context_causes(context, path, PodSecurityContext)
    yield from _windows_causes(context, path, raw.value(spec, "os", "name") or "")
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        yield from _id_causes(group, f"{path}.supplementalGroups[{index}]")
    yield from causes.unless_one_of(context, "supplementalGroupsPolicy", _GROUP_POLICIES, path)
    if context.get("sysctls"):
        yield from _sysctl_causes(spec, context, f"{path}.sysctls")


def _own_users_causes(spec: Document) -> Iterator[Cause]:
    for name in _OF_THE_HOST:
        if spec.get(name):
            yield causes.forbidden(f"spec.{name}", _WITH_OWN_USERS)


def container_causes(
    container: Document, path: str, *, host_users: bool = True, system: str = ""
) -> Iterator[Cause]:
    """What is wrong with the isolation of a container of any list; `system` is `spec.os.name`."""
    context, path = container.get("securityContext") or {}, f"{path}.securityContext"
    yield from _context_causes(context, path, SecurityContext)
    yield from _windows_causes(context, path, system)
    yield from causes.unless_one_of(context, "procMount", _PROC_MOUNTS, path)
    if host_users and context.get("procMount") == _UNMASKED:
        text = "`hostUsers` must be false to use `Unmasked`"
        yield causes.invalid_value(f"{path}.procMount", _UNMASKED, text)
    if context.get("allowPrivilegeEscalation") is not False:
        return
    text = "cannot set `allowPrivilegeEscalation` to false and"
    if context.get("privileged"):
        yield causes.invalid_value(path, context, f"{text} `privileged` to true")
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        yield causes.invalid_value(path, context, f"{text} `capabilities.Add` CAP_SYS_ADMIN")


def _windows_causes(context: Document, path: str, system: str) -> Iterator[Cause]:
    if system == _LINUX and context.get(_WINDOWS) is not None:
        yield causes.forbidden(f"{path}.{_WINDOWS}", _NOT_OF_LINUX)


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
        elif problem := sysctl_name_problem(name):
            yield causes.invalid_value(at, name, problem)
        elif name in seen:
            yield causes.duplicate(at, name)
        seen.add(name)
        if holder := _host_namespace(name, spec):
            yield causes.invalid_value(at, name, f"may not be specified when '{holder}' is true")


def sysctl_name_problem(name: str) -> str:
    """Why this is no name of a kernel parameter; "" when it is one."""
    return "" if len(name) <= _SYSCTL_MAX and _SYSCTL.fullmatch(name) else _SYSCTL_TEXT


def sysctl_namespace(name: str) -> Literal["Net", "IPC", ""]:
    """The namespace whose parameter it is, written with dots; "" for one of the whole machine."""
    if name.startswith("net."):
        return "Net"
    return "IPC" if name.startswith(_OF_IPC) else ""


def _host_namespace(name: str, spec: Document) -> str:
    """The field by which the pod shares the host's value of a kernel parameter; "" for none."""
    slashed = 0 <= name.find("/") < (name.find(".") if "." in name else len(name))
    dotted = name.translate(_SWAPPED) if slashed else name
    holder = {"Net": "hostNetwork", "IPC": "hostIPC"}.get(sysctl_namespace(dotted), "")
    return holder if spec.get(holder) else ""


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
        if value in _NOTHING or name == _WINDOWS:
            continue
        if name not in _ONE_OF:
            yield causes.forbidden(f"{path}.{name}", _UNKNOWN)
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
