"""`orchctl apply -f`: create what is missing, change what differs, keep what others set.

`applied` is the three-way merge of the file, the file as last applied, and the live object: fields
that the file no longer has are removed, fields that others set stay. Lists with merge keys are
merged by element; every other list is taken from the file. With --server-side the server merges.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orch.client.transport import APPLY_TYPE, PATCH_TYPES
from orch.ctl import api, changes, manifests
from orch.ctl.api import Api
from orch.ctl.discovery import Resource
from orch.ctl.failures import WrongUsage
from orch.ctl.manifests import Manifest
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import ANNOTATION_LAST_APPLIED
from orch.wire.patch.merge_keys import schema_of
from orch.wire.patch.patch import PatchError, create_merge_patch, equal
from orch.wire.patch.strategic_patch import (
    DELETE_PREFIX,
    ORDER_PREFIX,
    PATCH,
    Schema,
    apply_strategic_patch,
)

_NOT_APPLIED = ("status",)  # written by controllers, ignored in files
_ATTEMPTS = 5  # when someone else writes between our read and our write

EXAMPLES = """
orchctl apply -f pod.yaml
orchctl apply -f manifests/ --dry-run=server
orchctl apply -f pod.yaml --server-side --field-manager deployer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    manifests.add_filename(parser, required=True)
    changes.add_validate(parser)
    changes.add_write(parser, "cli-apply")
    changes.add_output(parser)
    parser.add_argument("--server-side", action="store_true", help="let the server merge")
    parser.add_argument(
        "--force-conflicts", action="store_true",
        help="with --server-side: take over fields that others set",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if args.force_conflicts and not args.server_side:
        raise WrongUsage("--force-conflicts only works with --server-side")
    if args.server_side and args.dry_run == "client":
        raise WrongUsage("--dry-run=client does not work with --server-side: use --dry-run=server")
    return api.run(args, partial(_apply_all, manifests.named(args)))


async def _apply_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def apply(manifest: Manifest, resource: Resource) -> tuple[dict[str, Any], str]:
        manifest.require_name()
        if args.server_side:
            return await _apply_at_server(api, resource, manifest.record, args)
        return await _apply(api, resource, _annotated(manifest.record), args)

    return await changes.each_manifest(found, apply, api, args)


async def _apply_at_server(
    api: Api, resource: Resource, wanted: dict[str, Any], args: argparse.Namespace
) -> tuple[dict[str, Any], str]:
    metadata = raw.mapping(wanted, "metadata")
    path = resource.path(raw.text(metadata, "namespace"), raw.text(metadata, "name"))
    params = changes.parameters(args) | {"force": str(args.force_conflicts).lower()}
    stored = await api.send("PATCH", path, wanted, params=params, content_type=APPLY_TYPE)
    return stored, "serverside-applied"


async def _apply(
    api: Api, resource: Resource, wanted: dict[str, Any], args: argparse.Namespace
) -> tuple[dict[str, Any], str]:
    """The object afterwards, and the word to report."""
    for remaining in reversed(range(_ATTEMPTS)):
        try:
            return await _attempt(api, resource, wanted, args)
        except ApiError as error:
            if error.reason not in ("Conflict", "AlreadyExists") or not remaining:
                raise
    raise AssertionError("every attempt returns or raises")


async def _attempt(
    api: Api, resource: Resource, wanted: dict[str, Any], args: argparse.Namespace
) -> tuple[dict[str, Any], str]:
    namespace = raw.text(wanted, "metadata", "namespace")
    path = resource.path(namespace, raw.text(wanted, "metadata", "name"))
    params, local = changes.parameters(args), args.dry_run == "client"
    live = await api.find(path)
    if live is None:
        if not local:
            wanted = await api.send("POST", resource.path(namespace), wanted, params=params)
        return wanted, "created"
    after = applied(live, _last_applied(live), wanted)
    patch = create_merge_patch(live, after)
    if not patch:
        return live, "unchanged"
    if not local:
        # Lists are sent whole: they may only change the object they were computed from.
        patch.setdefault("metadata", {})["resourceVersion"] = live["metadata"]["resourceVersion"]
        kind = PATCH_TYPES["merge"]
        after = await api.send("PATCH", path, patch, params=params, content_type=kind)
    return after, "configured"


def _annotated(record: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the annotation that records what was applied."""
    metadata = raw.mapping(record, "metadata")
    annotations = dict(raw.mapping(metadata, "annotations"))
    annotations.pop(ANNOTATION_LAST_APPLIED, None)
    plain = {**record, "metadata": {**metadata, "annotations": annotations}}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    annotations = {**annotations, ANNOTATION_LAST_APPLIED: text}
    return {**record, "metadata": {**metadata, "annotations": annotations}}


def _last_applied(live: Mapping[str, Any]) -> dict[str, Any]:
    text = raw.text(live, "metadata", "annotations", ANNOTATION_LAST_APPLIED)
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        found = {}  # edited by hand: treated as if nothing had been applied
    return found if isinstance(found, dict) else {}


def applied(
    live: Mapping[str, Any], last: Mapping[str, Any], wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """The object after applying; `last` is {} when nothing was applied before. PatchError."""
    schema = schema_of(str(wanted.get("apiVersion")), str(wanted.get("kind")))
    wanted = {key: value for key, value in wanted.items() if key not in _NOT_APPLIED}
    kept = apply_strategic_patch(dict(live), _removals(last, wanted, schema), schema)
    result = apply_strategic_patch(kept, _ordered(wanted, schema), schema)
    if not isinstance(result, dict):
        raise PatchError("the result is not an object")
    return result


def _removals(old: Mapping[str, Any], new: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """The strategic patch that removes what is in `old` but not in `new`."""
    patch: dict[str, Any] = {}
    for name, value in old.items():
        if name in _NOT_APPLIED:
            continue
        if name not in new or new[name] is None:
            patch[name] = None
        elif isinstance(value, dict) and isinstance(new[name], dict):
            if inner := _removals(value, new[name], schema.of(name)):
                patch[name] = inner
        elif isinstance(value, list) and isinstance(new[name], list):
            patch |= _list_removals(name, value, new[name], schema.of(name))
    return patch


def _list_removals(name: str, old: list[Any], new: list[Any], schema: Schema) -> dict[str, Any]:
    if schema.merge_set:
        gone = [value for value in old if not any(equal(value, other) for other in new)]
        return {DELETE_PREFIX + name: gone} if gone else {}
    if not schema.merge_key:
        return {}
    elements = [_element_removal(element, new, schema) for element in old]
    removals = [element for element in elements if element is not None]
    return {name: removals} if removals else {}


def _element_removal(element: Any, new: list[Any], schema: Schema) -> dict[str, Any] | None:
    key = schema.merge_key
    if not isinstance(element, dict) or key not in element:
        return None
    for other in new:
        if isinstance(other, dict) and equal(other.get(key), element[key]):
            inner = _removals(element, other, schema)
            return {**inner, key: element[key]} if inner else None
    return {PATCH: "delete", key: element[key]}


def _ordered(wanted: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """A file as a patch that also gives its lists the file's order."""
    patch: dict[str, Any] = {}
    for name, value in wanted.items():
        inner = schema.of(name)
        if isinstance(value, dict):
            patch[name] = _ordered(value, inner)
        elif isinstance(value, list) and inner.merges_lists:
            patch[name] = [_ordered(v, inner) if isinstance(v, dict) else v for v in value]
            key = inner.merge_key
            keyed = [{key: v.get(key)} if key and isinstance(v, dict) else v for v in value]
            patch[ORDER_PREFIX + name] = keyed
        else:
            patch[name] = value
    return patch
