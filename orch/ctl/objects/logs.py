"""`orchctl logs`: the output of containers, through the API server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from orch.client.transport import TransportError
from orch.ctl import api, selection
from orch.ctl.api import Api
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.options import seconds
from orch.ctl.output import printing
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.quantity import to_bytes

EXAMPLES = """
orchctl logs web
orchctl logs pod/web -c app -f --tail 20
orchctl logs web --previous --timestamps
orchctl logs -l app=web --all-containers --prefix --since 10m
"""
_TAIL_OF_MANY = 10  # lines of each pod that a selector matched, as in kubectl
_FOLLOWED_AT_ONCE = 5
_GROUPS = {"initContainers": "init", "containers": "", "ephemeralContainers": "ephem"}
_DEFAULT = "kubectl.kubernetes.io/default-container"  # an annotation in use on pods


_FLAGS = {
    "-f --follow": "then print new output as it arrives",
    "-p --previous": "of the previous instance of the container",
    "--timestamps": "with the time of each line",
    "--all-containers": "of all containers of the pod",
    "--prefix": "with pod and container before each line",
    "--ignore-errors": "continue when a log cannot be read",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="POD [CONTAINER]", help="whose log")
    parser.add_argument("-c", "--container", default="", help="this container, not the first")
    parser.add_argument("-l", "--selector", default="", help="of the pods with these labels")
    for names, text in _FLAGS.items():
        parser.add_argument(*names.split(), action="store_true", help=text)
    parser.add_argument("--tail", type=int, default=None, help="only the last lines; -1 is all")
    parser.add_argument(
        "--max-log-requests", type=int, default=_FOLLOWED_AT_ONCE, metavar="NUMBER",
        help="how many logs may be followed at once",
    )  # fmt: skip
    parser.add_argument("--since", type=seconds, default=0.0, help="not older than: 5s, 2m, 3h")
    parser.add_argument("--since-time", default="", metavar="TIME", help="since this RFC 3339 time")
    parser.add_argument("--limit-bytes", type=_bytes, default=0, help="at most this many bytes")


def _bytes(text: str) -> int:
    try:
        return to_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    if bool(args.words) == bool(args.selector):
        raise WrongUsage("say whose log: either POD or -l SELECTOR")
    if args.since and args.since_time:
        raise WrongUsage("--since and --since-time exclude each other: give one of them")
    if args.container and args.all_containers:
        raise WrongUsage("-c and --all-containers exclude each other: give one of them")
    if args.tail is not None and args.tail < -1:
        raise WrongUsage(f"--tail {args.tail} is not a number of lines: -1 is all")
    return api.run(args, _logs)


async def _logs(api: Api, args: argparse.Namespace) -> int:
    pods = await _pods(api, args)
    if not pods:
        printing.note(f"No resources found in {api.namespace} namespace.")
    sources = [(pod, name) for pod in pods for name in _containers(pod, args)]
    if args.follow and len(sources) > args.max_log_requests:
        raise CommandFailed(f"cannot follow {len(sources)} logs: raise --max-log-requests")
    try:
        async with asyncio.timeout(args.request_timeout or None):
            if args.follow:
                await asyncio.gather(*(_copy(api, args, *source) for source in sources))
            else:
                for pod, container in sources:
                    await _copy(api, args, pod, container)
    except TimeoutError:
        if not args.follow:  # else the time asked for is over
            raise CommandFailed(
                f"the log did not end within {args.request_timeout:g} s: give a longer"
                " --request-timeout, or less to read with --tail"
            ) from None
    return 0


async def _pods(api: Api, args: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    if args.selector:
        return await api.items(selection.pod_path(api.namespace), labelSelector=args.selector)
    word, *more = args.words
    if more and not args.container:
        args.container, *more = more
    if more:
        raise WrongUsage(f"{' '.join(more)}: name one pod and one container")
    if "/" in word:
        (target,) = await selection.find(api, Discovery(api), [word])
        if target.resource.kind != "Pod":
            raise WrongUsage(f"{word} has no log: name a pod")
        word = target.name
    return [await api.read(selection.pod_path(api.namespace, word))]


def _containers(pod: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    """The containers whose logs to read; CommandFailed for one the pod does not have."""
    known = _names(pod)
    if args.all_containers:
        return known
    wanted = args.container or default_container(pod)
    name = raw.text(pod, "metadata", "name")
    if wanted not in known:
        raise CommandFailed(
            f"the pod {name} has no container {wanted!r}: it has {', '.join(known)}"
        )
    return [wanted]


def _names(pod: Mapping[str, Any]) -> list[str]:
    return [raw.text(c, "name") for group in _GROUPS for c in raw.records(pod, "spec", group)]


def default_container(pod: Mapping[str, Any]) -> str:
    """The one an annotation names, else the first, with a note when there are others."""
    known = _names(pod)
    annotated = raw.text(pod, "metadata", "annotations", _DEFAULT)
    if annotated in known:
        return annotated
    first = next(iter(raw.records(pod, "spec", "containers")), {})
    name = raw.text(first, "name")
    if len(known) > 1:
        described = [
            raw.text(container, "name") + (f" ({kind})" if kind else "")
            for group, kind in sorted(_GROUPS.items())
            for container in raw.records(pod, "spec", group)
        ]
        printing.note(f'Defaulted container "{name}" out of: {", ".join(described)}')
    return name


async def _copy(api: Api, args: argparse.Namespace, pod: Mapping[str, Any], container: str) -> None:
    """Copy one log to standard output as it arrives."""
    name = raw.text(pod, "metadata", "name")
    path = (
        f"{selection.pod_path(raw.text(pod, 'metadata', 'namespace') or api.namespace, name)}/log"
    )
    prefix = f"[pod/{name}/{container}] ".encode() if args.prefix else b""
    sink = sys.stdout.buffer
    try:
        async with api.stream(path, _params(args, container), accept="text/plain, */*") as stream:
            async for part in stream.lines() if prefix else stream.chunks():
                sink.write(prefix + part + b"\n" if prefix else part)
                sink.flush()
    except (ApiError, TransportError) as error:
        if not args.ignore_errors:
            raise
        printing.note(f"error: {name}/{container}: {error}")


def _params(args: argparse.Namespace, container: str) -> dict[str, str]:
    tail = _TAIL_OF_MANY if args.tail is None and args.selector else args.tail
    return {
        "container": container,
        "follow": "true" if args.follow else "",
        "previous": "true" if args.previous else "",
        "timestamps": "true" if args.timestamps else "",
        "tailLines": "" if tail is None or tail < 0 else str(tail),
        "sinceSeconds": str(max(1, round(args.since))) if args.since else "",
        "sinceTime": args.since_time,
        "limitBytes": str(args.limit_bytes or ""),
    }
