"""The table of system calls: complete enough to say of a name that it is none."""

import pytest

from nodeagent.profiles import syscalls


@pytest.mark.parametrize(
    ("name", "architecture", "has"),
    [
        ("write", "x86_64", True),
        ("mkdir", "x86_64", True),
        ("mkdir", "aarch64", False),  # there it is mkdirat alone
        ("arch_prctl", "x86_64", True),
        ("arch_prctl", "aarch64", False),
        ("s390_pci_mmio_read", "s390x", True),
        ("s390_pci_mmio_read", "x86_64", False),
        ("io_uring_setup", "riscv64", True),
        ("clone3", "x86_64", True),
        ("statmount", "x86_64", True),  # Linux 6.8
    ],
)
def test_a_name_belongs_to_the_architectures_that_have_it(
    name: str, architecture: str, has: bool
) -> None:
    assert (architecture in syscalls.architectures_by_name()[name]) is has


def test_every_architecture_has_some_hundred_calls_and_nothing_else_is_in_the_table() -> None:
    table = syscalls.architectures_by_name()

    assert set().union(*table.values()) == set(syscalls.ARCHITECTURES)
    for architecture in syscalls.ARCHITECTURES:
        assert 300 < sum(1 for listed in table.values() if architecture in listed) < 500
    assert "mkdri" not in table


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [("x86_64", "x86_64"), ("aarch64", "aarch64"), ("armv7l", "arm"), ("i686", "x86"),
     ("ppc64le", "ppc64"), ("vax", "")],
)  # fmt: skip
def test_a_machine_is_known_by_the_tables_word(machine: str, architecture: str) -> None:
    assert syscalls.architecture_of(machine) == architecture
