"""Validation of reviews, and the request that a review asks about; pure.

Rules as apiserver §2: exactly one kind of attributes; a selector that cannot be parsed never fails
the review: it is left out of the question and noted in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from orch.server.request.attributes import RequestInfo
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.records.authorization import (
    ResourceAttributes,
    SelectorAttributes,
    SelectorRequirement,
    SelfSubjectAccessReviewSpec,
    SubjectAccessReviewSpec,
)
from orch.wire.selectors import (
    MAX_LENGTH,
    MAX_REQUIREMENTS,
    parse_field_selector,
    parse_label_selector,
)
from orch.wire.validation import qualified_name_problems

RESOURCE = "spec.resourceAuthorizationAttributes"
NON_RESOURCE = "spec.nonResourceAuthorizationAttributes"
_NO_VALUES = ("Exists", "DoesNotExist")


def metadata_causes(metadata: Mapping[str, Any], *, allowed: Sequence[str] = ()) -> Iterator[Cause]:
    """A review has no metadata of its own; `allowed` are fields that its URL sets."""
    given = {key: value for key, value in metadata.items() if value}
    if given.keys() - {"managedFields", *allowed}:
        yield causes.invalid_value("metadata", given, "must be empty")


def attribute_causes(spec: SelfSubjectAccessReviewSpec) -> Iterator[Cause]:
    resource = spec.resourceAuthorizationAttributes
    non_resource = spec.nonResourceAuthorizationAttributes
    if resource is not None and non_resource is not None:
        yield causes.invalid_value(
            NON_RESOURCE,
            non_resource.to_wire(),
            "cannot be specified in combination with resourceAuthorizationAttributes",
        )
    if resource is None and non_resource is None:
        text = (
            "exactly one of nonResourceAuthorizationAttributes or "
            "resourceAuthorizationAttributes must be specified"
        )
        yield causes.invalid_value(RESOURCE, None, text)
    if resource is not None:
        yield from _selector_causes(resource.fieldSelector, f"{RESOURCE}.fieldSelector", _any_key)
        path = f"{RESOURCE}.labelSelector"
        yield from _selector_causes(resource.labelSelector, path, qualified_name_problems)


def subject_causes(spec: SubjectAccessReviewSpec) -> Iterator[Cause]:
    if not spec.user and not spec.groups:
        yield causes.invalid_value(
            "spec.user", spec.user, "at least one of user or group must be specified"
        )


def local_causes(
    spec: SelfSubjectAccessReviewSpec, namespace_names: Collection[str]
) -> Iterator[Cause]:
    """A local review is about resources of its own namespace, by any of its names."""
    if spec.nonResourceAuthorizationAttributes is not None:
        yield causes.invalid_value(
            NON_RESOURCE,
            spec.nonResourceAuthorizationAttributes.to_wire(),
            "disallowed on this kind of request",
        )
    resource = spec.resourceAuthorizationAttributes
    if resource is not None and resource.namespace not in namespace_names:
        yield causes.invalid_value(
            f"{RESOURCE}.namespace", resource.namespace, "must match metadata.namespace"
        )


def _any_key(_key: str) -> Sequence[str]:
    return ()


def _selector_causes(
    selector: SelectorAttributes | None, path: str, key_problems: Callable[[str], Sequence[str]]
) -> Iterator[Cause]:
    if selector is None:
        return
    if selector.rawSelector and selector.requirements:
        yield causes.invalid_value(
            f"{path}.rawSelector", selector.rawSelector, "may not be specified at the same time"
        )
    if not selector.rawSelector and not selector.requirements:
        yield causes.required(f"{path}.requirements", "when specified, it must not be empty")
    if len(selector.requirements) > MAX_REQUIREMENTS:
        count = len(selector.requirements)
        yield causes.too_many(f"{path}.requirements", count, MAX_REQUIREMENTS)
        return
    for index, requirement in enumerate(selector.requirements):
        at = f"{path}.requirements[{index}]"
        if not requirement.key:
            yield causes.required(f"{at}.key", "must be specified")
        for problem in key_problems(requirement.key):
            yield causes.invalid_value(f"{at}.key", requirement.key, problem)
        yield from _value_causes(requirement, at)


def _value_causes(requirement: SelectorRequirement, at: str) -> Iterator[Cause]:
    if requirement.operator in ("In", "NotIn") and not requirement.values:
        yield causes.required(
            f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"
        )
    if requirement.operator in _NO_VALUES and requirement.values:
        yield causes.forbidden(
            f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        )


def request_of(spec: SelfSubjectAccessReviewSpec) -> tuple[RequestInfo, str]:
    """The request a valid spec asks about, and a note on parts that were ignored ("": none)."""
    if spec.nonResourceAuthorizationAttributes is not None:
        asked = spec.nonResourceAuthorizationAttributes
        return RequestInfo(asked.verb, asked.path), ""
    if spec.resourceAuthorizationAttributes is None:
        raise AssertionError("the spec was not checked")
    return _resource_request(spec.resourceAuthorizationAttributes)


def _resource_request(asked: ResourceAttributes) -> tuple[RequestInfo, str]:
    fields, field_note = _as_parameter("fieldSelector", asked.fieldSelector)
    labels, label_note = _as_parameter("labelSelector", asked.labelSelector)
    info = RequestInfo(
        verb=asked.verb,
        path="",
        is_resource=True,
        group=asked.group,
        version=asked.version or "*",
        namespace=asked.namespace,
        resource=asked.resource,
        name=asked.name,
        subresource=asked.subresource,
        field_selector=fields,
        label_selector=labels,
    )
    return info, "; ".join(note for note in (field_note, label_note) if note)


def _as_parameter(name: str, selector: SelectorAttributes | None) -> tuple[str, str]:
    """The selector as the query parameter `name`, and a note on ignored parts."""
    if selector is None:
        return "", ""
    term_of, parse = _FORMS[name]
    if not selector.requirements:
        problem = _problem(selector.rawSelector, parse)
        if problem:
            return "", f"{name} ignored due to parse error: {problem}"
        return selector.rawSelector, ""
    terms = [term_of(requirement) for requirement in selector.requirements]
    note = f"{name} {'partially' if any(terms) else 'fully'} ignored: unsupported requirements"
    return ",".join(filter(None, terms)), "" if all(terms) else note


def _field_term(requirement: SelectorRequirement) -> str:
    """ "" for a requirement that a field selector cannot express."""
    sign = {"In": "=", "NotIn": "!="}.get(requirement.operator)
    if sign is None or len(requirement.values) != 1:
        return ""
    value = requirement.values[0]
    if len(value) > MAX_LENGTH:
        return ""
    for special in ("\\", ",", "="):
        value = value.replace(special, f"\\{special}")
    return f"{requirement.key}{sign}{value}"


def _label_term(requirement: SelectorRequirement) -> str:
    key, values = requirement.key, ",".join(requirement.values)
    term = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }.get(requirement.operator, "")
    return "" if _problem(term, parse_label_selector) else term


def _problem(text: str, parse: Callable[[str], object]) -> str:
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


# By parameter: a requirement as a term ("" when that is impossible), and the parser of all terms.
_FORMS: Mapping[str, tuple[Callable[[SelectorRequirement], str], Callable[[str], object]]] = {
    "fieldSelector": (_field_term, parse_field_selector),
    "labelSelector": (_label_term, parse_label_selector),
}
