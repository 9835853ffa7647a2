"""`orchctl logs`: what the containers of pods printed, through the API server."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from orch.ctl import printing, session, targets
from orch.ctl.api import Api, given
from orch.ctl.discovery import Discovery
from orch.ctl.failures import CommandFailed, WrongUsage, visible
from orch.ctl.options import seconds
from orch.wire import raw
from orch.wire.quantity import to_bytes

EXAMPLES = """
orchctl logs web
orchctl logs pod/web -c app -f --tail 20
orchctl logs web --previous --timestamps
orchctl logs -l app=web --all-containers --prefix --since 10m
"""
_TAIL_OF_MANY = 10  # lines of each pod when a selector chose them, as kubectl does
_FOLLOWED_AT_ONCE = 5
_GROUPS = {"initContainers": "init", "containers": "", "ephemeralContainers": "ephem"}
_DEFAULT = "kubectl.kubernetes.io/default-container"  # an annotation that pods come with


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="POD [CONTAINER]", help="whose log")
    parser.add_argument("-c", "--container", default="", help="of this one, not of the first")
    parser.add_argument("-l", "--selector", default="", help="of the pods with these labels")
    for names, text in _SWITCHES.items():
        parser.add_argument(*names.split(), action="store_true", help=text)
    parser.add_argument("--tail", type=int, default=None, help="only the last lines; -1 is all")
    parser.add_argument(
        "--max-log-requests", type=int, default=_FOLLOWED_AT_ONCE, metavar="NUMBER",
        help="how many logs may be followed at once",
    )  # fmt: skip
    parser.add_argument("--since", type=seconds, default=0.0, help="not older than: 5s, 2m, 3h")
    parser.add_argument("--since-time", default="", metavar="TIME", help="since this RFC 3339 time")
    parser.add_argument("--limit-bytes", type=_bytes, default=0, help="at most as many bytes")


_SWITCHES = {
    "-f --follow": "go on with what comes",
    "-p --previous": "of the container's instance before this one",
    "--timestamps": "with the time of each line",
    "--all-containers": "of all containers of the pod",
    "--prefix": "with pod and container before each line",
    "--ignore-errors": "go on when one log cannot be read",
}


def _bytes(text: str) -> int:
    try:
        return to_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    if bool(args.words) == bool(args.selector):
        raise WrongUsage("say whose log: either POD or -l SELECTOR")
    if args.since and args.since_time:
        raise WrongUsage("--since and --since-time say the same: leave one of them out")
    if args.container and args.all_containers:
        raise WrongUsage("-c names one container: leave --all-containers out")
    if args.tail is not None and args.tail < -1:
        raise WrongUsage(f"--tail {args.tail} is no number of lines: -1 is all")
    return session.run(args, _logs)


async def _logs(api: Api, args: argparse.Namespace) -> int:
    pods = await _pods(api, args)
    if not pods:
        printing.note(f"No resources found in {api.namespace} namespace.")
    sources = [(pod, name) for pod in pods for name in _containers(pod, args)]
    if args.follow and len(sources) > args.max_log_requests:
        raise CommandFailed(
            f"{len(sources)} logs are more than are followed at once: choose fewer, or allow more "
            "with --max-log-requests"
        )
    readers = [_Reader(api, args, pod, container) for pod, container in sources]
    if args.follow and len(readers) > 1:
        await asyncio.gather(*(reader.copy() for reader in readers))
        return 0
    for reader in readers:
        await reader.copy()
    return 0


async def _pods(api: Api, args: argparse.Namespace) -> Sequence[Mapping[str, Any]]:
    if args.selector:
        return await api.items(targets.pod_path(api.namespace), {"labelSelector": args.selector})
    word, *more = args.words
    if more and not args.container:
        args.container, *more = more
    if more:
        raise WrongUsage(f"{' '.join(more)}: name one pod and one container")
    if "/" in word:
        (target,) = await targets.find(Discovery(api), [word])
        if target.resource.kind != "Pod":
            raise WrongUsage(f"{word} has no log: name a pod")
        word = target.name
    return [await api.read(targets.pod_path(api.namespace, word))]


def _containers(pod: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    """The containers whose logs are meant; CommandFailed for one that there is not."""
    known = [raw.text(one, "name") for group in _GROUPS for one in raw.records(pod, "spec", group)]
    if args.all_containers:
        return known
    wanted = args.container or _default_container(pod, known)
    name = raw.text(pod, "metadata", "name")
    if wanted not in known:
        raise CommandFailed(
            f"the pod {name} has no container {wanted!r}: it has {', '.join(known) or 'none'}"
        )
    return [wanted]


def _default_container(pod: Mapping[str, Any], known: Sequence[str]) -> str:
    """The one an annotation names, else the first, said when there are others to choose."""
    annotated = raw.text(pod, "metadata", "annotations", _DEFAULT)
    if annotated in known:
        return annotated
    described = [
        raw.text(one, "name") + (f" ({kind})" if kind else "")
        for group, kind in sorted(_GROUPS.items())
        for one in raw.records(pod, "spec", group)
    ]
    first = next(iter(raw.records(pod, "spec", "containers")), {})
    name = raw.text(first, "name")
    if len(described) > 1:
        note = f'Defaulted container "{name}" out of: {", ".join(described)}'
        printing.note(visible(note))
    return name


class _Reader:
    """Copies one log to standard output, as it comes."""

    def __init__(
        self, api: Api, args: argparse.Namespace, pod: Mapping[str, Any], container: str
    ) -> None:
        self._api = api
        self._args = args
        self._name = raw.text(pod, "metadata", "name")
        self._namespace = raw.text(pod, "metadata", "namespace") or api.namespace
        self._container = container

    async def copy(self) -> None:
        from orch.client.transport import TransportError
        from orch.wire.errors import ApiError

        try:
            await self._copy(sys.stdout.buffer)
        except (ApiError, TransportError) as error:
            if not self._args.ignore_errors:
                raise
            print(f"error: {self._name}/{self._container}: {error}", file=sys.stderr)

    async def _copy(self, sink: BinaryIO) -> None:
        path = f"{targets.pod_path(self._namespace, self._name)}/log"
        prefix = f"[pod/{self._name}/{self._container}] ".encode() if self._args.prefix else b""
        async with self._api.stream(path, self._params(), accept="text/plain, */*") as stream:
            if not prefix:
                async for chunk in stream.chunks():
                    _write(sink, chunk)
                return
            async for line in stream.lines():
                _write(sink, prefix + line + b"\n")

    def _params(self) -> dict[str, str]:
        args = self._args
        tail = args.tail
        if tail is None and args.selector:
            tail = _TAIL_OF_MANY
        return given(
            container=self._container,
            follow="true" if args.follow else "",
            previous="true" if args.previous else "",
            timestamps="true" if args.timestamps else "",
            tailLines="" if tail is None or tail < 0 else str(tail),
            sinceSeconds=str(max(1, round(args.since))) if args.since else "",
            sinceTime=args.since_time,
            limitBytes=str(args.limit_bytes or ""),
        )


def _write(sink: BinaryIO, data: bytes) -> None:
    sink.write(data)
    sink.flush()
