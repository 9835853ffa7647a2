"""Translation between this service's group names and the reference system's; pure.

Clients with those names compiled in (`kubectl auth can-i`, `create role`, the Lease of `describe
node`, typed client libraries) reach the same objects: nothing is stored twice, only the names in
requests and responses change. Permissions are those of this service's own groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from orch.wire import names

Document = dict[str, Any]

OWN_BY_UPSTREAM: Mapping[str, str] = {
    "authentication.k8s.io": names.AUTHENTICATION_GROUP,
    "authorization.k8s.io": names.AUTHORIZATION_GROUP,
    "certificates.k8s.io": names.CERTIFICATES_GROUP,
    "coordination.k8s.io": names.COORDINATION_GROUP,
    "rbac.authorization.k8s.io": names.RBAC_GROUP,
    "node.k8s.io": names.NODE_GROUP,
    "admissionregistration.k8s.io": names.ADMISSION_GROUP,
    "scheduling.k8s.io": names.SCHEDULING_GROUP,
    "events.k8s.io": names.EVENTS_GROUP,
    "apiextensions.k8s.io": names.EXTENSIONS_GROUP,
}
UPSTREAM_BY_OWN: Mapping[str, str] = {own: theirs for theirs, own in OWN_BY_UPSTREAM.items()}
_UPSTREAM_LEASE_NAMESPACE = "kube-node-lease"
# The specification's names of a review's attributes, and the reference's.
REVIEW_FIELDS = {
    "resourceAttributes": "resourceAuthorizationAttributes",
    "nonResourceAttributes": "nonResourceAuthorizationAttributes",
}
_REVIEW_FIELDS_UPSTREAM = {own: theirs for theirs, own in REVIEW_FIELDS.items()}
_OWN_GROUPS = "|".join(map(re.escape, sorted(UPSTREAM_BY_OWN, key=len, reverse=True)))
# A group, optionally after its resource, with the name of the object that follows; a field of a
# review; any text in quotes.
_TEXT = r'"(?:[^"\\]++|\\.)*+"?'  # possessive: clients send it, and it may be long
_MESSAGE = re.compile(
    rf"(?P<before>(?<![\w./\[-])(?:[A-Za-z]++\.)?)(?P<group>{_OWN_GROUPS})(?![\w-]|\.\w|/(?!v\d))"
    rf"(?P<name> {_TEXT})?|\b(?P<field>{'|'.join(_REVIEW_FIELDS_UPSTREAM)})\b|(?P<text>{_TEXT})",
    re.DOTALL,
)


def own_api_version(api_version: str) -> str:
    """An API version in this service's names; others are unchanged."""
    translated: str = _api_version(api_version, OWN_BY_UPSTREAM)
    return translated


def own_namespace(namespace: str) -> str:
    """This service's namespace for Leases in place of the reference's; others are unchanged."""
    return names.NODE_LEASE_NAMESPACE if namespace == _UPSTREAM_LEASE_NAMESPACE else namespace


def names_of_namespace(namespace: str) -> tuple[str, ...]:
    """A namespace's names for clients of the reference."""
    if namespace == names.NODE_LEASE_NAMESPACE:
        return namespace, _UPSTREAM_LEASE_NAMESPACE
    return (namespace,)


def to_own(document: Document) -> Document:
    """An object of an aliased group in this service's names; the given one is unchanged."""
    translated = _translated(document, OWN_BY_UPSTREAM, REVIEW_FIELDS)
    _set(translated, "metadata", _with_own_namespace)
    _set(translated, "spec", _about_own_namespace)
    return translated


def _with_own_namespace(record: Any) -> Any:
    if not isinstance(record, dict) or not isinstance(record.get("namespace"), str):
        return record
    return {**record, "namespace": own_namespace(record["namespace"])}


def _about_own_namespace(spec: Any) -> Any:
    """The spec of a review, with this service's namespace in the attributes of its groups."""
    if not isinstance(spec, dict):
        return spec
    result = _with_own_namespace(spec)
    for name in _REVIEW_FIELDS_UPSTREAM:
        asked = result.get(name)
        if isinstance(asked, dict) and asked.get("group") in (*UPSTREAM_BY_OWN, "*"):
            result = {**result, name: _with_own_namespace(asked)}
    return result


def to_upstream(document: Document) -> Document:
    """An object of this service's group in the reference's names; the given one is unchanged."""
    return _translated(document, UPSTREAM_BY_OWN, _REVIEW_FIELDS_UPSTREAM)


def message_to_upstream(text: str) -> str:
    """A message of this service in the reference's names; names of objects are unchanged."""
    return _MESSAGE.sub(_to_upstream, text)


def _to_upstream(found: re.Match[str]) -> str:
    group, field, text = found["group"], found["field"], found["text"]
    if group:
        return f"{found['before']}{UPSTREAM_BY_OWN[group]}{found['name'] or ''}"
    if field:
        return _REVIEW_FIELDS_UPSTREAM[field]
    own = text.strip('"')
    return f'"{UPSTREAM_BY_OWN[own]}"' if own in UPSTREAM_BY_OWN else text


def through(change: Callable[[Document], Document]) -> Callable[[Document], Document]:
    """A change in the reference's names as a change of this service's object."""
    return lambda current: to_own(change(to_upstream(current)))


def _translated(
    document: Document, groups: Mapping[str, str], fields: Mapping[str, str]
) -> Document:
    """All group names in a record of these groups; malformed parts are unchanged."""
    result = dict(document)
    _set(result, "apiVersion", lambda text: _api_version(text, groups))
    _set(result, "metadata", lambda record: _with_versions(record, groups))
    _set(result, "roleRef", lambda role: _with_group(role, groups))
    _set(result, "subjects", lambda items: _each(items, lambda item: _with_group(item, groups)))
    _set(result, "rules", lambda rules: _rules(rules, groups))
    _set(result, "spec", lambda spec: _review_spec(spec, groups, fields))
    _set(result, "status", lambda status: _review_status(status, groups))
    return result


def _set(record: Document, field: str, translate: Callable[[Any], Any]) -> None:
    if field in record:
        record[field] = translate(record[field])


def _group(name: Any, groups: Mapping[str, str]) -> Any:
    return groups.get(name, name) if isinstance(name, str) else name


def _api_version(text: Any, groups: Mapping[str, str]) -> Any:
    if not isinstance(text, str) or "/" not in text:
        return text
    group, _, version = text.partition("/")
    return f"{groups.get(group, group)}/{version}"


def _with_versions(metadata: Any, groups: Mapping[str, str]) -> Any:
    """Those of owners, and of who set which field."""

    def translate(record: Any) -> Any:
        if not isinstance(record, dict) or "apiVersion" not in record:
            return record
        return {**record, "apiVersion": _api_version(record["apiVersion"], groups)}

    if not isinstance(metadata, dict):
        return metadata
    result = dict(metadata)
    for name in ("ownerReferences", "managedFields"):
        _set(result, name, lambda records: _each(records, translate))
    return result


def _each(items: Any, translate: Callable[[Any], Any]) -> Any:
    return [translate(item) for item in items] if isinstance(items, list) else items


def _with_group(record: Any, groups: Mapping[str, str]) -> Any:
    if not isinstance(record, dict) or "apiGroup" not in record:
        return record
    return {**record, "apiGroup": _group(record["apiGroup"], groups)}


def _rules(rules: Any, groups: Mapping[str, str]) -> Any:
    def translate(rule: Any) -> Any:
        if not isinstance(rule, dict) or "apiGroups" not in rule:
            return rule
        return {**rule, "apiGroups": _each(rule["apiGroups"], lambda name: _group(name, groups))}

    return _each(rules, translate)


def _review_spec(spec: Any, groups: Mapping[str, str], fields: Mapping[str, str]) -> Any:
    if not isinstance(spec, dict):
        return spec
    result = {fields.get(name, name): value for name, value in spec.items()}
    for name in (*REVIEW_FIELDS, *_REVIEW_FIELDS_UPSTREAM):
        asked = result.get(name)
        if isinstance(asked, dict) and "group" in asked:
            result[name] = {**asked, "group": _group(asked["group"], groups)}
    return result


def _review_status(status: Any, groups: Mapping[str, str]) -> Any:
    if not isinstance(status, dict) or "resourceRules" not in status:
        return status
    return {**status, "resourceRules": _rules(status["resourceRules"], groups)}
