"""The parts that an agent has for checkpoints, and how they are connected to the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.stats.sampler import Sampler
from nodeagent.wiring.base import Base
from nodeagent.wiring.checkpoint import Checkpoints, build_checkpoints
from orch.component.process.daemon import SetupError
from tests.fakes.checkpoints import RecordedEvents, checkpointable_node
from tests.fakes.runtime import FakeRuntime
from tests.nodeagent.wiring.conftest import BuildBase

pytestmark = pytest.mark.may_block  # the machine's facts are read before anything is served


def build(base: Base, sampler: Sampler) -> Checkpoints | None:
    return build_checkpoints(base, sampler, RecordedEvents())


async def test_without_a_runtime_or_the_feature_there_are_none(
    base: BuildBase, sampler: Sampler
) -> None:
    assert build(base(), sampler) is None
    assert build(base(FakeRuntime(), gates={"ContainerCheckpoint": False}), sampler) is None
    assert build(base(FakeRuntime()), sampler) is not None


async def test_recipients_that_cannot_be_used_keep_the_agent_from_starting(
    base: BuildBase, sampler: Sampler
) -> None:
    encrypted = base(FakeRuntime(), checkpoint={"encryption": {"recipients": ["age1x"]}})

    with pytest.raises(SetupError, match=r"checkpoint\.encryption: 'age1x' is not an age"):
        build(encrypted, sampler)


async def test_the_store_is_bounded_by_the_configuration_and_its_excess_is_told(
    tmp_path: Path, base: BuildBase, sampler: Sampler
) -> None:
    node = await checkpointable_node(tmp_path)
    name = Path(await node.service().checkpoint("shop", "web", "app")).name
    node.index.pin(node.index.find(name))
    policy = {"maxTotal": "1", "minFree": "0", "maxAge": "0s"}
    built = build(base(node.runtime, checkpoint=policy), sampler)
    assert built
    assert built.pruner.excess_bytes() is None

    await built.pruner.step()
    assert built.pruner.excess_bytes() == (node.store / name).stat().st_size - 1
    node.index.unpin(node.index.find(name))
    await built.pruner.step()
    assert built.pruner.excess_bytes() == 0
    assert os.listdir(node.store) == []
