"""`orchctl create -f`: new objects from files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from orch.ctl import changes, commands, manifests, session
from orch.ctl.api import Api
from orch.ctl.discovery import Resource
from orch.ctl.failures import WrongUsage, did_you_mean
from orch.ctl.manifests import Manifest

EXAMPLES = """
orchctl create -f pod.yaml
orchctl create -f - --dry-run=server -o yaml
orchctl create namespace shop
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)  # a kind that there is not
    manifests.add_filename(parser)
    changes.add_validate(parser)
    changes.add_dry_run(parser)
    changes.add_output(parser)
    changes.add_field_manager(parser, "cli-create")


def run(args: argparse.Namespace) -> int:
    kinds = commands.COMMANDS["create"].below
    if args.words:
        raise WrongUsage(
            f"there is no 'create {args.words[0]}'{did_you_mean(args.words[0], kinds)}: give a "
            f"file with -f, or one of {', '.join(kinds)}"
        )
    if not args.filename:
        raise WrongUsage(f"say what to create: -f FILE, or one of {', '.join(kinds)}")
    return session.run(args, partial(_create_all, manifests.named(args)))


async def _create_all(found: Sequence[Manifest], api: Api, args: argparse.Namespace) -> int:
    async def create(manifest: Manifest, resource: Resource) -> tuple[dict[str, Any], str]:
        record = manifest.record
        if args.dry_run != "client":
            path = resource.path(manifest.namespace if resource.namespaced else "")
            params = changes.parameters(args, strict=True)
            record = await api.send("POST", path, record, params=params)
        return record, "created"

    return await changes.each_manifest(found, create, api, args)
