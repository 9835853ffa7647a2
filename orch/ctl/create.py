"""`orchctl create -f`: new objects from files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from orch.ctl import changes, manifests, printing, session
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery
from orch.ctl.manifests import Manifest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        help="file, directory, or - (repeatable)",
    )
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-create")


def run(args: argparse.Namespace) -> int:
    return session.run(args, partial(_create_all, manifests.read(args.filename)))


async def _create_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    discovery = Discovery(api)

    async def create(manifest: Manifest) -> None:
        resource = await manifests.resource_of(manifest, discovery)
        manifest = manifests.placed(manifest, resource, api.namespace, asked=args.namespace)
        record = manifest.record
        if args.dry_run != "client":
            namespace = record["metadata"]["namespace"] if resource.namespaced else ""
            params = changes.parameters(args, strict=True)
            record = await api.send("POST", resource.path(namespace), record, params=params)
        printing.print_object(record, resource, args.output, changes.done("created", args))

    return await changes.each(found, create)
