"""What is inherited of a class that is newer than the heir knows."""

import pytest

from dp_accounting_ext.validation import inheritance


class Newer:
    """A parent with names of every kind."""

    limit = 5

    def __init__(self):
        self.state = 1

    def known(self):
        return self.state

    def replaced(self):
        return self.state

    def unheard_of(self):
        return self.state

    @property
    def figure(self):
        return self.state

    @classmethod
    def made(cls):
        return cls()

    @staticmethod
    def helper():
        return 1


class Heir(Newer):
    """A child that keeps one method and replaces another."""

    def replaced(self):
        return 2


inheritance.refuse_what_is_inherited(Heir, keep={"known"})


def test_what_is_kept_or_replaced_works():
    assert Heir().known() == 1
    assert Heir().replaced() == 2


@pytest.mark.parametrize("name", ["unheard_of", "figure", "made", "helper", "limit"])
def test_what_is_unknown_is_refused_by_name(name):
    for owner in (Heir(), Heir):
        with pytest.raises(AttributeError, match=f"`{name}` is not supported.*Heir"):
            getattr(owner, name)
        assert not hasattr(owner, name)


def test_the_parent_is_as_it_was():
    assert Newer().unheard_of() == Newer().figure == Newer.helper() == 1
    assert isinstance(Newer.made(), Newer)
