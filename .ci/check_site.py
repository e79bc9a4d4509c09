"""Checks the built site: whole without a network, coloured, searchable, well set.

python .ci/check_site.py FOLDER
"""

from html import parser
import json
import pathlib
import re
import sys

# What newcomers search for; each is a word, or the beginning of one, in the index.
SEARCHED = ("ε", "epsilon", "epsil", "calibr", "pldacc", "σ", "wasserstein")
COLOURED = '<span class="kn">'


class Loaded(parser.HTMLParser):
    """What a page loads when it is opened: scripts, styles and pictures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the address of an element that loads one."""
        found = dict(attrs)
        is_loaded = tag in ("script", "img", "iframe")
        is_loaded |= tag == "link" and found.get("rel") in ("stylesheet", "icon")
        address = found.get("src") or found.get("href")
        if is_loaded and address:
            self.addresses.append(address)


def faults(site: pathlib.Path) -> list[str]:
    """Returns what is wrong with a site, in words."""
    found = []
    pages = {
        path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")
    }
    del pages["404.html"]
    for name, page in pages.items():
        for address in Loaded(page).addresses:
            if re.match(r"(https?:)?//", address):
                found.append(f"{name} loads {address} from a network.")
            elif not (site / address.partition("?")[0]).exists():
                found.append(f"{name} loads {address}, which is not there.")
        for words in re.findall(r"<em>([^<]*(?:&lt;|=|≤|≥)[^<]*)", page):
            found.append(f"{name} has a formula in italics: {words[:60]}…")
    if COLOURED not in pages["index.html"]:
        found.append("The code of index.html has no colours.")
    reference = pages["reference.html"]
    signatures = re.findall(r'<div class="[^"]*doc-signature.*?</div>', reference, re.S)
    lines = [re.sub("<[^>]+>", "", signature) for signature in signatures]
    longest = max(len(line) for text in lines for line in text.splitlines())
    if longest > 110:
        found.append(f"A signature has a line of {longest} letters.")
    for values in re.findall(r"Returns:</span>.*?</ul>", reference, re.S):
        if values.count("doc-section-item") > 1:
            words = re.sub("<[^>]+>|\\s+", " ", values)[:80]
            found.append(f"A returned value is set as several: {words}…")
    file = site / "search" / "search_index.js"  # JSON alone is not read from a disk.
    if not file.exists():
        return [*found, "Search does not work from a disk."]
    text = file.read_text(encoding="utf-8").partition("=")[2]
    index = json.loads(text.strip().removesuffix(";"))
    separator, words = index["config"]["separator"], set()
    for document in index["docs"]:
        plain = re.sub("<[^>]+>", " ", document["title"] + " " + document["text"])
        words |= set(re.split(separator, plain.lower()))
    for asked in SEARCHED:
        if not any(word.startswith(asked) for word in words):
            found.append(f"A search for {asked!r} finds nothing.")
    return found


if __name__ == "__main__":
    FOUND = faults(pathlib.Path(sys.argv[1]))
    print("\n".join(FOUND) or "The site is whole.")
    sys.exit(bool(FOUND))
