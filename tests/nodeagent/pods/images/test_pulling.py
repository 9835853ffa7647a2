"""Pull policies, logins and turns, on a runtime in memory."""

from __future__ import annotations

import asyncio
import math

import pytest

from nodeagent.pods.images import pulling
from nodeagent.pods.images.pulling import ImageProblem, ImagePulls
from nodeagent.runtime.base import Login, RuntimeTimeout, RuntimeUnavailable
from orch.component.process import loops
from orch.component.secret import Secret
from tests.fakes.runtime import FakeRuntime

PRESENT, ABSENT = "localhost/busybox:1", "localhost/later:1"


async def ensure(runtime: FakeRuntime, image: str, policy: str | None = None) -> None:
    if await pulling.must_pull(runtime, image, policy):
        await ImagePulls().pull(runtime, image)


PULLS: list[tuple[str, str | None, bool]] = [
    (PRESENT, None, False),
    (PRESENT, "IfNotPresent", False),
    (PRESENT, "Never", False),
    (PRESENT, "Always", True),
    (ABSENT, None, True),
]


@pytest.mark.parametrize(("image", "policy", "pulled"), PULLS)
async def test_an_image_is_pulled_when_the_policy_says_so(
    image: str, policy: str | None, pulled: bool
) -> None:
    runtime = FakeRuntime()
    runtime.images_to_pull.add(ABSENT)
    await ensure(runtime, image, policy)
    assert bool(runtime.called("pull_image")) is pulled


PROBLEMS: list[tuple[str, str | None, str, str]] = [
    (
        ABSENT,
        "Never",
        "ErrImageNeverPull",
        f'Container image "{ABSENT}" is not present with pull policy of Never',
    ),
    (ABSENT, None, "ErrImagePull", f'failed to pull image "{ABSENT}"'),
    ("not an image", None, "InvalidImageName", "'not an image'"),
    ("-x", None, "InvalidImageName", "'-x'"),
]


@pytest.mark.parametrize(("image", "policy", "reason", "text"), PROBLEMS)
async def test_an_image_that_cannot_be_had_gives_the_reason(
    image: str, policy: str | None, reason: str, text: str
) -> None:
    with pytest.raises(ImageProblem) as caught:
        await ensure(FakeRuntime(), image, policy)
    assert caught.value.reason == reason
    assert text in str(caught.value)


@pytest.mark.parametrize("operation", ["image", "pull_image"])
async def test_a_runtime_that_is_away_is_no_problem_of_the_image(operation: str) -> None:
    runtime = FakeRuntime()
    runtime.fail(operation, RuntimeUnavailable(operation, "refused"))
    with pytest.raises(RuntimeUnavailable):
        await ensure(runtime, ABSENT)


WRONG, RIGHT, UNUSED = (Login("me", Secret(text)) for text in ("old", "new", "other"))


@pytest.mark.parametrize(
    ("logins", "tried"),
    [([], [None]), ([RIGHT, UNUSED], [RIGHT]), ([WRONG, RIGHT, UNUSED], [WRONG, RIGHT])],
)
async def test_logins_are_tried_in_their_order_until_one_pulls(
    logins: list[Login], tried: list[Login | None]
) -> None:
    runtime = FakeRuntime()
    runtime.images_to_pull.add(ABSENT)
    if logins:
        runtime.wanted[ABSENT] = RIGHT
    await ImagePulls().pull(runtime, ABSENT, logins)
    assert runtime.logins == tried


async def test_when_no_login_pulls_every_different_cause_is_told_once() -> None:
    runtime = FakeRuntime()
    runtime.wanted[ABSENT] = RIGHT
    with pytest.raises(ImageProblem) as same:
        await ImagePulls().pull(runtime, ABSENT, [WRONG, UNUSED])
    assert str(same.value) == f'failed to pull image "{ABSENT}": 401'
    runtime.fail("pull_image", "no route", times=1)
    with pytest.raises(ImageProblem) as others:
        await ImagePulls().pull(runtime, ABSENT, [WRONG, UNUSED])
    assert str(others.value) == f'[no route, failed to pull image "{ABSENT}": 401]'


async def test_a_pull_that_takes_too_long_is_not_tried_as_others() -> None:
    runtime = FakeRuntime()
    runtime.fail("pull_image", RuntimeTimeout("pull_image", "too long"))
    with pytest.raises(ImageProblem, match="too long"):
        await ImagePulls().pull(runtime, ABSENT, [WRONG, RIGHT])
    assert runtime.logins == [WRONG]


def pull_all(pulls: ImagePulls, runtime: FakeRuntime, number: int) -> list[asyncio.Task[float]]:
    pulled = (pulls.pull(runtime, PRESENT) for _ in range(number))
    return [loops.spawn(one, name="pull") for one in pulled]


@pytest.mark.looptime
@pytest.mark.parametrize(("at_once", "begun"), [(1, 1), (2, 2), (None, 3)])
async def test_so_many_pulls_run_at_once_and_a_cancelled_one_gives_its_place_up(
    at_once: int | None, begun: int
) -> None:
    runtime = FakeRuntime()
    pulls = ImagePulls(at_once)
    tasks: list[asyncio.Task[float]] = []
    for _ in range(3):
        held = runtime.hold("pull_image")
        tasks += pull_all(pulls, runtime, 1)
        await asyncio.sleep(1)
        if not held.reached.is_set():
            break
    assert len(runtime.called("pull_image")) == begun
    await loops.cancel(*tasks)
    runtime.heal("pull_image")
    async with asyncio.timeout(60):
        held.release()
        await pulls.pull(runtime, PRESENT)


@pytest.mark.looptime
async def test_pulls_above_the_rate_wait_and_the_time_they_wait_is_not_theirs() -> None:
    runtime = FakeRuntime()
    loop = asyncio.get_running_loop()
    pulls = ImagePulls(per_s=2, burst=3)
    for _ in range(2):  # the burst is there again after a while
        began_s = loop.time()
        took_s = await asyncio.gather(*pull_all(pulls, runtime, 7))
        assert loop.time() - began_s == pytest.approx(2.0, abs=0.01)
        assert max(took_s) == 0
        await asyncio.sleep(10)


class Registry(FakeRuntime):
    """Answers after a second, of images in "hangs/" never."""

    async def pull_image(self, reference: str, login: Login | None = None) -> str:
        await asyncio.sleep(math.inf if reference.startswith("hangs/") else 1)
        return await super().pull_image(reference, login)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("at_once", "per_s", "image", "within_s"),
    [(1, 0, PRESENT, 2), (None, 1, PRESENT, 2), (1, 0, "hangs/x", 61), (2, 0, "hangs/x", 61)],
)
async def test_many_pulls_of_a_namespace_hold_up_those_of_others_once(
    at_once: int | None, per_s: int, image: str, within_s: float
) -> None:
    """One after the other, each took up to an hour of everybody's turn."""
    loop, runtime = asyncio.get_running_loop(), Registry()
    pulls = ImagePulls(at_once, per_s=per_s)
    many = (pulls.pull(runtime, image, namespace="tenant") for _ in range(100))
    tasks = [loops.spawn(one, name="pull") for one in many]
    try:
        await asyncio.sleep(0)
        for _ in range(3):
            began_s = loop.time()
            await pulls.pull(runtime, PRESENT, namespace="other")
            assert loop.time() - began_s <= within_s + 1
    finally:
        await loops.cancel(*tasks)
