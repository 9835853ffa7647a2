from __future__ import annotations

import pytest

from orch.ctl import parsing
from orch.ctl.parsing import Parser
from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl, run_command


def _parser() -> Parser:
    parser = Parser()
    parser.add_argument("word")
    parser.add_argument("-w", "--watch", action="store_true")
    parser.add_argument("-v", action="count", default=0)
    return parser


# The truth values are those of https://pkg.go.dev/strconv#ParseBool.
@pytest.mark.parametrize(
    ("words", "watch"),
    [
        ((), False),
        (("--watch",), True),
        (("--watch=true",), True),
        (("--watch=1",), True),
        (("-w=T",), True),
        (("--watch=false",), False),
        (("-w", "--watch=F"), False),
        (("--watch=0", "-w"), True),
    ],
)
def test_a_boolean_flag_takes_a_truth_value_and_the_last_wins(
    words: tuple[str, ...], *, watch: bool
) -> None:
    assert _parser().parse_intermixed_args([*words, "pods"]).watch is watch
    assert _parser().parse_intermixed_args(["pods", *words]).watch is watch


@pytest.mark.parametrize(
    ("words", "level"),
    [((), 0), (("-v",), 1), (("-vv",), 2), (("-v=6",), 6), (("-v10",), 10), (("--v=0",), 0)],
)
def test_the_level_of_what_is_said_may_be_a_number(words: tuple[str, ...], level: int) -> None:
    assert _parser().parse_args(["pods", *words]).v == level


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["-v", "6", "get", "pods"], ["-v=6", "get", "pods"]),
        (["get", "pods", "--v", "10"], ["get", "pods", "-v=10"]),
        (["get", "-v", "pods", "6"], ["get", "-v", "pods", "6"]),
        (["get", "pods", "-v", "11"], ["get", "pods", "-v", "11"]),
        (["get", "pods", "--", "-v", "6"], ["get", "pods", "--", "-v", "6"]),
    ],
)
def test_a_level_may_stand_after_a_blank(words: list[str], joined: list[str]) -> None:
    assert parsing.joined(words) == joined


async def test_a_level_after_a_blank_is_no_name(orchctl: Orchctl, api: HttpApi) -> None:
    for words in (("-v", "6", "get", "nodes"), ("get", "nodes", "-v", "6")):
        result = await orchctl(*words)
        assert (result.code, f"GET {api.url}/api/v1/nodes" in result.err) == (0, True)


async def test_flags_of_every_command_and_of_one(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl(
        "--insecure-skip-tls-verify=false",
        "delete",
        "ns",
        "gone",
        "--ignore-not-found=true",
        "-v=6",
    )
    assert (result.code, result.out) == (0, "")
    assert f"GET {api.url}/api/v1" in result.err


def test_the_spellings_are_not_shown() -> None:
    assert "=true" not in run_command("get", "--help").out
    assert not any("=" in name for action in _parser().actions for name in action.option_strings)
    assert "did you mean '--watch'?" in run_command("get", "--watcj=true").err
