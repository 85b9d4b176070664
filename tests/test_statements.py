"""Test functions run statement by statement: what fails does not hide what comes after it."""

from __future__ import annotations

import functools

import pytest

from tools import statements


class Base:
    def helped(self):
        return 7


class Published(Base):
    def test_plain(self, given):
        a = given + 1
        b = a / 0
        c = b + 1  # depends on b
        assert a == 3
        c = 5
        assert c == 4
        b, d = c, [][a]
        print(b)  # was bound before, and is lost now
        assert d

    def test_within(self, given):
        def check(x):
            1 / x
            assert x

        for x in (0, 1, given):
            check(x)
        for missing in 1 / 0:
            check(missing)
        if given:
            assert super().helped() == 7
            self.__private = given
            assert self._Published__private == 3
        else:
            raise OSError
        with pytest.raises(ZeroDivisionError):
            divmod(1, 0)
        with pytest.raises(ZeroDivisionError):
            divmod(1, 1)
        try:
            divmod(1, 0)
        except ZeroDivisionError:
            given = 4
        assert given == 4
        return given

    def test_ends(self):
        x = 1
        if x:
            pytest.skip("enough")
        assert not x

    def test_raises(self):
        assert self
        raise OSError

    @functools.wraps(test_plain)
    def test_wrapped(self, *given):
        pytest.skip("a wrapper")

    test_wrapped.__wrapped__ = test_plain


def found(name, **arguments):
    """Return line and kind of error of each statement that was run."""
    outcomes = statements.run(getattr(Published, name), Published(), arguments)
    return [(line, error and type(error).__name__) for line, error in outcomes]


@pytest.mark.parametrize("name", ["test_plain", "test_wrapped"])
def test_statements_go_on_after_one_that_failed(name):
    assert found(name, given=2) == [
        (2, None), (3, "ZeroDivisionError"), (5, None), (6, None), (7, "AssertionError"),
        (8, "IndexError"),
    ]  # fmt: skip


def test_statements_within_others():
    assert found("test_within", given=3) == [
        *((3, "ZeroDivisionError"), (4, "AssertionError"), (7, None)),
        *((3, None), (4, None), (7, None)) * 2,
        *((8, "ZeroDivisionError"), (11, None), (12, None), (13, None), (16, None)),
        *((18, "Failed"), (24, None)),
    ]


def test_what_ends_a_test():
    assert found("test_ends") == [(2, None), (0, "Skipped")]
    assert found("test_raises") == [(2, None), (0, "OSError")]
