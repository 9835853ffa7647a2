"""The handler of the runtime that a pod's RuntimeClass names, as the API has it.

A class never changes its handler, so one that was read counts while the API is away. Without an
API server a pod's `runtimeClassName` is the handler itself.
"""

from __future__ import annotations

from nodeagent.pods.spec.env import SpecError
from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.wire.errors import ApiError
from orch.wire.records.configuration import RuntimeClass
from orch.wire.records.pods import Pod

_KNOWN_MAX = 1000  # then those that were read first are read again


class RuntimeClasses:
    """`client` None: there is no API server."""

    def __init__(self, client: ApiClient | None) -> None:
        self._client = client
        self._handlers: dict[str, str] = {}

    async def handler_of(self, pod: Pod) -> str:
        """ "" is the runtime's default. SpecError: there is no such class, or it is not known."""
        name = pod.spec.runtimeClassName or ""
        if self._client is None or not name:
            return name
        try:
            found = await self._client.find(RuntimeClass, name)
        except (ApiError, TransportError) as error:
            if name in self._handlers:
                return self._handlers[name]
            raise SpecError(f"failed to get RuntimeClass {name}: {error}") from error
        self._handlers.pop(name, None)
        if found is None:
            text = f'failed to get RuntimeClass {name}: runtimeclass "{name}" not found'
            raise SpecError(text)
        while len(self._handlers) >= _KNOWN_MAX:
            del self._handlers[next(iter(self._handlers))]
        self._handlers[name] = found.handler
        return found.handler
