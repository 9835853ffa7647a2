"""Configurations of admission webhooks: their defaults, and what a webhook must say; pure.

From the reference's pkg/apis/admissionregistration. Stricter: a `service`, which nothing here
routes to, and conditions in CEL, which nothing here evaluates, are refused; a webhook without them
would be asked about other requests than its author meant. Reviews are of version v1 only.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from orch.server.strategy.base import Document, Strategy
from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.records.kinds import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from orch.wire.selectors import MAX_REQUIREMENTS, label_selector_of
from orch.wire.validation import dns1123_label_problems, dns1123_subdomain_problems

MAX_WEBHOOKS = 64  # of one configuration
MAX_RULES = 64  # of one webhook
DEFAULT_TIMEOUT_S = 10
OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT")
EVERY = "*"
REVIEW_VERSION = "v1"
_LONGEST_S = 30
_LONGEST_URL = 2048
_SCOPES = ("Cluster", "Namespaced", EVERY)
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_CHOICES = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Exact", "Equivalent"),
    "reinvocationPolicy": ("Never", "IfNeeded"),
}
_DEFAULTS: Mapping[str, Any] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "timeoutSeconds": DEFAULT_TIMEOUT_S,
}
_PEM = b"-----BEGIN CERTIFICATE-----"


def _prepare_validating(document: Document, _old: Document | None = None) -> None:
    _complete(document, _DEFAULTS)


def _prepare_mutating(document: Document, _old: Document | None = None) -> None:
    _complete(document, {**_DEFAULTS, "reinvocationPolicy": "Never"})


def _complete(document: Document, defaults: Mapping[str, Any]) -> None:
    for hook in document.get("webhooks") or ():
        for name, value in defaults.items():
            if hook.get(name) is None:
                hook[name] = value
        for name in ("namespaceSelector", "objectSelector"):
            if hook.get(name) is None:
                hook[name] = {}
        for rule in hook.get("rules") or ():
            rule["scope"] = rule.get("scope") or EVERY


def _validate(new: Document, _old: Document | None) -> Iterator[Cause]:
    hooks = new.get("webhooks") or []
    if len(hooks) > MAX_WEBHOOKS:
        yield causes.too_many("webhooks", len(hooks), MAX_WEBHOOKS)
        return
    names: set[str] = set()
    for index, hook in enumerate(hooks):
        path = f"webhooks[{index}]"
        name = hook.get("name") or ""
        yield from _name_causes(name, f"{path}.name")
        if name in names:
            yield causes.duplicate(f"{path}.name", name)
        names.add(name)
        yield from _hook_causes(hook, path)
        yield from _version_causes(hook, f"{path}.admissionReviewVersions")


def _name_causes(name: str, path: str) -> Iterator[Cause]:
    if not name:
        yield causes.required(path)
        return
    problems = list(dns1123_subdomain_problems(name))
    if not problems and name.count(".") < 2:
        problems = ["should be a domain with at least three segments separated by dots"]
    yield from causes.invalid_values(path, name, problems)


def _hook_causes(hook: Document, path: str) -> Iterator[Cause]:
    rules = hook.get("rules") or []
    if len(rules) > MAX_RULES:
        yield causes.too_many(f"{path}.rules", len(rules), MAX_RULES)
    for index, rule in enumerate(rules[:MAX_RULES]):
        yield from _rule_causes(rule, f"{path}.rules[{index}]")
    for name, choices in _CHOICES.items():
        yield from causes.unless_one_of(hook, name, choices, path)
    effects = hook.get("sideEffects")
    if effects is None:
        text = f"must specify one of {', '.join(_NO_SIDE_EFFECTS)}"
        yield causes.required(f"{path}.sideEffects", text)
    elif effects not in _NO_SIDE_EFFECTS:
        yield causes.not_supported(f"{path}.sideEffects", effects, _NO_SIDE_EFFECTS)
    seconds = hook.get("timeoutSeconds") or 0
    if not 1 <= seconds <= _LONGEST_S:
        text = f"the timeout value must be between 1 and {_LONGEST_S} seconds"
        yield causes.invalid_value(f"{path}.timeoutSeconds", seconds, text)
    for name in ("namespaceSelector", "objectSelector"):
        yield from _selector_causes(hook.get(name) or {}, f"{path}.{name}")
    if hook.get("matchConditions"):
        text = "conditions in CEL are not evaluated here: use rules and selectors"
        yield causes.forbidden(f"{path}.matchConditions", text)
    yield from _client_causes(raw.mapping(hook, "clientConfig"), f"{path}.clientConfig")


def _selector_causes(selector: Mapping[str, Any], path: str) -> Iterator[Cause]:
    parts = (selector.get(name) or () for name in ("matchLabels", "matchExpressions"))
    count = sum(map(len, parts))
    if count > MAX_REQUIREMENTS:
        yield causes.too_many(path, count, MAX_REQUIREMENTS)
        return
    try:
        label_selector_of(selector)
    except ValueError as error:
        yield causes.invalid_value(path, selector, str(error))


def _rule_causes(rule: Document, path: str) -> Iterator[Cause]:
    for name in ("operations", "apiGroups", "apiVersions"):
        values = rule.get(name) or []
        if not values:
            yield causes.required(f"{path}.{name}")
        elif len(values) > 1 and EVERY in values:
            text = f"if '{EVERY}' is present, must not specify other {name}"
            yield causes.invalid_value(f"{path}.{name}", values, text)
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in (EVERY, *OPERATIONS):
            known = (EVERY, *OPERATIONS)
            yield causes.not_supported(f"{path}.operations[{index}]", operation, known)
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield causes.required(f"{path}.apiVersions[{index}]")
    yield from _resource_causes(rule.get("resources") or [], f"{path}.resources")
    yield from causes.unless_one_of(rule, "scope", _SCOPES, path)


def _resource_causes(resources: list[str], path: str) -> Iterator[Cause]:
    if not resources:
        yield causes.required(path)
    before: set[str] = set()
    for index, text in enumerate(resources):
        if not text:
            yield causes.required(f"{path}[{index}]")
        resource, slash, part = text.partition("/")
        wider = (f"{resource}/{EVERY}", f"{EVERY}/{part}") if slash else ()
        for shown in wider:
            if shown in before:
                why = f"if '{shown}' is present, must not specify {text}"
                yield causes.invalid_value(f"{path}[{index}]", text, why)
        before.add(text)
    if len(resources) > 1 and f"{EVERY}/{EVERY}" in resources:
        text = "if '*/*' is present, must not specify other resources"
        yield causes.invalid_value(path, resources, text)
    if EVERY in resources and any("/" not in one and one != EVERY for one in resources):
        text = "if '*' is present, must not specify other resources without subresources"
        yield causes.invalid_value(path, resources, text)


def _version_causes(hook: Document, path: str) -> Iterator[Cause]:
    versions = hook.get("admissionReviewVersions") or []
    if not versions:
        yield causes.required(path, f"must specify one of {REVIEW_VERSION}")
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield causes.invalid_value(f"{path}[{index}]", version, "duplicate version")
        else:
            problems = dns1123_label_problems(version)
            yield from causes.invalid_values(f"{path}[{index}]", version, problems)
    if REVIEW_VERSION not in versions:
        text = f"must include at least one of {REVIEW_VERSION}"
        yield causes.invalid_value(path, versions, text)


def _client_causes(client: Mapping[str, Any], path: str) -> Iterator[Cause]:
    url, service = client.get("url"), client.get("service")
    if service is not None:
        text = "this server has no Services to find a webhook by: give its url"
        yield causes.forbidden(f"{path}.service", text)
    elif url is None:
        yield causes.required(f"{path}.url", "a webhook is found by its url")
    else:
        yield from causes.invalid_values(f"{path}.url", url, _url_problems(url))
    bundle = client.get("caBundle")
    if bundle and _PEM not in base64.b64decode(bundle):
        text = "unable to load root certificates: it holds no certificate in PEM"
        yield causes.invalid_value(f"{path}.caBundle", "<not shown>", text)


def _url_problems(url: str) -> Iterator[str]:
    if len(url) > _LONGEST_URL or not (url.isascii() and url.isprintable()):
        yield f"must have at most {_LONGEST_URL} characters, all of them printable ASCII"
        return
    try:
        parts = urlsplit(url)
        port_fits = parts.port != 0
    except ValueError as error:
        yield f"url must be a valid URL: {error}"
        return
    if parts.scheme != "https":
        yield "'https' is the only allowed URL scheme"
    if not parts.hostname or not port_fits:
        yield "host must be specified, with a port from 1 to 65535 if any"
    if "@" in parts.netloc:
        yield "user information is not permitted in the URL"
    for name, given in (("fragments", parts.fragment), ("query parameters", parts.query)):
        if given:
            yield f"{name} are not permitted in the URL"


STRATEGIES = (
    Strategy(
        MUTATING_WEBHOOKS,
        prepare_create=_prepare_mutating,
        prepare_update=_prepare_mutating,
        validate=_validate,
    ),
    Strategy(
        VALIDATING_WEBHOOKS,
        prepare_create=_prepare_validating,
        prepare_update=_prepare_validating,
        validate=_validate,
    ),
)
