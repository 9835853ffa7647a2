"""Validation of a new pod, by the API server and, of static pods, by the agent; pure.

The rules follow the reference's (K:pkg/apis/core/validation): it refuses what could never run, or
means two things at once, with the path of each field. Both programs ask here, so a manifest that an
agent runs is one that the server would take. Containers, volumes, resources and placement have
modules of their own; `isolation` has what agents here cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules import isolation, placement
from orch.wire.podrules.containers import all_causes, pod_facts
from orch.wire.podrules.resources import pod_level_causes, resource_causes
from orch.wire.podrules.volumes import volume_causes
from orch.wire.validation import (
    address_problems,
    dns1123_label_problems,
    dns1123_subdomain_problems,
    qualified_name_problems,
    search_domain_problems,
)

Document = Mapping[str, Any]

_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "preemptionPolicy": ("PreemptLowerPriority", "Never"),
}
INT32_MAX = 2**31 - 1
_NAMES = {  # fields that name something, and what they must be
    "serviceAccountName": dns1123_subdomain_problems,
    "nodeName": dns1123_subdomain_problems,
    "priorityClassName": dns1123_subdomain_problems,
    "hostname": dns1123_label_problems,
    "subdomain": dns1123_label_problems,
    "hostnameOverride": dns1123_subdomain_problems,
}
_RARE = ("dnsConfig", "hostAliases", "overhead", "readinessGates", "resourceClaims")
_SERVERS_MAX = 3
_SEARCHES_MAX = 32
_HOST_NAME_MAX = 64  # of the kernel
_SEARCH_TEXT_MAX = 2048


def creation_causes(metadata: Document, spec: Document) -> Iterator[Cause]:
    """What is wrong with a new pod: with its spec, and with what may only be set later."""
    yield from spec_causes(spec)
    if spec.get("ephemeralContainers"):
        yield causes.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        yield causes.forbidden("spec.nodeName", text)
    if annotations := metadata.get("annotations"):
        yield from isolation.created_annotation_causes(annotations, spec)


def spec_causes(spec: Document) -> Iterator[Cause]:
    """What is wrong with a spec; what is empty in it means the default."""
    valid: dict[str, Document] = {}
    if volumes := spec.get("volumes"):
        yield from volume_causes(volumes, valid)
    facts = pod_facts(spec, valid)
    yield from all_causes(spec, facts)
    if spec.get("resources"):
        yield from pod_level_causes(spec)
    for name, choices in _CHOICES.items():
        if spec.get(name):
            yield from causes.unless_one_of(spec, name, choices, "spec")
    if facts.system not in ("", "linux"):  # pod security asks less of pods for Windows
        yield causes.not_supported("spec.os.name", facts.system, ("linux",))
    for fields, rule in _PARTS:
        if not spec.keys().isdisjoint(fields):
            yield from rule(spec)
    if spec.get("dnsPolicy") == "None" or not spec.keys().isdisjoint(_RARE):
        yield from _rare_causes(spec)


def _name_causes(spec: Document) -> Iterator[Cause]:
    for name, problems in _NAMES.items():
        if value := spec.get(name):
            found = problems(value) if isinstance(value, str) else ("must be a text",)
            for problem in found:
                yield causes.invalid_value(f"spec.{name}", value, problem)
    if spec.get("hostnameOverride"):
        yield from _override_causes(spec)


def _deadline_causes(spec: Document) -> Iterator[Cause]:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not is_within(deadline, 1, INT32_MAX):
        text = f"must be between 1 and {INT32_MAX}, inclusive"
        yield causes.invalid_value("spec.activeDeadlineSeconds", deadline, text)


def _rare_causes(spec: Document) -> Iterator[Cause]:
    yield from _dns_causes(spec)
    for index, alias in enumerate(raw.records(spec, "hostAliases")):
        yield from _alias_causes(alias, f"spec.hostAliases[{index}]")
    for index, gate in enumerate(raw.records(spec, "readinessGates")):
        kind, at = raw.text(gate, "conditionType"), f"spec.readinessGates[{index}].conditionType"
        yield from causes.invalid_values(at, kind, qualified_name_problems(kind))
    overhead = raw.mapping(spec, "overhead")
    yield from resource_causes({"limits": overhead}, "spec.overhead")
    if spec.get("resourceClaims"):
        text = "agents allocate no resources dynamically; leave it out"
        yield causes.forbidden("spec.resourceClaims", text)


def _override_causes(spec: Document) -> Iterator[Cause]:
    at = "spec.hostnameOverride"
    for name in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(name):
            yield causes.forbidden(at, f"may not be specified when {name} is true")
    if len(str(spec["hostnameOverride"])) > _HOST_NAME_MAX:
        yield causes.too_long(at, f"may not be more than {_HOST_NAME_MAX} bytes")


def _dns_causes(spec: Document) -> Iterator[Cause]:
    config, path = raw.mapping(spec, "dnsConfig"), "spec.dnsConfig"
    servers, searches = _texts(config, "nameservers"), _texts(config, "searches")
    if spec.get("dnsPolicy") == "None" and not servers:
        missing = "`dnsConfig`" if not config else "at least one DNS nameserver"
        at = path if not config else f"{path}.nameservers"
        yield causes.required(at, f"must provide {missing} when `dnsPolicy` is None")
    if len(servers) > _SERVERS_MAX:
        text = f"must not have more than {_SERVERS_MAX} nameservers"
        yield causes.invalid_value(f"{path}.nameservers", servers, text)
    for index, server in enumerate(servers):
        at = f"{path}.nameservers[{index}]"
        yield from causes.invalid_values(at, server, address_problems(server))
    if len(searches) > _SEARCHES_MAX:
        text = f"must not have more than {_SEARCHES_MAX} search paths"
        yield causes.invalid_value(f"{path}.searches", searches, text)
    if len(" ".join(searches)) > _SEARCH_TEXT_MAX:
        most = f"{_SEARCH_TEXT_MAX} characters (including spaces) in the search list"
        yield causes.invalid_value(f"{path}.searches", searches, f"must not have more than {most}")
    for index, domain in enumerate(searches):
        at = f"{path}.searches[{index}]"
        yield from causes.invalid_values(at, domain, search_domain_problems(domain))
    for index, option in enumerate(raw.records(config, "options")):
        if not option.get("name"):
            yield causes.required(f"{path}.options[{index}]", "must not be empty")


def _alias_causes(alias: Document, path: str) -> Iterator[Cause]:
    address = raw.text(alias, "ip")
    yield from causes.invalid_values(f"{path}.ip", address, address_problems(address))
    for index, name in enumerate(_texts(alias, "hostnames")):
        at = f"{path}.hostnames[{index}]"
        yield from causes.invalid_values(at, name, dns1123_subdomain_problems(name))


def _texts(record: Document, name: str) -> list[str]:
    """The texts of a list in a record whose types are not known."""
    found = record.get(name)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def is_within(number: Any, least: int, most: int) -> bool:
    return isinstance(number, int) and least <= number <= most


# Rules that are asked only about a spec that has one of the fields, in the order of their causes.
_PARTS: tuple[tuple[Collection[str], Callable[[Document], Iterator[Cause]]], ...] = (
    (placement.FIELDS, placement.placement_causes),
    (isolation.POD_FIELDS, isolation.pod_causes),
    (_NAMES, _name_causes),
    (("activeDeadlineSeconds",), _deadline_causes),
)
