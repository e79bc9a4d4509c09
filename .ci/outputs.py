"""A hook of mkdocs: below each cell of a notebook page stands what it shows.

A page whose head names a kernel of Jupyter is a notebook. Its blocks of Python run when
the site is built, in one namespace; one that fails ends the build.
"""

import ast
import contextlib
import html
import io
import re
from typing import Any

import markdown as markdown_library

_BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
_PLACE = '<div class="output" id="output-{}"></div>'
_shown: dict[str, list[str]] = {}


def _shown_by(cell: str, namespace: dict[str, Any]) -> str:
    """Runs a cell; returns what it prints, and its last expression, as HTML."""
    body = ast.parse(cell).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(ast.Module(body, []), "a cell", "exec"), namespace)
        value = None
        if isinstance(last, ast.Expr):
            tree = ast.Expression(last.value)
            value = eval(compile(tree, "a cell", "eval"), namespace)
    text = printed.getvalue()
    if hasattr(value, "_repr_markdown_"):
        found = markdown_library.markdown(
            value._repr_markdown_(), extensions=["tables"]
        )
    elif hasattr(value, "_repr_html_"):
        found = value._repr_html_()
    else:
        text, found = text + (repr(value) if value is not None else ""), ""
    return f"<pre>{html.escape(text)}</pre>{found}" if text else found


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Runs the cells of a notebook; returns the page with places for their outputs."""
    if "jupyter" not in page.meta:
        return markdown
    namespace: dict[str, Any] = {"__name__": "tutorial"}
    outputs = _shown[page.file.src_uri] = []

    def with_place(block: re.Match[str]) -> str:
        outputs.append(_shown_by(block[1], namespace))
        return f"{block[0]}\n{_PLACE.format(len(outputs) - 1)}\n"

    return _BLOCK.sub(with_place, markdown)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Returns a page with the outputs in their places."""
    for number, output in enumerate(_shown.get(page.file.src_uri, [])):
        place = _PLACE.format(number)
        if content.count(place) != 1:
            raise ValueError(f"Output {number} of {page.file.src_uri} has no place.")
        content = content.replace(place, f'<div class="output">{output}</div>')
    return content
