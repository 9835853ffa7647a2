"""`orchctl patch`: change fields of an object by a strategic, merge or JSON patch.

The server applies the patch; with `--local` (to a file) or `--dry-run=client` (to the object as it
is) this command does, with the functions the server uses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orch.client.transport import PATCH_TYPES
from orch.ctl import api, changes, manifests, selection
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.manifests import Manifest
from orch.ctl.output import printing
from orch.ctl.selection import Selected
from orch.wire import raw
from orch.wire.patch.json_patch import apply_json_patch
from orch.wire.patch.merge_keys import schema_of
from orch.wire.patch.patch import apply_merge_patch
from orch.wire.patch.strategic_patch import apply_strategic_patch
from orch.wire.records import kinds

EXAMPLES = """
orchctl patch node worker-1 -p '{"spec":{"unschedulable":true}}'
orchctl patch pod web --type json -p '[{"op":"remove","path":"/metadata/labels/x"}]'
orchctl patch --local -f pod.yaml --patch-file change.yaml -o yaml
orchctl patch node worker-1 --subresource status --type merge --patch-file status.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    selection.add_words(parser, "change")
    parser.add_argument("-p", "--patch", default="", help="the patch, as JSON or YAML")
    parser.add_argument("--patch-file", default="", metavar="FILE", help="file with the patch")
    parser.add_argument("--type", choices=PATCH_TYPES, default="strategic", help="kind of patch")
    parser.add_argument("--subresource", default="", help="change this part: status, scale, …")
    parser.add_argument("--local", action="store_true", help="patch the content of the file only")
    changes.add_write(parser, "cli-patch")
    changes.add_output(parser)


def run(args: argparse.Namespace) -> int:
    if bool(args.patch) == bool(args.patch_file):
        raise WrongUsage("give the patch: either -p PATCH or --patch-file FILE")
    if args.local and not args.filename:
        raise WrongUsage("--local patches files: name one with -f")
    found = selection.require(args)
    patch = _read_patch(args)
    if args.local:
        for manifest in found:
            record = patched(manifest.record, patch, args.type)
            _show(record, _offline(manifest), "patched", args)
        return 0
    return api.run(args, partial(_patch_all, found, patch))


def _read_patch(args: argparse.Namespace) -> Any:
    source = args.patch_file or "--patch"
    text = args.patch or manifests.read_text(Path(source))
    from orch.component import yaml_file  # slow to import, and only needed for patches

    try:
        return json.loads(text)
    except RecursionError:
        raise CommandFailed(f"{source}: nested too deeply") from None
    except ValueError:
        try:
            return yaml_file.parse_yaml(text, source=source).value
        except yaml_file.YamlError as error:
            raise CommandFailed(f"the patch is neither JSON nor YAML: {error}") from None


def patched(record: Mapping[str, Any], patch: Any, kind: str) -> Any:
    """The object after a patch of kind json, merge or strategic; PatchError.

    A strategic patch of a custom resource is refused: nothing says how its lists merge.
    """
    if kind == "json":
        return apply_json_patch(record, patch)
    if kind == "merge":
        return apply_merge_patch(record, patch)
    api_version, own_kind = raw.text(record, "apiVersion"), raw.text(record, "kind")
    if not any((r.api_version, r.kind) == (api_version, own_kind) for r in kinds.RESOURCES):
        raise CommandFailed(
            f"{own_kind} of {api_version} is a custom resource, and nothing says how its lists "
            "merge: strategic patches are not supported for it, use --type merge or --type json"
        )
    return apply_strategic_patch(record, patch, schema_of(api_version, own_kind))


def _offline(manifest: Manifest) -> Resource:
    """As much of a resource as printing an object of a file takes."""
    group, _, version = raw.text(manifest.record, "apiVersion").rpartition("/")
    kind = raw.text(manifest.record, "kind")
    return Resource(group, version, "", kind.lower(), kind)


async def _patch_all(
    found: Sequence[Manifest], patch: Any, api: Api, args: argparse.Namespace
) -> int:
    selected = await selection.select(api, Discovery(api), args, found)
    return await changes.each(selected, lambda target: _patch(api, target, args, patch))


async def _patch(api: Api, target: Selected, args: argparse.Namespace, patch: Any) -> None:
    path = target.path(args.subresource)
    before = await api.read(path)
    if args.dry_run == "client":
        after = patched(before, patch, args.type)
    else:
        after = await api.send(
            "PATCH", path, patch,
            params=changes.parameters(args), content_type=PATCH_TYPES[args.type],
        )  # fmt: skip
    same = printing.as_json(before) == printing.as_json(after)
    outcome = "patched (no change)" if same else "patched"
    _show(after, target.resource, outcome, args)


def _show(record: Any, resource: Resource, word: str, args: argparse.Namespace) -> None:
    if any(raw.value(record, field) is None for field in ("apiVersion", "kind", "metadata")):
        raise CommandFailed("the patch must leave apiVersion, kind and metadata in place")
    changes.show(record, resource, word, args)
