"""`nodeagent image import|list`: images for a machine that reaches no registry.

`import` takes archives as `docker save` and OCI tools write them, checks what is in them, and hands
them to containerd by its own `ctr`; the CRI has no such call. `list` shows what the runtime has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from nodeagent.commands import config as config_command
from nodeagent.commands import image_archive
from nodeagent.commands.image_archive import ImageArchiveError
from nodeagent.config import options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.runtime.base import Image, RuntimeCallError
from nodeagent.runtime.cri import CriRuntime
from nodeagent.runtime.endpoint import socket_path
from orch.component.process.daemon import SetupError

_CALL_S = 30.0
_IMPORT_S = 900.0  # for all of an archive
_DEFAULT_MAX_MIB = 16 * 1024
_NOTICED_S, _POLL_S = 10.0, 0.1
_NAMESPACE = "k8s.io"  # where containerd keeps the images of the CRI


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    bring = actions.add_parser("import", help="put the images of archives into containerd")
    bring.add_argument("files", nargs="+", type=Path, metavar="FILE", help="docker or OCI archive")
    bring.add_argument(
        "--max-mib", type=int, default=_DEFAULT_MAX_MIB, help="largest archive that is taken"
    )
    show = actions.add_parser("list", help="show the images that the runtime has")
    show.add_argument("-o", "--output", choices=("text", "json"), default="text")
    for action in (bring, show):
        options.add_flags(action)


def run(args: argparse.Namespace) -> int:
    config = config_command.load(args)
    if not config.containerRuntimeEndpoint:
        raise SetupError("there is no runtime: give --container-runtime-endpoint")
    if args.action == "list":
        _show(asyncio.run(_images(config)), args.output)
        return 0
    for path in args.files:
        tags = _tags_of(path, args.max_mib << 20)
        _import(config, path)
        if missing := _missing(config, tags):
            raise SetupError(f"{path}: the runtime took it, but has no image {missing[0]}")
        sys.stdout.write("".join(f"imported {tag}\n" for tag in tags))
    return 0


def _missing(config: NodeAgentConfiguration, tags: Sequence[str]) -> Sequence[str]:
    """Those that the runtime does not list: containerd notices an import a little after its end."""
    until_s = time.monotonic() + _NOTICED_S
    while True:
        had = {tag for image in asyncio.run(_images(config)) for tag in image.tags}
        missing = [tag for tag in tags if not had & set(_spellings(tag))]
        if not missing or time.monotonic() >= until_s:
            return missing
        time.sleep(_POLL_S)


def _spellings(tag: str) -> tuple[str, ...]:
    """A name as archives write it, and as the runtime completes it."""
    return tag, f"docker.io/{tag}", f"docker.io/library/{tag}"


def _tags_of(path: Path, max_bytes: int) -> Sequence[str]:
    """The names of an archive's images. SetupError for what is no archive of images, or too large.

    Only headers and the index are read, and no more of them than the bounds.
    """
    try:
        return image_archive.names_in(path, max_bytes)
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror or error}") from None
    except ImageArchiveError as error:
        raise SetupError(f"{path} {error}") from None


def _import(config: NodeAgentConfiguration, path: Path) -> None:
    address = socket_path(config.containerRuntimeEndpoint)
    command = ["ctr", f"--address={address}", f"--namespace={_NAMESPACE}", "images", "import"]
    try:
        done = subprocess.run(
            [*command, str(path.absolute())],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_IMPORT_S,
        )  # fmt: skip
    except FileNotFoundError:
        raise SetupError(
            "ctr is missing, which comes with containerd; for CRI-O use: "
            f"skopeo copy docker-archive:{path} containers-storage:NAME"
        ) from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"{path} was not imported within {_IMPORT_S:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise SetupError(f"containerd at {address} does not take {path}: {last[:500]}")


async def _images(config: NodeAgentConfiguration) -> Sequence[Image]:
    runtime = CriRuntime(config.containerRuntimeEndpoint, timeout_s=_CALL_S)
    try:
        return await runtime.images()
    except RuntimeCallError as error:
        raise SetupError(
            f"the runtime at {config.containerRuntimeEndpoint} does not answer: {error}; is it "
            "running, and are you root?"
        ) from None
    finally:
        await runtime.close()


def _show(images: Sequence[Image], output: str) -> None:
    rows = sorted(
        (tag, image.id, image.size_bytes) for image in images for tag in image.tags or ("<none>",)
    )
    if output == "json":
        listed = [{"name": name, "id": id_, "sizeBytes": size} for name, id_, size in rows]
        sys.stdout.write(json.dumps({"items": listed}, indent=2) + "\n")
        return
    width = max([len(name) for name, _, _ in rows], default=0)
    for name, id_, size in rows:
        short = id_.removeprefix("sha256:")[:12]
        sys.stdout.write(f"{name:<{width}}  {short:<12}  {size / (1 << 20):.1f}Mi\n")
