"""The sizes that the agent takes for in force: those written on containers, those told since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.resize.allocations import allocation_of
from nodeagent.pods.resize.in_force import SizesInForce
from nodeagent.pods.resize.sizes import Size
from nodeagent.pods.resize.state_file import StateFile
from orch.component.process.daemon import SetupError
from orch.wire import names
from tests.fakes.pods import container_data, instance, pod, sandbox, seen


def kept(path: Path) -> SizesInForce:
    made = SizesInForce(StateFile(path / "state", "the sizes in force"))
    made.restore()
    return made


def annotated(text: str) -> Any:
    detail = instance("app")
    key = names.RUNTIME_ANNOTATION_CONTAINER_HASH
    row = replace(detail.container, annotations={key: text})
    return replace(detail, container=row)


WANTED = pod(container_data("app", resources={"requests": {"cpu": "1"}}))
BOX = sandbox(annotations={names.RUNTIME_ANNOTATION_POD_SIZE: "7,0,0,0"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0123456789abcdef/100,0,0,0", Size(100)),
        ("0123456789abcdef/what", Size()),  # told once more
        ("0123456789abcdef", Size(1000)),  # of an agent that could not resize
    ],
)
def test_a_container_carries_the_size_it_was_created_with(
    tmp_path: Path, text: str, expected: Size
) -> None:
    first = {"app": WANTED.spec.containers[0].resources}
    allocation = allocation_of(pod("app"), first=first if expected.cpu_request_milli > 999 else {})
    found = kept(tmp_path).of(pod("app"), seen(BOX, annotated(text)), allocation)
    assert found.containers == {"app0": expected}
    assert found.whole == Size(7)


async def test_what_was_told_since_is_known_to_the_next_agent(tmp_path: Path) -> None:
    view = seen(BOX, annotated("x/100,0,0,0"))
    await kept(tmp_path).note(view, whole=Size(9), containers={"app0": Size(200), "old": Size(1)})
    heir = kept(tmp_path)
    found = heir.of(pod("app"), view, None)
    assert (found.whole, found.containers) == (Size(9), {"app0": Size(200)})
    await heir.note(view, restarting=("app0",))
    assert kept(tmp_path).of(pod("app"), view, None).restarting == {"app0"}
    another = seen(sandbox(attempt=1, annotations=BOX.sandbox.annotations))
    assert heir.of(pod("app"), another, None).whole == Size(7), "of another sandbox's cgroup"
    heir.forget(view.uid)
    assert heir.of(pod("app"), view, None).containers == {"app0": Size(100)}


def test_an_entry_that_is_none_is_refused_by_its_uid(tmp_path: Path) -> None:
    entry = {"sandbox": "", "whole": "x", "containers": {}, "restarting": []}
    StateFile(tmp_path / "state", "x").write({"uid-1": entry})
    with pytest.raises(SetupError, match="the entry of pod uid-1 cannot be read"):
        kept(tmp_path)
