"""A declared secret shows in no form but the one that asks for it."""

import json
import logging
import pickle
from dataclasses import asdict, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from orch.component.secret import Secret


class Record(BaseModel):
    token: Secret = Secret("")
    headers: dict[str, list[Secret]] = {}


@dataclass
class Holder:
    token: Secret


@given(st.text("0123456789abcdef", min_size=12))
def test_no_way_of_showing_a_record_shows_its_secret(value: str) -> None:
    record = Record.model_validate({"token": value, "headers": {"Authorization": [value]}})
    shown = [
        repr(record),
        str(record),
        record.model_dump_json(),
        json.dumps(record.model_dump(mode="json")),
        str(record.model_dump()),
        f"{record.token} {record.token!r} {record.token:>40}",
        str(asdict(Holder(record.token))),
        logging.makeLogRecord({"msg": "%s", "args": (record.token,)}).getMessage(),
    ]
    assert not [text for text in shown if value in text]
    assert record.token.reveal() == value


def test_a_secret_prints_as_the_word_and_an_unset_one_as_nothing() -> None:
    record = Record.model_validate({"token": "x", "headers": {"A": ["y", ""]}})
    dumped = record.model_dump(mode="json")
    assert dumped == {"token": "CLASSIFIED", "headers": {"A": ["CLASSIFIED", ""]}}


def test_an_error_about_a_secret_does_not_quote_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Record.model_validate({"token": ["hunter2"]})
    assert "hunter2" not in str(caught.value.errors(include_input=False))


def test_a_copy_is_still_a_secret() -> None:
    assert str(pickle.loads(pickle.dumps(Secret("x")))) == "CLASSIFIED"
