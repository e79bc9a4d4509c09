"""A hook of mkdocs: formulas between dollars become MathML, which browsers typeset.

In running text x_i and e^{x} get an index and an exponent. Nothing is loaded from a
network, and no script runs.
"""

import html
import re
from typing import Any

from latex2mathml import converter

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL
)
# Tags, and what stays as it is written.
_TAGS = re.compile(r"(<(pre|code|math)\b.*?</\2>|<[^>]*>)", re.DOTALL)
_PART = r"(?:\{([^{}]*)\}|(\|[^|]+\||[−±-]?[^\W_²³]+))"
_INDEX = re.compile(rf"(?<![A-Za-z0-9_])([^\W_][′']?)_{_PART}")
_EXPONENT = re.compile(rf"(?<=[\w)\]′>])\^{_PART}")


def _with_indices(text: str) -> str:
    text = _INDEX.sub(r"\1<sub>\2\3</sub>", text)
    return _EXPONENT.sub(r"<sup>\1\2</sup>", text)


def on_page_content(content: str, **_: Any) -> str:
    """Returns a page's HTML with its formulas typeset."""

    def typeset(found: re.Match[str]) -> str:
        display = "inline" if found[2] == "(" else "block"
        return converter.convert(html.unescape(found[3]), display=display)

    content = _FORMULA.sub(typeset, content)
    if "arithmatex" in content:
        raise ValueError(
            f"A formula is not typeset: {content.partition('arithmatex')[2][:60]}"
        )
    # Of each three pieces the first is text; the others are a tag and its name.
    pieces = _TAGS.split(content)
    pieces[::3] = map(_with_indices, pieces[::3])
    del pieces[2::3]
    return "".join(pieces)
