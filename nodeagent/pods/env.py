"""The environment of a container: literal values, `$(VAR)` references, fields of the pod; pure.

Expansion follows the reference (`third_party/forked/golang/expansion`): `$$` is a dollar sign,
a reference to a name that is not defined stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from orch.wire.pods import Container, EnvVar, EnvVarSource, Pod

_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class SpecError(Exception):
    """The pod asks for something that cannot be built; the text names the field and the reason."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace every `$(NAME)` that `values` knows."""
    out: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0 and dollar + 1 < len(text):
        out.append(text[at:dollar])
        piece, length = _reference(text, dollar + 1, values)
        out.append(piece)
        at = dollar + 1 + length
    out.append(text[at:])
    return "".join(out)


def environment(
    container: Container, value_from: Callable[[EnvVarSource], str | None]
) -> tuple[tuple[str, str], ...]:
    """Names and values in order; the last of a repeated name wins, earlier ones can be referred to.

    `value_from` gives the value of a source, None for one it does not know; its SpecError is passed
    on.
    """
    values: dict[str, str] = {}
    for variable in container.env or ():
        values[variable.name] = _value(container, variable, values, value_from)
    return tuple(values.items())


def pod_field(pod: Pod, path: str, addresses: Mapping[str, str]) -> str:
    """The value of a downward field; `addresses` holds status.podIP, hostIP and their plurals."""
    if path in addresses:
        return addresses[path]
    meta = pod.metadata
    plain = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace or "",
        "metadata.uid": meta.uid or "",
        "spec.nodeName": pod.spec.nodeName or "",
        "spec.serviceAccountName": pod.spec.serviceAccountName or "",
    }
    if path in plain:
        return plain[path]
    if keyed := _KEYED_FIELD.fullmatch(path):
        held = meta.labels if keyed[1] == "labels" else meta.annotations
        return (held or {}).get(keyed[2], "")
    raise SpecError(f"fieldRef.fieldPath {path!r} is not a field that containers can be given")


def _reference(text: str, at: int, values: Mapping[str, str]) -> tuple[str, int]:
    """What the text after a dollar sign becomes, and how many characters of it are used."""
    if text[at] == "$":
        return "$", 1
    if text[at] != "(":
        return "$" + text[at], 1
    end = text.find(")", at)
    if end < 0:
        return "$(", 1
    name = text[at + 1 : end]
    return values.get(name, f"$({name})"), end - at + 1


def _value(
    container: Container,
    variable: EnvVar,
    values: Mapping[str, str],
    value_from: Callable[[EnvVarSource], str | None],
) -> str:
    if variable.valueFrom is None:
        return expand(variable.value or "", values)
    if (found := value_from(variable.valueFrom)) is not None:
        return found
    asked = ", ".join(variable.valueFrom.to_wire()) or "nothing"
    raise SpecError(
        f"container {container.name}: env {variable.name}: valueFrom {asked} is not supported; "
        "use fieldRef, resourceFieldRef or a literal value"
    )
