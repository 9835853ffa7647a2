"""Secrets struck out of texts: known values, and what looks like a credential."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.debug.bundle import scrubber, secrets_of

LOOKS = [
    (b"Authorization: Bearer abcdef0123456789\n", b"Authorization: Bearer CLASSIFIED\n"),
    (b"authorization: bearer abcdef0123456789", b"authorization: bearer CLASSIFIED"),
    (b"Authorization: Basic dXNlcjpwYXNz", b"Authorization: Basic CLASSIFIED"),
    (b"GET https://user:pass@host/x", b"GET https://CLASSIFIED@host/x"),
    (b"GET https://host:8443/x@y", b"GET https://host:8443/x@y"),
    (
        b"a\n-----BEGIN EC PRIVATE KEY-----\nMHc\n-----END EC PRIVATE KEY-----\nb",
        b"a\nCLASSIFIED\nb",
    ),
    (b"-----BEGIN PRIVATE KEY-----\ncut off", b"CLASSIFIED"),
    (b"-----BEGIN CERTIFICATE-----\nMII", b"-----BEGIN CERTIFICATE-----\nMII"),
    (b"token eyJhbGciOiJI.eyJzdWIiOiJ4.c2lnbmF0dXJl.", b"token CLASSIFIED."),
    (b"the bearer of news", b"the bearer of news"),
]


@pytest.mark.parametrize(("text", "cleaned"), LOOKS)
def test_what_looks_like_a_credential_is_struck_out(text: bytes, cleaned: bytes) -> None:
    assert scrubber(())(text) == cleaned


WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789+/=.*[(", min_size=4, max_size=30)


@given(secrets=st.sets(WORDS, min_size=1, max_size=4), around=st.lists(WORDS, max_size=4))
def test_no_known_value_is_left_whatever_stands_around_it(
    secrets: set[str], around: list[str]
) -> None:
    text = " ".join([*around, *secrets, *around, *secrets]).encode()
    cleaned = scrubber(secrets)(text).replace(b"CLASSIFIED", b"")
    assert not [secret for secret in secrets if secret.encode() in cleaned]


def test_a_value_too_short_to_be_a_secret_leaves_the_text_alone() -> None:
    assert scrubber(["a", "", "abc"])(b"abc") == b"abc"


def test_the_secrets_of_a_configuration_are_its_secret_fields_and_their_words() -> None:
    config = NodeAgentConfiguration.model_validate(
        {"staticPodURLHeader": {"Authorization": ["Bearer s3cret"], "X": ["other"]}}
    )
    assert secrets_of(config) == {"Bearer s3cret", "Bearer", "s3cret", "other"}
    address = NodeAgentConfiguration(staticPodURL="https://u:p%40ss@h/x?as=json&key=abcdef%21")
    query = {"as=json&key=abcdef%21", "as=json&key=abcdef!"}
    assert secrets_of(address) == {"p%40ss", "p@ss", "abcdef%21", "abcdef!", *query}
    assert secrets_of(NodeAgentConfiguration()) == set()
