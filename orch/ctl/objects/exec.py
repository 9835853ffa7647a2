"""`orchctl exec`: runs a command in a container, with its streams here and its exit code.

A terminal is raw while the command has it, and given back as it was, however that ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlencode

from orch.client.remote_command import PROTOCOLS, STDOUT, RemoteCommand
from orch.component.process import loops, threads
from orch.ctl import api, selection
from orch.ctl.api import Api
from orch.ctl.failures import WrongUsage
from orch.ctl.objects.logs import default_container
from orch.ctl.output import printing

EXAMPLES = """
orchctl exec web -- ls -l /
orchctl exec web -c app -it -- sh
orchctl exec web -i -- tar xf - -C /data <data.tar
"""
_READ_BYTES = 32 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="where to run it")
    parser.add_argument("words", nargs="+", metavar="-- COMMAND", help="what to run")
    parser.add_argument("-c", "--container", default="", help="this container, not the first")
    parser.add_argument("-i", "--stdin", action="store_true", help="pass standard input to it")
    parser.add_argument("-t", "--tty", action="store_true", help="give it a terminal")


def run(args: argparse.Namespace) -> int:
    args.pod = args.pod.removeprefix("pod/")
    if "/" in args.pod:
        raise WrongUsage(f"{args.pod} runs no commands: name a pod")
    if args.tty and not (args.stdin and sys.stdin.isatty()):
        printing.note("no terminal is given to it: -t needs -i and a terminal here")
        args.tty = False
    return api.run(args, _exec)


async def _exec(api: Api, args: argparse.Namespace) -> int:
    path = selection.pod_path(api.namespace, args.pod)
    pod = await api.read(path)
    asked = [
        ("container", args.container or default_container(pod)),
        *(("command", word) for word in args.words),
        *((name, "true") for name in ("stdin", "tty") if getattr(args, name)),
        ("stdout", "true"),
        *([] if args.tty else [("stderr", "true")]),
    ]
    query = urlencode(asked, errors="surrogateescape")
    async with api.websocket(f"{path}/exec?{query}", PROTOCOLS) as socket:
        command, streams = RemoteCommand(socket), _Streams()
        async with contextlib.AsyncExitStack() as ended:
            if args.tty:
                ended.enter_context(streams.terminal(command, sys.stdin.fileno()))
            if args.stdin:
                await ended.enter_async_context(streams.input(command, sys.stdin.fileno()))
            async for channel, data in command.output():
                sink = (sys.stdout if channel == STDOUT else sys.stderr).buffer
                sink.write(data)
                sink.flush()
        return command.exit_code()


class _Streams:
    """Those of this process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    @contextlib.asynccontextmanager
    async def input(self, command: RemoteCommand, descriptor: int) -> AsyncIterator[None]:
        """Pass on what comes in; a read may wait for it for ever, in a thread that nobody joins."""

        async def copy() -> None:
            data = b"more"
            with contextlib.suppress(OSError):  # the end of the connection: its reader tells it
                while data:
                    data = await threads.run_in_thread(read, name="input")
                    await command.send_input(data)

        read = functools.partial(os.read, descriptor, _READ_BYTES)
        copying = loops.spawn(copy(), name="input")
        try:
            yield
        finally:
            await loops.cancel(copying)

    @contextlib.contextmanager
    def terminal(self, command: RemoteCommand, descriptor: int) -> Iterator[None]:
        """Keys go to the command as they are, and it is told the size of the window."""
        saved = termios.tcgetattr(descriptor)

        def tell_size() -> None:
            size = os.get_terminal_size(descriptor)
            loops.spawn(command.resize(size.columns, size.lines), name="size of the window")

        def end(number: int) -> None:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
            self._loop.remove_signal_handler(number)
            os.kill(os.getpid(), number)

        self._loop.add_signal_handler(signal.SIGWINCH, tell_size)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, end, number)
        tty.setraw(descriptor, termios.TCSADRAIN)
        try:
            tell_size()
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, saved)
