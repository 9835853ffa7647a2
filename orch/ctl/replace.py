"""`orchctl replace -f`: objects become what files say, whole; with --force they are made anew."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from orch.ctl import changes, deletion, manifests, session
from orch.ctl.api import Api
from orch.ctl.discovery import Resource
from orch.ctl.failures import WrongUsage, visible
from orch.ctl.manifests import Manifest
from orch.ctl.options import seconds
from orch.wire import raw

EXAMPLES = """
orchctl replace -f node.yaml
orchctl replace --force -f pod.yaml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    manifests.add_filename(parser, required=True)
    parser.add_argument("--force", action="store_true", help="delete first, then create")
    parser.add_argument(
        "--grace-period", type=int, metavar="SECONDS", help="with --force: time pods get to stop"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=0.0, help="with --force: longest wait; 0 is for ever"
    )
    parser.add_argument("--subresource", default="", help="replace this part: status, …")
    changes.add_validate(parser)
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-replace")


def run(args: argparse.Namespace) -> int:
    if args.force and (args.dry_run != "none" or args.subresource):
        raise WrongUsage("--force deletes the object: leave --dry-run and --subresource out")
    return session.run(args, partial(_replace_all, manifests.named(args)))


async def _replace_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def replace(manifest: Manifest, resource: Resource) -> tuple[dict[str, Any], str]:
        name = manifest.require_name()
        namespace = manifest.namespace if resource.namespaced else ""
        path = resource.path(namespace, name)
        if args.force:
            await _remove(api, path, resource, name, args)
            params = changes.parameters(args, strict=True)
            place = resource.path(namespace)
            return await api.send("POST", place, manifest.record, params=params), "replaced"
        return await _replace(api, path, manifest.record, args), "replaced"

    return await changes.each_manifest(found, replace, api, args)


async def _replace(
    api: Api, path: str, wanted: dict[str, Any], args: argparse.Namespace
) -> dict[str, Any]:
    """Put the object; a file without a resourceVersion overwrites the object as it stands."""
    live = await api.read(path)
    if args.dry_run == "client":
        return wanted
    metadata = raw.mapping(wanted, "metadata")
    if not raw.text(metadata, "resourceVersion"):
        revision = raw.text(live, "metadata", "resourceVersion")
        wanted = {**wanted, "metadata": {**metadata, "resourceVersion": revision}}
    where = f"{path}/{args.subresource}" if args.subresource else path
    return await api.send("PUT", where, wanted, params=changes.parameters(args, strict=True))


async def _remove(
    api: Api, path: str, resource: Resource, name: str, args: argparse.Namespace
) -> None:
    if await api.find(path) is None:
        return
    uid = await deletion.ask(api, path, grace_s=args.grace_period)
    if not args.output:
        print(visible(f'{resource.shown("").rstrip("/")} "{name}" deleted'), flush=True)
    await deletion.wait_gone(api, path, uid, resource.shown(name), timeout_s=args.timeout)
