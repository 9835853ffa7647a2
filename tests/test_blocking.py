"""The detector itself, on code that passes for the product's."""

from pathlib import Path
from typing import Any

import blockbuster
import pytest

from orch.component.process import loops
from tests import blocking

SOURCE = """
import asyncio

def read(path):
    return path.read_text()

async def read_in_the_loop(path):
    return read(path)

async def read_in_a_thread(path):
    return await asyncio.to_thread(read, path)
"""


@pytest.fixture
def product() -> dict[str, Any]:
    """Functions whose file lies in a product package."""
    made: dict[str, Any] = {}
    exec(compile(SOURCE, f"{blocking.PRODUCT_ROOTS[1]}made_up.py", "exec"), made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x"
    path.write_text("text")
    return path


async def test_a_coroutine_of_the_product_may_not_block(
    product: dict[str, Any], file: Path
) -> None:
    with pytest.raises(blockbuster.BlockingError):
        await product["read_in_the_loop"](file)
    with pytest.raises(blockbuster.BlockingError):
        await loops.spawn(product["read_in_the_loop"](file), name="x")


async def test_it_may_in_a_thread(product: dict[str, Any], file: Path) -> None:
    assert await product["read_in_a_thread"](file) == "text"


async def test_a_test_may_call_what_blocks(product: dict[str, Any], file: Path) -> None:
    assert product["read"](file) == "text"


@pytest.mark.may_block
async def test_a_marked_test_is_spared(product: dict[str, Any], file: Path) -> None:
    assert await product["read_in_the_loop"](file) == "text"
