"""A device plugin as others write them: a program of its own, with stubs of its own.

    python device_plugin.py FOLDER RESOURCE ENDPOINT [DEVICES] [OPTION=VALUE …]

It serves its socket in FOLDER, registers at `kubelet.sock` there, and again whenever that socket is
a new one. Each device is /dev/null under its own name. Lines of JSON on standard input replace what
it says (`devices`: ids by health, `prefer`, `answer`: fields of a ContainerAllocateResponse); each
call it gets is a line of JSON on standard output. Options: `pre_start=1`, `preferred=1`,
`version=…`, `fail=1` (Allocate fails), `hang=1` (Allocate never answers), `numa=1`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import grpc

sys.path.insert(0, str(Path(__file__).parent))
pb, rpc = grpc.protos_and_services("deviceplugin.proto")


class Plugin(rpc.DevicePluginServicer):  # type: ignore[misc, name-defined]
    def __init__(self, folder: Path, resource: str, endpoint: str, options: dict[str, str]) -> None:
        self.folder, self.resource, self.endpoint = folder, resource, endpoint
        self.options = options
        self.devices: dict[str, str] = {}
        self.prefer: list[str] = []
        self.answer: dict[str, Any] | None = None
        self.changed = asyncio.Condition()
        self.server: Any = None

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:
        return pb.DevicePluginOptions(
            pre_start_required="pre_start" in self.options,
            get_preferred_allocation_available="preferred" in self.options,
        )

    async def ListAndWatch(self, request: Any, context: Any) -> Any:
        say(call="ListAndWatch")
        while True:
            shown = dict(self.devices)
            yield pb.ListAndWatchResponse(devices=[self._device(*item) for item in shown.items()])
            async with self.changed:
                await self.changed.wait_for(lambda old=shown: self.devices != old)

    def _device(self, name: str, health: str) -> Any:
        device = pb.Device(ID=name, health=health)
        if "numa" in self.options:
            device.topology.nodes.add(ID=len(name) % 2)
        return device

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:
        wanted = request.container_requests[0]
        say(call="GetPreferredAllocation", size=wanted.allocation_size)
        answer = pb.ContainerPreferredAllocationResponse(deviceIDs=self.prefer)
        return pb.PreferredAllocationResponse(container_responses=[answer])

    async def Allocate(self, request: Any, context: Any) -> Any:
        ids = list(request.container_requests[0].devices_ids)
        say(call="Allocate", ids=ids)
        if "hang" in self.options:
            await asyncio.Event().wait()
        if "fail" in self.options:
            await context.abort(grpc.StatusCode.INTERNAL, "the device is on fire")
        if self.answer is not None:
            answer = pb.ContainerAllocateResponse(**self.answer)
        else:
            answer = pb.ContainerAllocateResponse(
                envs={"DEVICES": ",".join(ids)},
                annotations={"example.com/devices": ",".join(ids)},
                devices=[
                    {"container_path": f"/dev/{n}", "host_path": "/dev/null", "permissions": "rw"}
                    for n in ids
                ],
            )
        return pb.AllocateResponse(container_responses=[answer])

    async def PreStartContainer(self, request: Any, context: Any) -> Any:
        say(call="PreStartContainer", ids=list(request.devices_ids))
        return pb.PreStartContainerResponse()

    async def register(self) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self.folder}/kubelet.sock") as channel:
            try:
                await rpc.RegistrationStub(channel).Register(
                    pb.RegisterRequest(
                        version=self.options.get("version", "v1beta1"),
                        endpoint=self.options.get("endpoint", self.endpoint),
                        resource_name=self.resource,
                    ),
                    timeout=30,
                )
            except grpc.aio.AioRpcError as error:
                say(refused=error.details())
            else:
                say(registered=self.resource)

    async def follow_agent(self) -> None:
        """Real plugins watch the folder; this one looks often."""
        seen = 0
        while True:
            try:
                now = os.stat(self.folder / "kubelet.sock").st_mtime_ns
            except FileNotFoundError:
                now = 0
            if now and now != seen:
                await self.serve()
                await self.register()
            seen = now
            await asyncio.sleep(0.02)

    async def serve(self) -> None:
        """On a new socket, since the agent removes those it finds when it starts."""
        if self.server:
            await self.server.stop(None)  # which removes its socket
        server = grpc.aio.server()
        rpc.add_DevicePluginServicer_to_server(self, server)
        (self.folder / self.endpoint).unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{self.folder}/{self.endpoint}")
        await server.start()
        self.server = server

    async def obey(self) -> None:
        lines = asyncio.StreamReader(limit=1 << 24)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        async for line in lines:
            for name, value in json.loads(line).items():
                setattr(self, name, value)
            async with self.changed:
                self.changed.notify_all()
        os._exit(0)  # nobody is left to play for


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def main() -> None:
    folder, resource, endpoint, *rest = sys.argv[1:]
    options = dict(item.split("=", 1) for item in rest if "=" in item)
    counts = [int(item) for item in rest if item.isdecimal()]
    plugin = Plugin(Path(folder), resource, endpoint, options)
    plugin.devices = {f"dev-{n}": "Healthy" for n in range(counts[0] if counts else 2)}
    async with asyncio.TaskGroup() as group:
        group.create_task(plugin.obey())
        group.create_task(plugin.follow_agent())


if __name__ == "__main__":
    asyncio.run(main())
