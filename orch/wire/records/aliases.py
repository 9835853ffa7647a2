"""The reference system's names for groups that this service names differently, both ways; pure.

Clients with those names compiled in (`kubectl auth can-i`, `create role`, the Lease of `describe
node`, typed client libraries) meet the same objects under them: nothing is stored twice, only the
names in what is sent and answered change. Permissions are those of this service's own groups.
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
    "coordination.k8s.io": names.COORDINATION_GROUP,
    "rbac.authorization.k8s.io": names.RBAC_GROUP,
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
# A group, maybe after its resource, with the name of the object that follows; a field of a review;
# any text in quotes.
_TEXT = r'"(?:[^"\\]++|\\.)*+"?'  # never tried twice: it may be long, and is a client's
_SAID = re.compile(
    rf"(?P<before>(?<![\w./\[-])(?:[A-Za-z]++\.)?)(?P<group>{_OWN_GROUPS})(?![\w-]|\.\w)"
    rf"(?P<name> {_TEXT})?|\b(?P<field>{'|'.join(_REVIEW_FIELDS_UPSTREAM)})\b|(?P<text>{_TEXT})",
    re.DOTALL,
)


def own_api_version(api_version: str) -> str:
    """A group and version as this service names them; others stay as they are."""
    translated: str = _api_version(api_version, OWN_BY_UPSTREAM)
    return translated


def own_namespace(namespace: str) -> str:
    """Where this service keeps what clients look for in the reference's namespace for Leases."""
    return names.NODE_LEASE_NAMESPACE if namespace == _UPSTREAM_LEASE_NAMESPACE else namespace


def names_of_namespace(namespace: str) -> tuple[str, ...]:
    """What clients of the reference may call a namespace of this service."""
    if namespace == names.NODE_LEASE_NAMESPACE:
        return namespace, _UPSTREAM_LEASE_NAMESPACE
    return (namespace,)


def to_own(document: Document) -> Document:
    """An object of an aliased group as this service writes it; the given one is left as it is."""
    translated = _translated(document, OWN_BY_UPSTREAM, REVIEW_FIELDS)
    _set(translated, "metadata", _with_own_namespace)
    _set(translated, "spec", _about_own_namespace)
    return translated


def _with_own_namespace(record: Any) -> Any:
    if not isinstance(record, dict) or not isinstance(record.get("namespace"), str):
        return record
    return {**record, "namespace": own_namespace(record["namespace"])}


def _about_own_namespace(spec: Any) -> Any:
    """A review of what is allowed in a namespace: requests that name it so mean the own one."""
    if not isinstance(spec, dict):
        return spec
    result = _with_own_namespace(spec)
    for name in _REVIEW_FIELDS_UPSTREAM:
        asked = result.get(name)
        if isinstance(asked, dict) and asked.get("group") in (*UPSTREAM_BY_OWN, "*"):
            result = {**result, name: _with_own_namespace(asked)}
    return result


def to_upstream(document: Document) -> Document:
    """An object of an own group as the reference writes it; the given one is left as it is."""
    return _translated(document, UPSTREAM_BY_OWN, _REVIEW_FIELDS_UPSTREAM)


def said_upstream(text: str) -> str:
    """A sentence of this service in the reference's names; names of objects stay as they are."""
    return _SAID.sub(_said, text)


def _said(found: re.Match[str]) -> str:
    group, field, text = found["group"], found["field"], found["text"]
    if group:
        return f"{found['before']}{UPSTREAM_BY_OWN[group]}{found['name'] or ''}"
    if field:
        return _REVIEW_FIELDS_UPSTREAM[field]
    own = text.strip('"')
    return f'"{UPSTREAM_BY_OWN[own]}"' if own in UPSTREAM_BY_OWN else text


def through(change: Callable[[Document], Document]) -> Callable[[Document], Document]:
    """A change that was written for the reference's names, made one of the own object."""
    return lambda current: to_own(change(to_upstream(current)))


def _translated(
    document: Document, groups: Mapping[str, str], fields: Mapping[str, str]
) -> Document:
    """Everything a record of these groups says of groups; what has another form stays as it is."""
    result = dict(document)
    _set(result, "apiVersion", lambda text: _api_version(text, groups))
    _set(result, "metadata", lambda record: _with_owners(record, groups))
    _set(result, "roleRef", lambda role: _with_group(role, groups))
    _set(result, "subjects", lambda all_: _each(all_, lambda one: _with_group(one, groups)))
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


def _with_owners(metadata: Any, groups: Mapping[str, str]) -> Any:
    def one(owner: Any) -> Any:
        if not isinstance(owner, dict) or "apiVersion" not in owner:
            return owner
        return {**owner, "apiVersion": _api_version(owner["apiVersion"], groups)}

    if not isinstance(metadata, dict) or "ownerReferences" not in metadata:
        return metadata
    return {**metadata, "ownerReferences": _each(metadata["ownerReferences"], one)}


def _each(items: Any, translate: Callable[[Any], Any]) -> Any:
    return [translate(one) for one in items] if isinstance(items, list) else items


def _with_group(record: Any, groups: Mapping[str, str]) -> Any:
    if not isinstance(record, dict) or "apiGroup" not in record:
        return record
    return {**record, "apiGroup": _group(record["apiGroup"], groups)}


def _rules(rules: Any, groups: Mapping[str, str]) -> Any:
    def one(rule: Any) -> Any:
        if not isinstance(rule, dict) or "apiGroups" not in rule:
            return rule
        return {**rule, "apiGroups": _each(rule["apiGroups"], lambda name: _group(name, groups))}

    return _each(rules, one)


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
