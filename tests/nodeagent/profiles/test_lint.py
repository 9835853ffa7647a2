"""Profiles that are fine, and what is said of those that are not.

Sources: the OCI runtime specification (config-linux.md, seccomp), spec.md "Seccomp profile
selection", and what runc 1.3 refuses.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.profiles import syscalls
from nodeagent.profiles.lint import lint
from nodeagent.profiles.rules import ERROR, WARNING

NAMES = syscalls.architectures_by_name()
DENY, ALLOW = "SCMP_ACT_ERRNO", "SCMP_ACT_ALLOW"


def problems(profile: Any, level: str = ERROR, *, architecture: str = "x86_64") -> list[str]:
    """`where: message` of each problem of that level."""
    text = profile if isinstance(profile, bytes) else json.dumps(profile).encode()
    found = lint(text, NAMES, architecture)
    return [f"{one.where}: {one.message}" for one in found if one.level == level]


def rule(*names: Any, action: Any = DENY, **more: Any) -> dict[str, Any]:
    return {"names": list(names), "action": action, **more}


def blocking(*rules: Any, **more: Any) -> dict[str, Any]:
    """A profile that allows what its rules do not speak of."""
    return {"defaultAction": ALLOW, "syscalls": list(rules), **more}


COMPARED = {"index": 5, "value": 2**64 - 1, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
FINE = [
    {"defaultAction": ALLOW},
    blocking(rule("mkdir", "mkdirat", errnoRet=1)),
    blocking(rule("clone", args=[COMPARED]), rule("clone", args=[{**COMPARED, "index": 0}])),
    blocking(rule("mkdir", errnoRet=0), rule("rmdir", errnoRet=4095)),
    {"defaultAction": DENY, "defaultErrnoRet": 38, "syscalls": [rule("execve", action=ALLOW)]},
    blocking(
        architectures=["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        flags=["SECCOMP_FILTER_FLAG_LOG"],
        listenerPath="/run/l.sock",
        listenerMetadata="x",
    ),
    blocking(rule("mkdir", action="SCMP_ACT_NOTIFY"), listenerPath="/run/l.sock"),
    *(blocking(rule("mkdir", action=f"SCMP_ACT_{action}")) for action in (
        "ERRNO", "KILL", "KILL_PROCESS", "KILL_THREAD", "TRAP", "TRACE", "LOG")),
]  # fmt: skip


@pytest.mark.parametrize("profile", FINE)
def test_a_valid_profile_has_no_findings(profile: dict[str, Any]) -> None:
    assert problems(profile) == problems(profile, WARNING) == []


WRONG: list[tuple[Any, str]] = [
    (b"", ": it is not JSON"),
    (b"{", ": it is not JSON"),
    (b"\xff", ": it is not JSON"),
    (b"[" * 100_000, ": it is not JSON"),
    ([], ": it is not a JSON object"),
    (b'{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [], "syscalls": []}',
     ": the key 'syscalls' is given twice"),
    ({}, "defaultAction: it is missing"),
    ({"defaultAction": 1}, "defaultAction: it must be a string, not 1"),
    ({"defaultAction": "ALLOW"}, "defaultAction: unknown action 'ALLOW'"),
    ({"defaultAction": "SCMP_ACT_KILL_PROCES"}, "did you mean SCMP_ACT_KILL_PROCESS?"),
    ({"defaultAction": "SCMP_ACT_NOTIFY"}, "defaultAction: SCMP_ACT_NOTIFY cannot be the default"),
    ({"defaultAction": "SECCOMP_RET_USER_NOTIF"}, "SCMP_ACT_NOTIFY cannot be the default action"),
    ({"defaultAction": ALLOW, "defaultErrnoRet": "1"}, "defaultErrnoRet: it must be an integer"),
    ({"defaultAction": ALLOW, "defaultErrnoRet": True}, "defaultErrnoRet: it must be an integer"),
    ({"defaultAction": ALLOW, "defaultErrnoRet": 4096}, "defaultErrnoRet: 4096 is not an error"),
    ({"defaultAction": ALLOW, "syscalls": {}}, "syscalls: it must be a list"),
    ({"defaultAction": ALLOW, "sycalls": []}, "sycalls: unknown key"),
    ({"defaultAction": ALLOW, "archMap": []}, "archMap: it belongs to another tool's format"),
    (blocking(architectures=["x86_64"]), 'architectures[0]: "x86_64" is not among'),
    (blocking(flags=["LOG"]), 'flags[0]: "LOG" is not among'),
    (blocking("mkdir"), 'syscalls[0]: it must be an object, not "mkdir"'),
    (blocking({}), "syscalls[0].names: it is missing"),
    (blocking({}), "syscalls[0].action: it is missing"),
    (blocking({"name": "mkdir", "action": DENY}), "syscalls[0].name: write it as a list"),
    (blocking(rule("mkdir", includes={})), "syscalls[0].includes: unknown key"),
    (blocking({"names": "mkdir", "action": DENY}), "syscalls[0].names: it must be a list"),
    (blocking(rule()), "syscalls[0].names: it is empty"),
    (blocking(rule("mkdir", "")), "syscalls[0].names[1]: the name is empty"),
    (blocking(rule(7)), "syscalls[0].names[0]: a name must be a string, not 7"),
    (blocking(rule("mkdri")), "unknown system call 'mkdri'; did you mean mkdir?"),
    (blocking(rule("unknown")), "unknown system call 'unknown'"),
    (blocking(rule("mkdir", "rmdir", "mkdir")), "names[2]: 'mkdir' is in this list twice"),
    (blocking(rule("mkdir"), rule("mkdir")), "syscalls[1].names: 'mkdir' is in syscalls[0] too"),
    (blocking(rule("mkdir"), rule("mkdir", action=ALLOW)), "there with another action"),
    (blocking(rule("mkdir", action="deny")), "syscalls[0].action: unknown action 'deny'"),
    (blocking(rule("write", action="SCMP_ACT_NOTIFY")),
     "syscalls[0].action: SCMP_ACT_NOTIFY cannot be the action for 'write'"),
    (blocking(rule("mkdir", errnoRet=-1)), "syscalls[0].errnoRet: -1 is not an error number"),
    (blocking(rule("mkdir", errnoRet=1.5)), "syscalls[0].errnoRet: it must be an integer"),
    (blocking(rule("mkdir", args={})), "syscalls[0].args: it must be a list"),
    (blocking(rule("mkdir", args=[1])), "syscalls[0].args[0]: it must be an object"),
    (blocking(rule("mkdir", args=[{}])), "syscalls[0].args[0].index: it is missing"),
    (blocking(rule("mkdir", args=[{**COMPARED, "index": 6}])), "args[0].index: it must be an"),
    (blocking(rule("mkdir", args=[{**COMPARED, "value": -1}])), "args[0].value: it must be an"),
    (blocking(rule("mkdir", args=[{**COMPARED, "value": "1"}])), "args[0].value: it must be an"),
    (blocking(rule("mkdir", args=[{**COMPARED, "op": "=="}])), "op: unknown operator"),
    (blocking(rule("mkdir", args=[{**COMPARED, "op": "EQ"}])), "op: write it as SCMP_CMP_EQ"),
    (blocking(rule("mkdir", args=[{**COMPARED, "val": 1}])), "args[0].val: unknown key"),
    ({"defaultAction": DENY}, ": it denies everything: the default action denies"),
    ({"defaultAction": "SCMP_ACT_KILL", "syscalls": [rule(action=ALLOW)]},
     ": it denies everything"),
    ({"defaultAction": DENY, "syscalls": [rule("write", action=ALLOW)]},
     ": it denies everything: no program can start without execve"),
    (blocking(rule("execve")), ": it denies everything: no program can start without execve"),
]  # fmt: skip


@pytest.mark.parametrize(("profile", "told"), WRONG)
def test_errors_are_reported_with_their_place(profile: Any, told: str) -> None:
    found = problems(profile)

    assert any(told in one for one in found), found


def test_every_error_is_reported_once() -> None:
    assert len(problems(blocking(rule("mkdri")))) == 1
    assert len(problems({"defaultAction": "x"})) == 1


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        (blocking(rule("s390_pci_mmio_read")), "x86_64 has no system call 's390_pci_mmio_read'"),
        (blocking(rule("mkdir", action="SCMP_ACT_NOTIFY")), "listenerPath: SCMP_ACT_NOTIFY needs"),
        (blocking(rule("mkdir", action="SCMP_ACT_LOG", errnoRet=1)), "this has no effect"),
        (blocking(rule("mkdir", action="SECCOMP_RET_USER_NOTIF")), "the kernel's name"),
    ],
)
def test_doubtful_parts_are_warnings(profile: Any, told: str) -> None:
    assert problems(profile) == []
    assert any(told in one for one in problems(profile, WARNING))


def test_system_calls_are_those_of_the_architecture_that_is_meant() -> None:
    assert problems(blocking(rule("mkdir")), WARNING, architecture="aarch64") == [
        "syscalls[0].names[0]: aarch64 has no system call 'mkdir'"
    ]
    assert problems(blocking(rule("mkdir")), WARNING, architecture="") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from([DENY, ALLOW, "names", "args", "execve", "syscalls", "SCMP_CMP_EQ"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["defaultAction", "defaultErrnoRet", "syscalls", "names", "action", "errnoRet", "args",
             "index", "value", "op", "flags", "architectures", "listenerPath"]
        ),
        inner,
        max_size=5,
    ),
)  # fmt: skip


@given(JSON)
def test_no_text_is_too_strange(profile: Any) -> None:
    assert isinstance(lint(json.dumps(profile).encode(), NAMES, "x86_64"), list)


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(text: bytes) -> None:
    assert isinstance(lint(text, NAMES, "x86_64"), list)
