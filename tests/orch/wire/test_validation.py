from __future__ import annotations

import pytest

from orch.wire import validation


# apimachinery util/validation/validation_test.go, TestIsDNS1123Label.
@pytest.mark.parametrize(
    "text", ["a", "ab", "abc", "a1", "a-1", "a--1--2--b", "0", "01", "012", "1a", "1-a", "a" * 63]
)
def test_dns_labels_are_accepted(text: str) -> None:
    assert validation.is_dns1123_label(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "A", "ABC", "aBc", "A1", "-", "a-", "-a", "1-", "-1", "_", "a_", "_a", "a_b", "1_",
        ".", "a.", ".a", "a.b", "1.", " ", "a ", " a", "a b", "a" * 64, "a\n", "é",
    ],
)  # fmt: skip
def test_other_texts_are_not_dns_labels(text: str) -> None:
    assert not validation.is_dns1123_label(text)


@pytest.mark.parametrize("text", ["a", "a.b", "0.1.2", "a-1.b-2", "a.b.c.d.e", "a" * 253])
def test_dns_subdomains_are_accepted(text: str) -> None:
    assert validation.is_dns1123_subdomain(text)


@pytest.mark.parametrize(
    "text", ["", "A", "a.", ".a", "a..b", "a.-b", "a-.b", "A.b", "a_b", "a/b", "a" * 254, "a\n"]
)
def test_other_texts_are_not_dns_subdomains(text: str) -> None:
    assert not validation.is_dns1123_subdomain(text)


# apimachinery util/validation/validation_test.go, TestIsQualifiedName.
@pytest.mark.parametrize(
    "text",
    [
        "simple", "now-with-dashes", "1-starts-with-num", "1234", "simple/simple",
        "now-with-dashes/simple", "1-num.2-num/3-num", "1234/5678", "1.2.3.4/5678",
        "Uppercase_Is_OK_123", "example.com/Uppercase_Is_OK_123", "requests.storage-foo", "a" * 63,
        "a" * 253 + "/" + "b" * 63,
    ],
)  # fmt: skip
def test_qualified_names_are_accepted(text: str) -> None:
    assert validation.qualified_name_problems(text) == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "nospecialchars%^=@", "cantendwithadash-", "-cantstartwithadash-", "only/one/slash",
        "Example.com/abc", "example_com/abc", "example.com/", "/simple", "a" * 64,
        "a" * 254 + "/abc", "simple\n",
    ],
)  # fmt: skip
def test_other_texts_are_not_qualified_names(text: str) -> None:
    assert validation.qualified_name_problems(text)


@pytest.mark.parametrize(
    "text", ["", "simple", "now-with-dashes", "1-starts", "end.s_1", "1234", "A" * 63]
)
def test_label_values_are_accepted(text: str) -> None:
    assert validation.label_value_problems(text) == ()


@pytest.mark.parametrize("text", ["no%", "end-", "-start", ".x", "a/b", "a b", "A" * 64, "x\n"])
def test_other_texts_are_not_label_values(text: str) -> None:
    assert validation.label_value_problems(text)


def test_messages_are_those_clients_know() -> None:
    assert validation.dns1123_label_problems("A" * 64) == (
        "must be no more than 63 characters",
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
        "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
        "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
    )
    assert validation.dns1123_subdomain_problems("a_b") == (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
        "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex "
        "used "
        r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
    )
    assert validation.qualified_name_problems("/x") == ("prefix part must be non-empty",)
    assert validation.qualified_name_problems("")[0] == "name part must be non-empty"
    assert validation.qualified_name_problems("a/b/c")[0].endswith(
        "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
    )


def test_of_a_text_far_too_long_only_that_is_told() -> None:
    """It is not matched: three megabytes of short labels took 0.3 s and half a gigabyte."""
    labels, problem = "k." * 1_000, "must be no more than"
    assert validation.dns1123_subdomain_problems(labels) == (f"{problem} 253 characters",)
    assert validation.qualified_name_problems(f"{labels}/a") == (
        f"prefix part {problem} 253 characters",
    )
    assert validation.port_name_problems(labels) == (f"{problem} 15 characters",)


@pytest.mark.parametrize("text", ["system:node", "a b", "Ärger", ""])
def test_role_names_may_be_any_path_segment(text: str) -> None:
    assert validation.path_segment_problems(text) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
        ("a/b", "may not contain '/'"),
        ("%", "may not contain '%'"),
    ],
)
def test_a_path_segment_cannot_hold_path_syntax(text: str, problem: str) -> None:
    assert validation.path_segment_problems(text) == (problem,)


# apimachinery util/validation/validation_test.go, TestIsValidPortName, TestIsConfigMapKey,
# TestIsHTTPHeaderName, TestIsValidIP, TestIsRelaxedEnvVarName.
@pytest.mark.parametrize(
    ("problems", "accepted", "refused"),
    [
        (
            validation.port_name_problems,
            ["telnet", "re-mail-ck", "pop3", "a", "a-1", "1-a", "1a", "a" * 15],
            ["", "1-2", "a--b", "-a", "a-", "A", "a_b", "a.b", "12", "a" * 16, "a\n", "é"],
        ),
        (
            validation.port_problems,
            [1, 80, 65535, "http"],
            [0, -1, 65536, 2**62, "", "80"],
        ),
        (
            validation.variable_name_problems,
            ["a", "A b", "..", "1", "!~ "],
            ["", "=", "a=b", "ä", "a\n", "\x7f"],
        ),
        (
            validation.config_key_problems,
            ["a", "A.b_c-d", ".a", "a..b", "-", "_", "a" * 253],
            ["", ".", "..", "..a", "a/b", "a b", "é", "a" * 254, "a\n"],
        ),
        (validation.header_name_problems, ["X-A", "1", "-"], ["", "a b", "a:", "a_b", "é", "a\n"]),
        (
            validation.search_domain_problems,
            ["a", "a.", ".", "_a.b_c", "1"],
            ["", "..", "A", "a..b", "a.-b", "a b", "__a", "a" * 254],
        ),
        (
            validation.address_problems,
            ["1.2.3.4", "001.2.3.004", "0.0.0.0", "::", "2001:db8::1", "::ffff:1.2.3.4"],
            ["", "1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.4/8", "fe80::1%e", "a.b", " 1.2.3.4"],
        ),
        (
            validation.local_path_problems,
            ["a", "a/b", "a..", ".a", "a/..b"],
            ["/a", "..", "..a", "../a", "a/../b", "a/.."],
        ),
        (validation.descending_path_problems, ["a", "..a", "a/..b"], ["/", "a/..", "../a"]),
    ],
)
def test_names_addresses_and_paths_are_told_from_others(problems, accepted, refused) -> None:
    assert [text for text in accepted if problems(text)] == []
    assert [text for text in refused if not problems(text)] == []
