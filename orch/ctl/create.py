"""`orchctl create -f`: new objects from files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from orch.ctl import changes, manifests, session
from orch.ctl.api import Api
from orch.ctl.discovery import Resource
from orch.ctl.manifests import Manifest

EXAMPLES = """
orchctl create -f pod.yaml
orchctl create -f - --dry-run=server -o yaml
orchctl create namespace shop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    manifests.add_filename(parser, required=True)
    changes.add_validate(parser)
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-create")


def run(args: argparse.Namespace) -> int:
    return session.run(
        args, partial(_create_all, manifests.read(args.filename, recursive=args.recursive))
    )


async def _create_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def create(manifest: Manifest, resource: Resource) -> tuple[dict[str, Any], str]:
        record = manifest.record
        if args.dry_run != "client":
            path = resource.path(manifest.namespace if resource.namespaced else "")
            params = changes.parameters(args, strict=True)
            record = await api.send("POST", path, record, params=params)
        return record, "created"

    return await changes.each_manifest(found, create, api, args)
