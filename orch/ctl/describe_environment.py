"""The environment of a container in the text of `orchctl describe pod`; pure.

Of values that come from elsewhere it tells where from, and those that follow from the pod itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch.ctl import amounts, sheet
from orch.ctl.amounts import Amount
from orch.wire import raw
from orch.wire.tables.layout import NONE

Record = Mapping[str, Any]
_FROM_POD = {"metadata.name": "name", "metadata.namespace": "namespace"}
_ONE = amounts.read(1)
_OF_NODE = ("limits.cpu", "limits.memory")  # unlimited is what the node has


def lines(pod: Record, container: Record) -> list[str]:
    variables = [
        line for v in raw.records(container, "env") for line in _variable(pod, container, v)
    ]
    sources = [_source(source) for source in raw.records(container, "envFrom")]
    return [
        *([sheet.line("Environment Variables from:", level=2), *sources] if sources else []),
        *(
            [sheet.line("Environment:", level=2), *variables]
            if variables
            else [sheet.field("Environment", NONE, 2)]
        ),
    ]


def _source(source: Record) -> str:
    kind, member = (
        ("Secret", "secretRef") if "secretRef" in source else ("ConfigMap", "configMapRef")
    )
    prefix = raw.text(source, "prefix")
    told = f"{kind} with prefix '{prefix}'" if prefix else kind
    reference = raw.mapping(source, member)
    return sheet.line(raw.text(reference, "name"), told, _optional(reference), level=3)


def _optional(reference: Record) -> str:
    return f"Optional: {str(raw.value(reference, 'optional') is True).lower()}"


def _variable(pod: Record, container: Record, variable: Record) -> list[str]:
    name, origin = raw.text(variable, "name"), raw.mapping(variable, "valueFrom")
    if not origin:
        first, *more = raw.text(variable, "value").split("\n")
        return [sheet.field(name, first, 3), *(sheet.line("", text, level=3) for text in more)]
    if field := raw.mapping(origin, "fieldRef"):
        path = raw.text(field, "fieldPath")
        value = raw.text(pod, "metadata", _FROM_POD[path]) if path in _FROM_POD else ""
        return [sheet.field(name, f"{value} ({raw.text(field, 'apiVersion')}:{path})", 3)]
    if field := raw.mapping(origin, "resourceFieldRef"):
        return [
            sheet.field(name, f"{_amount(container, field)} ({raw.text(field, 'resource')})", 3)
        ]
    for member, told in (("secretKeyRef", "in secret"), ("configMapKeyRef", "of config map")):
        if reference := raw.mapping(origin, member):
            key, owner = raw.text(reference, "key"), raw.text(reference, "name")
            value = f"<set to the key '{key}' {told} '{owner}'>"
            return [sheet.line(f"{name}:", value, _optional(reference), level=3)]
    return []


def _amount(container: Record, field: Record) -> str:
    """How much of a resource the container asks for, in units of the divisor, rounded up."""
    resource = raw.text(field, "resource")
    part, _, name = resource.partition(".")
    if part not in ("limits", "requests"):
        return ""
    found = amounts.amounts(
        {
            "wanted": raw.value(container, "resources", part, name) or 0,
            "divisor": raw.value(field, "divisor") or 0,
        }
    )
    wanted, divisor = found.get("wanted", Amount()), found.get("divisor", Amount())
    if not divisor.value:
        divisor = _ONE
    if name == "cpu":
        shown = str(-(-wanted.milli // divisor.milli))
    else:
        shown = str(-(-wanted.whole // divisor.whole))
    return "node allocatable" if shown == "0" and resource in _OF_NODE else shown
