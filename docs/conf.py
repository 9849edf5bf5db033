"""How Sphinx makes the site of these pages; scripts/docs runs it."""

import re

from sphinx.application import Sphinx

project = "HMS"
author = "the authors of HMS"
copyright = "the authors of HMS, Apache-2.0"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 4
html_theme = "furo"
html_title = "HMS"
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
pygments_style = "a11y-light"
pygments_dark_style = "monokai"

_PAGE = re.compile(r"^(?:-|\d+\.) \[[^\]]+\]\((?P<page>[^)#:]+)\.md\)", re.MULTILINE)


def add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Make the lists of the index the table of contents too, so that each stands once. Decisions
    are found by their own index: sixty of them would be half of the contents beside each page."""
    if page.startswith("decisions/") and page != "decisions/index":
        source[0] = f"---\norphan: true\n---\n{source[0]}"
    if page != "index":
        return
    for part in source[0].split("\n## "):
        caption, _, text = part.partition("\n")
        named = "" if caption.startswith("# ") else f":caption: {caption}\n"
        if pages := "\n".join(_PAGE.findall(text)):
            source[0] += f"\n```{{toctree}}\n:hidden:\n{named}\n{pages}\n```\n"


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("source-read", add_contents)
