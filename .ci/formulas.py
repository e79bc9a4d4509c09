"""A hook of mkdocs: formulas between dollars become MathML, which browsers typeset.

Nothing is loaded from a network, and no script runs.
"""

import html
import re
from typing import Any

from latex2mathml import converter

_FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL
)


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
    return content
