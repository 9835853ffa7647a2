"""Which directories are walked."""

from __future__ import annotations

import dataclasses

from nodeagent.stats import samples
from nodeagent.stats.samples import VolumeTarget
from tests.fakes.hosts import CONTAINER, POD


def test_logs_are_walked_flat_and_own_volumes_whole_but_never_the_host() -> None:
    container = dataclasses.replace(CONTAINER, log_dir="/logs/web")
    volumes = (VolumeTarget("a", "/v/a", "emptyDir"), VolumeTarget("b", "/", "hostPath"))
    pod = dataclasses.replace(POD, containers=(container,), log_dir="/logs", volumes=volumes)
    assert samples.directories_of([pod, POD]) == {
        "/logs/web": False,
        "/logs": False,
        "/v/a": True,
    }
