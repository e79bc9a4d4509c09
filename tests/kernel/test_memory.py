"""What is kept, what is forgotten, and that it makes no difference."""

import numpy as np

from dp_accounting_ext.kernel import memory


def made(size, log=None, name=None):
    def make():
        if log is not None:
            log.append(name)
        return np.zeros(size, dtype=np.uint8)

    return make


def test_what_was_asked_for_last_is_kept():
    kept, log = memory.Memory(100), []
    for name in "abcabdacd":
        assert kept.get(name, made(30, log, name)).size == 30
        assert kept.nbytes <= 100
    # Three fit: d drives out c, then c drives out b.
    assert "".join(log) == "abcdc"


def test_a_value_that_is_too_large_is_kept_alone():
    kept, log = memory.Memory(100), []
    kept.get("small", made(50, log, "small"))
    kept.get("large", made(500, log, "large"))
    assert kept.nbytes == 500
    kept.get("large", made(500, log, "large"))
    assert log == ["small", "large"]
    kept.get("small", made(50))
    assert kept.nbytes == 50
