"""The seccomp setting of a container about to be made, with its profile's file looked at."""

from __future__ import annotations

import asyncio

from nodeagent import seccomp, seccompfile
from nodeagent.pods.troubles import StepFailed
from nodeagent.runtime.base import SeccompKind, SeccompSetting
from nodeagent.seccomp import SeccompError
from orch.wire.pods import Container, Pod


class SeccompProfiles:
    """`root` is the absolute directory of Localhost profiles."""

    def __init__(self, root: str, *, default: bool) -> None:
        self._root = root
        self._default = default

    async def setting_of(self, pod: Pod, container: Container) -> SeccompSetting:
        """StepFailed when the profile cannot be applied; a missing file is waited for."""
        awaits = ""
        try:
            found = seccomp.resolve(
                pod, container, seccomp_default=self._default, seccomp_root=self._root
            )
            setting = found.setting
            awaits = setting.localhost_path if setting.kind is SeccompKind.LOCALHOST else ""
            await asyncio.to_thread(
                seccompfile.require_profile_file, setting, root=self._root, source=found.source
            )
        except SeccompError as error:
            raise StepFailed(container.name, error.reason, error.message, awaits=awaits) from error
        return setting
