"""Pull policies, on a runtime in memory."""

from __future__ import annotations

import pytest

from nodeagent.pods.images import pulling
from nodeagent.pods.images.pulling import ImageProblem
from nodeagent.runtime.base import RuntimeUnavailable
from tests.fakes.runtime import FakeRuntime

PRESENT, ABSENT = "localhost/busybox:1", "localhost/later:1"


async def ensure(runtime: FakeRuntime, image: str, policy: str | None = None) -> None:
    if await pulling.must_pull(runtime, image, policy):
        await pulling.pull(runtime, image)


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
