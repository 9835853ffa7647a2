"""A process that writes until it is killed, and prints each write once it was answered.

Lines: `put <key> <revision> <data>` and `del <key> <revision>`. Run by test_crash.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from orch.server.storage.base import Stored
from orch.server.storage.sqlite import SqliteStorage

WRITERS = 8


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def write_forever(storage: SqliteStorage, writer: int) -> None:
    key = f"/leases/a/{writer}"
    current: Stored | None = storage.get(key)
    count = 0
    while True:
        count += 1
        data = f"{writer}.{count}.{os.getpid()}".encode()
        if current is None:
            current = await storage.create(key, data)
        else:
            current = await storage.update(key, data, current.revision)
        say(f"put {key} {current.revision} {data.decode()}")
        if count % 7 == 0:
            gone = await storage.delete(key, current.revision)
            current = None
            say(f"del {key} {gone.revision}")


async def main(path: Path) -> None:
    storage = SqliteStorage(path)
    await storage.open()
    await asyncio.gather(*(write_forever(storage, n) for n in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
