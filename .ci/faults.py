"""Faults that are put into the package, and how their places are found.

A fault is a text of the code and what it becomes. Its place is the one place of the
package that has this text; or else, as code is renamed, the one that says the same by
other names: every token is equal, but names, of
which each, with what stands before its dots, stands for one other. Among several such
places it is the one where the most names are, or end, as they did. White space,
comments and trailing commas do not count.
"""

from collections.abc import Iterator
import functools
from itertools import starmap
import keyword
import pathlib
import re
import shutil
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "dp_accounting_ext"
_TOKEN = re.compile(
    r"""(?P<skip>\#[^\n]*|,(?=\s*[)\]}]))
    | (?P<name>[^\W\d]\w*(?:\s*\.\s*[^\W\d]\w*)*)
    | (?P<other>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | \d[\w.]* | \S)""",
    re.VERBOSE,
)
_NAME = "\1"  # In a skeleton: any name that is no keyword.


class Fault(NamedTuple):
    """A change of the code: each old text becomes the new one."""

    name: str
    changes: tuple[tuple[str, str], ...]


class Place(NamedTuple):
    """Where a text of the code is, and what its names are called there."""

    path: pathlib.Path
    start: int
    end: int
    names: dict[str, str]


class _Tokens(NamedTuple):
    """Tokens of a text, where they are, and what is left without names."""

    words: list[str]
    spans: list[tuple[int, int]]
    skeleton: str


def fault(name: str, *changes: str) -> Fault:
    """Returns a fault from an old text and a new one, as often as need be."""
    return Fault(name, tuple(zip(*[iter(changes)] * 2, strict=True)))


def copied(folder: pathlib.Path) -> None:
    """Copies the package and the tests."""
    for name in (PACKAGE, "tests"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)


def put_in(folder: pathlib.Path, chosen: Fault) -> dict[pathlib.Path, str]:
    """Changes the code in a folder. Returns what its files held before.

    Raises:
        ValueError: If the code has no place for the fault, or several.
    """
    before: dict[pathlib.Path, str] = {}
    for old, new in chosen.changes:
        try:
            place = place_of(folder, old)
        except ValueError as error:
            raise ValueError(f"{chosen.name}: {error}") from None
        text = place.path.read_text()
        before.setdefault(place.path, text)
        put = renamed(new.strip(), place.names)
        place.path.write_text(text[: place.start] + put + text[place.end :])
    return before


def place_of(folder: pathlib.Path, old: str) -> Place:
    """Returns where a folder's package has an old text, as it is or by other names.

    Raises:
        ValueError: If there is no such place, or if there are several.
    """
    paths = sorted((folder / PACKAGE).rglob("*.py"))
    holding = [path for path in paths for _ in range(path.read_text().count(old))]
    if len(holding) == 1:
        stripped = old.strip()
        start = holding[0].read_text().index(old) + old.index(stripped)
        return Place(holding[0], start, start + len(stripped), {})
    found = []
    for path in paths:
        found += places_by_other_names(path, _tokens_of(old))
    same = [sum(starmap(_alike, place.names.items())) for place in found]
    if not same or same.count(max(same)) > 1:
        raise ValueError(f"{len(same)} places, not one, say {old!r}.")
    return found[same.index(max(same))]


def places_by_other_names(path: pathlib.Path, old: _Tokens) -> Iterator[Place]:
    """Yields the places of a file that differ from an old text in names alone."""
    there = _tokens_of(path.read_text())
    at = there.skeleton.find(old.skeleton)
    while at >= 0:
        first = there.skeleton.count("\n", 0, at + 1) - 1
        last = first + len(old.words)
        names = dict(zip(old.words, there.words[first:last], strict=True))
        one_to_one = len(set(names.values())) == len(names)
        mapped = [names[word] for word in old.words] == there.words[first:last]
        if one_to_one and mapped:
            yield Place(path, there.spans[first][0], there.spans[last - 1][1], names)
        at = there.skeleton.find(old.skeleton, at + 1)


def renamed(text: str, names: dict[str, str]) -> str:
    """Returns code whose names are those of a place."""

    def other(token: re.Match[str]) -> str:
        first, dot, rest = token[0].partition(".")
        return names.get(token[0], names.get(first, first) + dot + rest)

    return _TOKEN.sub(other, text)


def _alike(name: str, other: str) -> int:
    """Returns 2 for one name, 1 for names that end alike, else 0."""
    return (name == other) + (name.rpartition(".")[2] == other.rpartition(".")[2])


@functools.cache
def _tokens_of(text: str) -> _Tokens:
    found = [token for token in _TOKEN.finditer(text) if token.lastgroup != "skip"]
    words = [token[0] for token in found]
    skeleton = [
        _NAME if token.lastgroup == "name" and not keyword.iskeyword(token[0]) else word
        for token, word in zip(found, words, strict=True)
    ]
    # Strings of several lines are no part of a fault.
    whole = "".join("\n" + word.replace("\n", " ") for word in skeleton) + "\n"
    return _Tokens(words, [token.span() for token in found], whole)
