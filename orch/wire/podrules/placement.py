"""Where a pod may run: node selectors, affinities, spreading, tolerations and gates; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation). No program here
schedules pods by most of these; a scheduler that does must be able to rely on them. Only a part of
the fields has records, so their types are not taken for granted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import EFFECTS, NO_EXECUTE
from orch.wire.validation import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
)

Document = Mapping[str, Any]

FIELDS = ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulingGates")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT_MAX = 100
_OPERATORS = ("Equal", "Exists")
_WITH_VALUES, _WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")
_NUMERIC = ("Gt", "Lt")
_UNSATISFIABLE = "whenUnsatisfiable"
_ACTIONS = _STRICT, _ = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_EMPTY = "can not be empty"


def placement_causes(spec: Document) -> Iterator[Cause]:
    """What is wrong with where a pod may run."""
    if selector := spec.get("nodeSelector"):
        yield from label_causes(selector, "spec.nodeSelector")
    if spec.get("affinity"):
        yield from affinity_causes(raw.mapping(spec, "affinity"), "spec.affinity")
    yield from toleration_causes(spec)
    if spec.get("topologySpreadConstraints"):
        yield from _spread_causes(spec)
    if spec.get("schedulingGates"):
        yield from _gate_causes(spec)


def toleration_causes(spec: Document, path: str = "spec") -> Iterator[Cause]:
    """What is wrong with the `tolerations` of a pod, or of what stands at `path`."""
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        at = f"{path}.tolerations[{index}]"
        key, operator = toleration.get("key"), toleration.get("operator") or ""
        effect, value = toleration.get("effect") or "", toleration.get("value") or ""
        if key:
            yield from causes.invalid_values(f"{at}.key", key, qualified_name_problems(key))
        elif operator != "Exists":
            text = "operator must be Exists when `key` is empty"
            text += ', which means "match all values and all keys"'
            yield causes.invalid_value(f"{at}.operator", operator, text)
        if toleration.get("tolerationSeconds") is not None and effect != NO_EXECUTE:
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield causes.invalid_value(f"{at}.effect", effect, text)
        yield from causes.unless_one_of(toleration, "operator", _OPERATORS, at)
        if operator == "Exists" and value:
            text = "value must be empty when `operator` is 'Exists'"
            yield causes.invalid_value(f"{at}.operator", value, text)
        elif operator in ("", "Equal"):
            yield from causes.invalid_values(f"{at}.operator", value, label_value_problems(value))
        yield from causes.unless_one_of(toleration, "effect", EFFECTS, at)


def label_causes(labels: Document, path: str) -> Iterator[Cause]:
    """What is wrong with labels that something is chosen by."""
    for key, value in labels.items():
        yield from causes.invalid_values(path, key, qualified_name_problems(key))
        yield from _value_causes(value, path)


def _value_causes(value: Any, path: str) -> Iterator[Cause]:
    if isinstance(value, str):
        yield from causes.invalid_values(path, value, label_value_problems(value))


def affinity_causes(affinity: Document, path: str) -> Iterator[Cause]:
    """What is wrong with the affinities of a pod."""
    yield from _node_causes(raw.mapping(affinity, "nodeAffinity"), f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        terms, at = raw.mapping(affinity, name), f"{path}.{name}"
        for index, term in enumerate(raw.records(terms, _REQUIRED)):
            yield from _term_causes(term, f"{at}.{_REQUIRED}[{index}]")
        for index, choice in enumerate(raw.records(terms, _PREFERRED)):
            here = f"{at}.{_PREFERRED}[{index}]"
            yield from _weight_causes(choice, here)
            term = raw.mapping(choice, "podAffinityTerm")
            yield from _term_causes(term, f"{here}.podAffinityTerm")


def _node_causes(affinity: Document, path: str) -> Iterator[Cause]:
    if affinity.get(_REQUIRED) is not None:
        at = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = raw.records(affinity, _REQUIRED, "nodeSelectorTerms")
        if not terms:
            yield causes.required(at, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_term_causes(term, f"{at}[{index}]", strict=True)
    for index, choice in enumerate(raw.records(affinity, _PREFERRED)):
        here = f"{path}.{_PREFERRED}[{index}]"
        yield from _weight_causes(choice, here)
        term = raw.mapping(choice, "preference")
        yield from _node_term_causes(term, f"{here}.preference", strict=False)


def _weight_causes(choice: Document, path: str) -> Iterator[Cause]:
    weight = raw.number(choice, "weight")
    if not 1 <= weight <= _WEIGHT_MAX:
        yield causes.invalid_value(f"{path}.weight", weight, "must be in the range 1-100")


def _node_term_causes(term: Document, path: str, *, strict: bool) -> Iterator[Cause]:
    """`strict`: values must be those of labels."""
    for index, expression in enumerate(raw.records(term, "matchExpressions")):
        at = f"{path}.matchExpressions[{index}]"
        yield from _expression_causes(expression, at, numeric=True)
        if strict:
            yield from _values_causes(expression, at)
    for index, expression in enumerate(raw.records(term, "matchFields")):
        yield from _name_causes(expression, f"{path}.matchFields[{index}]")


def _expression_causes(expression: Document, path: str, *, numeric: bool) -> Iterator[Cause]:
    operator, values = expression.get("operator"), expression.get("values")
    at = f"{path}.values"
    if operator in _WITH_VALUES:
        if not values:
            yield causes.required(at, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _WITHOUT_VALUES:
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield causes.forbidden(at, text)
    elif numeric and operator in _NUMERIC:
        if not isinstance(values, list) or len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield causes.required(at, text)
    else:
        yield causes.invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    key = raw.text(expression, "key")
    yield from causes.invalid_values(f"{path}.key", key, qualified_name_problems(key))


def _values_causes(expression: Document, path: str) -> Iterator[Cause]:
    values = expression.get("values")
    for index, value in enumerate(values if isinstance(values, list) else ()):
        yield from _value_causes(value, f"{path}.values[{index}]")


def _name_causes(expression: Document, path: str) -> Iterator[Cause]:
    """What is wrong with a choice of nodes by name, the only field they are chosen by."""
    operator, values = expression.get("operator"), expression.get("values")
    values = values if isinstance(values, list) else []
    if operator not in _WITH_VALUES:
        yield causes.invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield causes.required(f"{path}.values", text)
    if expression.get("key") != "metadata.name":
        text = "not a valid field selector key"
        yield causes.invalid_value(f"{path}.key", expression.get("key"), text)
        return
    for index, name in enumerate(values):
        problems = dns1123_subdomain_problems(str(name))
        yield from causes.invalid_values(f"{path}.values[{index}]", name, problems)


def _term_causes(term: Document, path: str) -> Iterator[Cause]:
    for name in ("labelSelector", "namespaceSelector"):
        yield from _selector_causes(raw.mapping(term, name), f"{path}.{name}")
    namespaces = term.get("namespaces")
    for namespace in namespaces if isinstance(namespaces, list) else ():
        problems = dns1123_label_problems(str(namespace))
        yield from causes.invalid_values(f"{path}.namespace", namespace, problems)
    yield from _topology_causes(term, path)


def _topology_causes(term: Document, path: str) -> Iterator[Cause]:
    key, at = raw.text(term, "topologyKey"), f"{path}.topologyKey"
    if not key:
        yield causes.required(at, _EMPTY)
    else:
        yield from causes.invalid_values(at, key, qualified_name_problems(key))


def _selector_causes(selector: Document, path: str) -> Iterator[Cause]:
    yield from label_causes(raw.mapping(selector, "matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(raw.records(selector, "matchExpressions")):
        at = f"{path}.matchExpressions[{index}]"
        yield from _expression_causes(expression, at, numeric=False)
        yield from _values_causes(expression, at)


def _spread_causes(spec: Document) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(raw.records(spec, "topologySpreadConstraints")):
        at = f"spec.topologySpreadConstraints[{index}]"
        yield from _skew_causes(constraint, at)
        yield from _topology_causes(constraint, at)
        yield from causes.unless_given(constraint, at, _UNSATISFIABLE)
        for name, choices in (
            (_UNSATISFIABLE, _ACTIONS),
            ("nodeAffinityPolicy", _POLICIES),
            ("nodeTaintsPolicy", _POLICIES),
        ):
            yield from causes.unless_one_of(constraint, name, choices, at)
        key = raw.text(constraint, "topologyKey"), raw.text(constraint, _UNSATISFIABLE)
        if key in seen:
            shown = f"{{{key[0]}, {key[1]}}}"
            yield causes.duplicate(f"{at}.{{topologyKey, {_UNSATISFIABLE}}}", shown)
        seen.add(key)
        yield from _selector_causes(raw.mapping(constraint, "labelSelector"), f"{at}.labelSelector")


def _skew_causes(constraint: Document, path: str) -> Iterator[Cause]:
    skew, domains = raw.number(constraint, "maxSkew"), constraint.get("minDomains")
    if skew <= 0:
        yield causes.invalid_value(f"{path}.maxSkew", skew, "must be greater than 0")
    if not isinstance(domains, int):
        return
    if domains <= 0:
        yield causes.invalid_value(f"{path}.minDomains", domains, "must be greater than 0")
    if constraint.get(_UNSATISFIABLE) != _STRICT:
        text = f"can only use minDomains if {_UNSATISFIABLE}={_STRICT}"
        yield causes.invalid_value(f"{path}.minDomains", domains, text)


def _gate_causes(spec: Document) -> Iterator[Cause]:
    """A pod with gates waits: nothing may bind it to a node."""
    seen: set[str] = set()
    for index, gate in enumerate(raw.records(spec, "schedulingGates")):
        name, at = raw.text(gate, "name"), f"spec.schedulingGates[{index}]"
        yield from causes.invalid_values(at, name, qualified_name_problems(name))
        if name in seen:
            yield causes.duplicate(at, name)
        seen.add(name)
