"""`orchctl patch`: change fields of an object by a strategic, merge or JSON patch.

The patch is applied by the server; with `--local` (a file) or `--dry-run=client` (the object as it
stands) by this command, with the same functions the server uses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orch.ctl import changes, choosing, manifests, printing, session
from orch.ctl.api import PATCH_TYPES, Api
from orch.ctl.choosing import Chosen
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.manifests import Manifest
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
    parser.add_argument("words", nargs="*", metavar="TYPE[/NAME] [NAME]", help="what to change")
    manifests.add_filename(parser)
    parser.add_argument("-p", "--patch", default="", help="the patch, as JSON or YAML")
    parser.add_argument("--patch-file", default="", metavar="FILE", help="file with the patch")
    parser.add_argument(
        "--type", choices=("json", "merge", "strategic"), default="strategic", help="kind of patch"
    )
    parser.add_argument("--subresource", default="", help="change this part: status, scale, …")
    parser.add_argument("--local", action="store_true", help="change the file's content only")
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-patch")


def run(args: argparse.Namespace) -> int:
    if bool(args.patch) == bool(args.patch_file):
        raise WrongUsage("give the patch: either -p PATCH or --patch-file FILE")
    if args.local and not args.filename:
        raise WrongUsage("--local changes files: name one with -f")
    found = choosing.require(args, args.words)
    patch = _read_patch(args)
    if args.local:
        return _patch_files(found, args, patch)
    return session.run(args, partial(_patch_all, found, patch))


def _read_patch(args: argparse.Namespace) -> Any:
    text, source = args.patch, "--patch"
    if args.patch_file:
        source = args.patch_file
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise CommandFailed(f"cannot read {source}: {why}") from None
    from orch.component import yaml_file  # slow to import, and needed for patches only

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

    A strategic patch of a custom resource is refused: nobody knows how its lists merge.
    """
    if kind == "json":
        return apply_json_patch(record, patch)
    if kind == "merge":
        return apply_merge_patch(record, patch)
    api_version, own_kind = raw.text(record, "apiVersion"), raw.text(record, "kind")
    if not any((r.api_version, r.kind) == (api_version, own_kind) for r in kinds.RESOURCES):
        raise CommandFailed(
            f"{own_kind} of {api_version} is a custom resource, and how its lists merge is not "
            "known: strategic patches are not supported for it, use --type merge or --type json"
        )
    return apply_strategic_patch(record, patch, schema_of(api_version, own_kind))


def _patch_files(found: Sequence[Manifest], args: argparse.Namespace, patch: Any) -> int:
    for manifest in found:
        _show(patched(manifest.record, patch, args.type), _offline(manifest), "patched", args)
    return 0


def _offline(manifest: Manifest) -> Resource:
    """As much of a resource as printing an object of a file takes."""
    group, _, version = raw.text(manifest.record, "apiVersion").rpartition("/")
    kind = raw.text(manifest.record, "kind")
    return Resource(group, version, "", kind.lower(), kind, False, (), ())


async def _patch_all(
    found: Sequence[Manifest], patch: Any, api: Api, args: argparse.Namespace
) -> int:
    async def change(chosen: Chosen) -> None:
        await _patch(api, chosen, args, patch)

    listed = await choosing.choose(api, Discovery(api), args, args.words, found)
    return await changes.each(listed, change)


async def _patch(api: Api, chosen: Chosen, args: argparse.Namespace, patch: Any) -> None:
    path = chosen.resource.path(chosen.namespace, chosen.name, args.subresource)
    before = await api.read(path)
    if args.dry_run == "client":
        after = patched(before, patch, args.type)
    else:
        after = await api.send(
            "PATCH", path, patch,
            params=changes.parameters(args), content_type=PATCH_TYPES[args.type],
        )  # fmt: skip
    same = printing.canonical(before) == printing.canonical(after)
    _show(after, chosen.resource, "patched (no change)" if same else "patched", args)


def _show(record: Any, resource: Resource, word: str, args: argparse.Namespace) -> None:
    if any(raw.value(record, field) is None for field in ("apiVersion", "kind", "metadata")):
        raise CommandFailed(
            "the patch leaves no object: it must keep apiVersion, kind and metadata"
        )
    changes.show(record, resource, word, args)
