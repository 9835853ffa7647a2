"""The logins that the node has for all pods: `config.json` in the root directory.

It is what `docker login` writes, as the reference reads it there (K:pkg/credentialprovider
config.go). Read for each pull, so that a new password counts at once. Nothing of it is in a log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial

from nodeagent import descriptors
from nodeagent.pods.images import keyring
from nodeagent.pods.images.keyring import KeyringError
from nodeagent.runtime.base import Login
from orch.component.process.once_log import OnceLog
from orch.component.process.threads import run_in_thread

FILE = "config.json"

log = logging.getLogger(__name__)


class NodeLogins:
    def __init__(self, root_dir: str) -> None:
        self._path = os.path.join(root_dir, FILE)
        self._outage = OnceLog(log)

    async def logins(self, image: str) -> Sequence[Login]:
        """For the image, the first to try first; none where the file is absent or cannot be used.

        The latter is logged once.
        """
        try:
            found = await run_in_thread(partial(self._read, image), name="logins of the node")
        except (KeyringError, OSError) as error:
            text = error.strerror if isinstance(error, OSError) else error
            self._outage.failed("images are pulled without %s: %s", self._path, text)
            return ()
        self._outage.recovered("%s is read again", self._path)
        return found

    def _read(self, image: str) -> Sequence[Login]:
        """KeyringError, OSError. Blocking."""
        try:
            opened = descriptors.open_file(self._path)
        except FileNotFoundError:
            return ()
        with os.fdopen(opened, "rb") as file:
            content = file.read(keyring.CONTENT_BYTES + 1)
        return keyring.logins_of_file(image, FILE, content)
