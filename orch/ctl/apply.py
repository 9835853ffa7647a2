"""`orchctl apply -f`: create what is missing, change what differs, leave alone what others set."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from orch.ctl import changes, manifests, session, threeway
from orch.ctl.api import PATCH_TYPES, Api
from orch.ctl.discovery import Resource
from orch.ctl.manifests import Manifest
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import ANNOTATION_LAST_APPLIED
from orch.wire.patch.patch import create_merge_patch

_ATTEMPTS = 5  # when someone else writes between our reading and our writing


EXAMPLES = """
orchctl apply -f pod.yaml
orchctl apply -f manifests/ --dry-run=server
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    manifests.add_filename(parser, required=True)
    changes.add_validate(parser)
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-apply")


def run(args: argparse.Namespace) -> int:
    return session.run(args, partial(_apply_all, manifests.named(args)))


async def _apply_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def apply(manifest: Manifest, resource: Resource) -> tuple[dict[str, Any], str]:
        manifest.require_name()
        return await _apply(api, resource, _annotated(manifest.record), args)

    return await changes.each_manifest(found, apply, api, args)


async def _apply(
    api: Api, resource: Resource, wanted: dict[str, Any], args: argparse.Namespace
) -> tuple[dict[str, Any], str]:
    """The object afterwards, and the word for what happened to it."""
    namespace = raw.text(wanted, "metadata", "namespace")
    path = resource.path(namespace, raw.text(wanted, "metadata", "name"))
    params = changes.parameters(args, strict=True)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            live = await api.find(path)
            if live is None:
                if args.dry_run == "client":
                    return wanted, "created"
                where = resource.path(namespace)
                return await api.send("POST", where, wanted, params=params), "created"
            return await _change(api, path, live, wanted, params, local=args.dry_run == "client")
        except ApiError as error:
            if error.reason not in ("Conflict", "AlreadyExists") or attempt == _ATTEMPTS:
                raise
    raise AssertionError("every attempt returns or raises")


async def _change(
    api: Api,
    path: str,
    live: dict[str, Any],
    wanted: dict[str, Any],
    params: dict[str, str],
    *,
    local: bool,
) -> tuple[dict[str, Any], str]:
    after = threeway.applied(live, _last_applied(live), wanted)
    patch = create_merge_patch(live, after)
    if not patch:
        return live, "unchanged"
    if local:
        return after, "configured"
    # Lists are sent whole: only the object they were computed from may be changed by them.
    patch.setdefault("metadata", {})["resourceVersion"] = live["metadata"]["resourceVersion"]
    content_type = PATCH_TYPES["merge"]
    record = await api.send("PATCH", path, patch, params=params, content_type=content_type)
    return record, "configured"


def _annotated(record: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the annotation that remembers what was applied."""
    metadata = raw.mapping(record, "metadata")
    others = {
        key: value
        for key, value in raw.mapping(metadata, "annotations").items()
        if key != ANNOTATION_LAST_APPLIED
    }
    plain = {**record, "metadata": {**metadata, "annotations": others}}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {
        **record,
        "metadata": {**metadata, "annotations": {**others, ANNOTATION_LAST_APPLIED: text}},
    }


def _last_applied(live: Mapping[str, Any]) -> dict[str, Any]:
    text = raw.text(live, "metadata", "annotations", ANNOTATION_LAST_APPLIED)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = {}  # damaged by hand: then nothing is known of the last time
    return found if isinstance(found, dict) else {}
