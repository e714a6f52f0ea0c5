"""The pattern for names in requests, which has no look-ahead, accepts the names that the rest accepts."""

import itertools

import pytest
from pydantic import TypeAdapter, ValidationError

from sublet.protocol.keys import is_name, name_rule
from sublet_functions.schemas.fields import Name

NAMES = TypeAdapter(Name)
SHORT = ("".join(letters) for n in range(6) for letters in itertools.product(".a-/", repeat=n))
LONG = [start + end * n for start in ("", ".", "..", "a") for end in ".a" for n in range(124, 130)]


def test_a_request_may_contain_the_names_that_the_rest_accepts():
    wrong = []
    for name in [*SHORT, *LONG, "a\n", "\n", "ä", "a b"]:
        try:
            accepted = NAMES.validate_python(name) == name
        except ValidationError:
            accepted = False
        if accepted != bool(is_name(name)):
            wrong.append(name)
    assert wrong == []


@pytest.mark.parametrize("name", [".", "..", "a/b", ""])
def test_the_error_is_in_words(name):
    with pytest.raises(ValidationError) as caught:
        NAMES.validate_python(name)
    assert [error["msg"] for error in caught.value.errors()] == [name_rule()]
