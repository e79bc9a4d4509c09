"""Faults that are put into the package, and how their places are found.

A fault is a text of the code and what it becomes. Its place is where the code has this
text in the module that is named; or else, as code is renamed and moved, the one place
of the package that says the same by other names: every token is equal, but names, of
which each stands for one other. Among several such places it is the one where the most
names are still the same. White space, comments and trailing commas do not count.
"""

from collections.abc import Iterator
import functools
import keyword
import pathlib
import re
import shutil
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = "dp_accounting_ext"
_TOKEN = re.compile(
    r"""(?P<skip>\#[^\n]*|,(?=\s*[)\]}]))
    | (?P<name>[^\W\d]\w*)
    | (?P<other>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | \d[\w.]* | \S)""",
    re.VERBOSE,
)
_NAME = "\1"  # In a skeleton: any name that is no keyword.


class Fault(NamedTuple):
    """A change of the code: in each module, each old text becomes the new one."""

    name: str
    changes: tuple[tuple[str, str, str], ...]


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
    """Returns a fault from a module, an old text and a new one, as often as need be."""
    return Fault(name, tuple(zip(*[iter(changes)] * 3, strict=True)))


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
    for name, old, new in chosen.changes:
        try:
            place = place_of(folder, name, old)
        except ValueError as error:
            raise ValueError(f"{chosen.name}: {error}") from None
        text = place.path.read_text()
        before.setdefault(place.path, text)
        put = renamed(new.strip(), place.names)
        place.path.write_text(text[: place.start] + put + text[place.end :])
    return before


def place_of(folder: pathlib.Path, module: str, old: str) -> Place:
    """Returns where a folder's package has an old text, as it is or by other names.

    Raises:
        ValueError: If there is no such place, or if there are several.
    """
    path, stripped = folder / module, old.strip()
    text = path.read_text() if path.exists() else ""
    if text.count(old) == 1:
        start = text.index(old) + old.index(stripped)
        return Place(path, start, start + len(stripped), {})
    found = []
    for each in sorted((folder / PACKAGE).rglob("*.py")):
        found += places_by_other_names(each, _tokens_of(old))
    same = [sum(a == b for a, b in place.names.items()) for place in found]
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
    return _TOKEN.sub(lambda token: names.get(token[0], token[0]), text)


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
