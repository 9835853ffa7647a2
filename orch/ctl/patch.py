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

from orch.component import yamlfile
from orch.ctl import changes, manifests, printing, session, targets
from orch.ctl.api import PATCH_TYPES, Api
from orch.ctl.discovery import Discovery, Resource
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.manifests import Manifest
from orch.wire import raw
from orch.wire.merge_keys import schema_of
from orch.wire.patch import apply_json_patch, apply_merge_patch, apply_strategic_patch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TYPE[/NAME] [NAME]", help="what to change")
    parser.add_argument("-f", "--filename", action="append", default=[], help="objects of files")
    parser.add_argument("-p", "--patch", default="", help="the patch, as JSON or YAML")
    parser.add_argument("--patch-file", default="", metavar="FILE", help="file with the patch")
    parser.add_argument(
        "--type", choices=("json", "merge", "strategic"), default="strategic", help="kind of patch"
    )
    parser.add_argument("--subresource", default="", help="change this part: status, scale, …")
    parser.add_argument("--local", action="store_true", help="change the file's content only")
    parser.add_argument("--show-managed-fields", action="store_true", help="show who set what")
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-patch")


def run(args: argparse.Namespace) -> int:
    if bool(args.patch) == bool(args.patch_file):
        raise WrongUsage("give the patch: either -p PATCH or --patch-file FILE")
    if bool(args.words) == bool(args.filename):
        raise WrongUsage("say what to change: either TYPE NAME or -f FILE")
    patch = _read_patch(args)
    found = manifests.read(args.filename) if args.filename else []
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
    try:
        return json.loads(text)
    except RecursionError:
        raise CommandFailed(f"{source}: nested too deeply") from None
    except ValueError:
        try:
            return yamlfile.parse_yaml(text, source=source).value
        except yamlfile.YamlError as error:
            raise CommandFailed(f"the patch is neither JSON nor YAML: {error}") from None


def patched(record: Mapping[str, Any], patch: Any, kind: str) -> Any:
    """The object after a patch of kind json, merge or strategic; PatchError."""
    if kind == "json":
        return apply_json_patch(record, patch)
    if kind == "merge":
        return apply_merge_patch(record, patch)
    schema = schema_of(raw.text(record, "apiVersion"), raw.text(record, "kind"))
    return apply_strategic_patch(record, patch, schema)


def _patch_files(found: Sequence[Manifest], args: argparse.Namespace, patch: Any) -> int:
    if not found:
        raise WrongUsage("--local changes files: name one with -f")
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
    async def change(place: tuple[Resource, str]) -> None:
        await _patch(api, *place, args, patch)

    return await changes.each(await _paths(found, api, args), change)


async def _paths(
    found: Sequence[Manifest], api: Api, args: argparse.Namespace
) -> list[tuple[Resource, str]]:
    discovery = Discovery(api)
    if args.words:
        named = await targets.find_named(discovery, args.words)
        return [(t.resource, t.path(api.namespace, args.subresource)) for t in named]
    paths = []
    for manifest in found:
        resource = await manifests.resource_of(manifest, discovery)
        placed = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
        namespace = raw.text(placed.record, "metadata", "namespace")
        paths.append((resource, resource.path(namespace, placed.name, args.subresource)))
    return paths


async def _patch(
    api: Api, resource: Resource, path: str, args: argparse.Namespace, patch: Any
) -> None:
    before = await api.get(path)
    if args.dry_run == "client":
        after = patched(before, patch, args.type)
    else:
        after = await api.send(
            "PATCH", path, patch,
            params=changes.parameters(args), content_type=PATCH_TYPES[args.type],
        )  # fmt: skip
    same = printing.canonical(before) == printing.canonical(after)
    _show(after, resource, "patched (no change)" if same else "patched", args)


def _show(record: Any, resource: Resource, word: str, args: argparse.Namespace) -> None:
    if not isinstance(record, dict):
        raise CommandFailed(
            "the patch leaves no object: it must keep apiVersion, kind and metadata"
        )
    shown = record if args.show_managed_fields else printing.unmanaged(record)
    printing.print_object(shown, resource, args.output, changes.done(word, args))
