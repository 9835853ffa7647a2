"""`nodeagent leave`: undoes `nodeagent join`; pods' volumes, images and archives stay."""

from __future__ import annotations

import argparse
import asyncio
import sys

from nodeagent.certificates import joining
from nodeagent.commands import join
from orch.client.kubeconfig import load_kubeconfig
from orch.client.transport import TransportError
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.wire.errors import ApiError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig", default="",
        help="an administrator's: the node is deleted; without it the node is only cordoned",
    )  # fmt: skip
    parser.add_argument(
        "--force", action="store_true", help="remove the files even if the server is not reached"
    )
    join.add_places(parser)


def run(args: argparse.Namespace) -> int:
    place = join.place_of(args)
    name = join.joined_name(place)
    if join.has_service():
        join.systemctl("disable", "--now", join.SERVICE)
    try:
        config = load_kubeconfig(args.kubeconfig or str(place.kubeconfig))
        done = asyncio.run(joining.retire(config, name, clock.utc_now()))
        sys.stdout.write(f"node {name} {done}\n")
    except (ApiError, TransportError, SetupError) as error:
        if not args.force:
            raise SetupError(
                f"node {name} is neither deleted nor cordoned: {error}; --force leaves all the same"
            ) from error
        sys.stdout.write(f"node {name} is still known to the cluster: {error}\n")
    try:
        for path in joining.remove_files(place):
            sys.stdout.write(f"removed {path}\n")
    except OSError as error:
        raise SetupError(f"cannot remove {error.filename}: {error.strerror}") from error
    return 0
