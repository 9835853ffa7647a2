"""CustomResourceDefinitions: kinds that users define; pure.

A definition is refused by the path of what cannot be served, so that one that was taken holds in
every part. Which of its names it gets, and from when on it is served, is found out beside the
server (`orch.server.customresources`). As the reference's
pkg/apiextensions-apiserver/pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from orch.server.strategy.base import Document, Strategy, keep, keep_spec
from orch.wire import causes, jsonpath, names
from orch.wire.errors import Cause
from orch.wire.managed.field_sets import NOTHING
from orch.wire.records import aliases
from orch.wire.records.kinds import CUSTOM_RESOURCE_DEFINITIONS, RESOURCES
from orch.wire.structural import rules
from orch.wire.structural.schema import default_problems
from orch.wire.structural.validator import compile_schema
from orch.wire.validation import dns1123_label_problems, dns1123_subdomain_problems

CLEANUP = f"customresourcecleanup.{names.EXTENSIONS_GROUP}"  # the finalizer of every definition
MAX_VERSIONS = 16
MAX_COLUMNS = 32
MAX_NAMES = 32  # short names, categories
_SCOPES = ("Cluster", "Namespaced")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_OWN_GROUPS = frozenset(
    (*(resource.group for resource in RESOURCES), *aliases.OWN_BY_UPSTREAM, "metrics.k8s.io", "")
)
_OWN_DOMAIN = ".orch.io"
_PLAIN_PATH = re.compile(r"(\.[A-Za-z_][\w-]*)+")
_PATH_MAX = 250  # characters
_UNIONS_MAX = 4  # [*,*] doubles what is found, and again at each level


def storage_version(document: Document) -> str:
    """The version in which objects are stored; "" for a definition that is not valid."""
    found = [v["name"] for v in document["spec"].get("versions") or () if v.get("storage")]
    return found[0] if found else ""


def _complete(document: Document) -> None:
    empty = {"group": "", "scope": "", "versions": []}
    spec = document["spec"] = {**empty, **(document.get("spec") or {})}
    given = spec.get("names") or {}
    kind = given.get("kind") or ""
    made = {"plural": "", "kind": "", "singular": kind.lower(), "listKind": f"{kind}List"}
    spec["names"] = {**made, **{name: value for name, value in given.items() if value}}
    spec.setdefault("conversion", {"strategy": "None"})
    if spec.get("preserveUnknownFields") is False:
        del spec["preserveUnknownFields"]


def _prepare_create(document: Document) -> None:
    _complete(document)
    metadata = document["metadata"]
    metadata["generation"] = 1
    held = metadata.get("finalizers") or []
    metadata["finalizers"] = [*held, *(() if CLEANUP in held else (CLEANUP,))]
    document["status"] = {"storedVersions": [storage_version(document)]}


def _prepare_update(new: Document, old: Document) -> None:
    _complete(new)
    keep(new, old, "status")
    metadata = new["metadata"]
    if not metadata.get("deletionTimestamp") and CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    if new["spec"] == old["spec"]:
        return
    metadata["generation"] = (old["metadata"].get("generation") or 0) + 1
    status = new.get("status") or {}
    stored, version = status.get("storedVersions") or [], storage_version(new)
    if version and version not in stored:
        new["status"] = {**status, "storedVersions": [*stored, version]}


# ---- what is refused


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    spec = new["spec"]
    before = old["spec"] if old else None
    if spec != before:
        yield from _spec_causes(new, before)
    defined = [version["name"] for version in spec["versions"]]
    stored = (new.get("status") or {}).get("storedVersions") or []
    if not stored:
        yield causes.required("status.storedVersions", "must have at least one stored version")
    elif storage_version(new) not in stored:
        text = f"must have the storage version {storage_version(new)}"
        yield causes.invalid_value("status.storedVersions", stored, text)
    for index, version in enumerate(stored):
        if version not in defined:
            text = "must appear in spec.versions"
            yield causes.invalid_value(f"status.storedVersions[{index}]", version, text)


def _spec_causes(new: Document, before: Document | None) -> Iterator[Cause]:
    spec = new["spec"]
    group, given = spec["group"], spec["names"]
    wanted = f"{given['plural']}.{group}"
    if new["metadata"].get("name") != wanted:
        text = f'must be spec.names.plural+"."+spec.group: {wanted}'
        yield causes.invalid_value("metadata.name", new["metadata"].get("name"), text)
    yield from causes.invalid_values("spec.group", group, dns1123_subdomain_problems(group))
    if "." not in group:
        text = "should be a domain with at least one dot"
        yield causes.invalid_value("spec.group", group, text)
    if group in _OWN_GROUPS or group.endswith(_OWN_DOMAIN):
        yield causes.forbidden("spec.group", f"{group} has kinds of the server itself")
    if spec["scope"] not in _SCOPES:
        yield causes.not_supported("spec.scope", spec["scope"], _SCOPES)
    if spec["conversion"]["strategy"] != "None":
        text = "Webhook" if spec["conversion"]["strategy"] == "Webhook" else "another strategy"
        text = f"{text} is not served: versions are converted by their apiVersion alone"
        yield causes.forbidden("spec.conversion.strategy", text)
    if spec.get("preserveUnknownFields"):
        text = f"must be false: set {rules.PRESERVE} in the schema"
        yield causes.invalid_value("spec.preserveUnknownFields", True, text)
    yield from _name_causes(given)
    if before and given["kind"] != before["names"]["kind"]:
        yield causes.invalid_value("spec.names.kind", given["kind"], "field is immutable")
    for name in ("group", "scope"):
        if before and spec[name] != before[name]:
            yield causes.invalid_value(f"spec.{name}", spec[name], "field is immutable")
    yield from _version_causes(spec["versions"], before)


def _name_causes(given: Document) -> Iterator[Cause]:
    for name in ("plural", "singular"):
        path = f"spec.names.{name}"
        yield from causes.invalid_values(path, given[name], dns1123_label_problems(given[name]))
    for name in ("kind", "listKind"):
        text = given[name]
        problems = dns1123_label_problems(text.lower())
        yield from causes.invalid_values(f"spec.names.{name}", text, problems)
    if given["listKind"] == given["kind"]:
        text = "kind and listKind may not be the same"
        yield causes.invalid_value("spec.names.listKind", given["listKind"], text)
    for name in ("shortNames", "categories"):
        listed = given.get(name) or []
        if len(listed) > MAX_NAMES:
            yield causes.too_many(f"spec.names.{name}", len(listed), MAX_NAMES)
        for index, text in enumerate(listed[:MAX_NAMES]):
            at = f"spec.names.{name}[{index}]"
            yield from causes.invalid_values(at, text, dns1123_label_problems(text))


def _version_causes(versions: list[Document], before: Document | None) -> Iterator[Cause]:
    path = "spec.versions"
    if len(versions) > MAX_VERSIONS:
        yield causes.too_many(path, len(versions), MAX_VERSIONS)
        return
    listed = [version["name"] for version in versions]
    if len(set(listed)) != len(listed):
        yield causes.invalid_value(path, listed, "must contain unique version names")
    if sum(1 for version in versions if version["storage"]) != 1:
        text = "must have exactly one version marked as storage version"
        yield causes.invalid_value(path, listed, text)
    if not any(version["served"] for version in versions):
        yield causes.invalid_value(path, listed, "must have a version that is served")
    known = {version["name"]: version for version in (before or {}).get("versions") or ()}
    for index, version in enumerate(versions):
        at = f"{path}[{index}]"
        problems = dns1123_label_problems(version["name"])
        yield from causes.invalid_values(f"{at}.name", version["name"], problems)
        if version != known.get(version["name"]):
            yield from _one_version(version, at)


def _one_version(version: Document, path: str) -> Iterator[Cause]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    at = f"{path}.schema.openAPIV3Schema"
    if schema is None:
        yield causes.required(at, "schemas are required")
    else:
        found = [*rules.violations(schema, at)]
        yield from found or chain(_uncompiled(schema, at), default_problems(schema, at))
    columns = version.get("additionalPrinterColumns") or []
    if len(columns) > MAX_COLUMNS:
        yield causes.too_many(f"{path}.additionalPrinterColumns", len(columns), MAX_COLUMNS)
    for index, column in enumerate(columns[:MAX_COLUMNS]):
        yield from _column_causes(column, f"{path}.additionalPrinterColumns[{index}]")
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale_causes(scale, f"{path}.subresources.scale")


def _uncompiled(schema: Document, path: str) -> Iterator[Cause]:
    try:
        compile_schema(schema)
    except ValueError as error:
        yield causes.invalid_value(path, "object", str(error).partition("\n")[0])


def _column_causes(column: Document, path: str) -> Iterator[Cause]:
    if not column["name"]:
        yield causes.required(f"{path}.name")
    if column["type"] not in _COLUMN_TYPES:
        yield causes.not_supported(f"{path}.type", column["type"], _COLUMN_TYPES)
    text = column["jsonPath"]
    if len(text) > _PATH_MAX or ".." in text or text.count(",") > _UNIONS_MAX:
        why = f"may have {_PATH_MAX} characters, {_UNIONS_MAX} commas, and no recursive descent"
        yield causes.invalid_value(f"{path}.jsonPath", text, why)
        return
    try:
        jsonpath.parse(f"{{{text}}}")
    except jsonpath.JsonPathError as error:
        yield causes.invalid_value(f"{path}.jsonPath", text, str(error))


def _scale_causes(scale: Document, path: str) -> Iterator[Cause]:
    roots: dict[str, tuple[str, ...]] = {
        "specReplicasPath": (".spec.",),
        "statusReplicasPath": (".status.",),
        "labelSelectorPath": (".spec.", ".status."),
    }
    for name, allowed in roots.items():
        text: Any = scale.get(name)
        if text is None:
            continue
        if len(text) > _PATH_MAX or not _PLAIN_PATH.fullmatch(text):
            why = "should be a json path in dot notation: .spec.replicas"
            yield causes.invalid_value(f"{path}.{name}", text, why)
        elif not text.startswith(allowed):
            why = f"should be a json path under {' or '.join(allowed)}"
            yield causes.invalid_value(f"{path}.{name}", text, why)


STRATEGY = Strategy(
    CUSTOM_RESOURCE_DEFINITIONS,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=keep_spec,
    validate=_validate,
    is_costly=True,
    qualifies_finalizers=False,
    kept_by_status={"f:spec": NOTHING, "f:metadata": NOTHING},
)
