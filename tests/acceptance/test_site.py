"""The site of the pages, as scripts/docs makes it: every link of it leads somewhere, and the pages
fit a screen and a telephone, light and dark. HMS_PICTURES names a folder for pictures of them."""

import os
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.browser import chromium, opened
from tests.support.project import ROOT

SHOWN = ("index", "tutorial/reliable-worker", "reference/api/session")
WIDTHS = (1280, 360)


class _Page(HTMLParser):
    """The links of a page, and what they may lead to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, _tag, attrs):
        named = dict(attrs)
        self.links += [named[name] for name in ("href", "src") if named.get(name)]
        self.anchors.add(named.get("id"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = tmp_path_factory.mktemp("site")
    words = [str(ROOT / "scripts" / "docs"), str(made)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.mark.timeout(600)
def test_every_link_within_the_site_leads_somewhere(site):
    """Sphinx looks at what stands in the pages; the theme, contents and indexes have links too."""
    pages = {path.resolve(): _Page(path) for path in site.rglob("*.html")}
    broken, count = [], 0
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            count += 1
            found = (path.parent / target.partition("?")[0]).resolve() if target else path
            is_there = found.exists()
            if found in pages:
                is_there = anchor in pages[found].anchors
            if not is_there:
                broken.append(f"{path.relative_to(site.resolve())}: {link}")

    assert broken == []
    assert count > 5000


@pytest.mark.timeout(600)
def test_pages_fit_a_screen_and_a_telephone_light_and_dark(site):
    """Only a table or a block may be wider than the window, and scrolls by itself."""
    folder = os.environ.get("HMS_PICTURES")
    faults = []
    with chromium() as browser:
        for name in SHOWN:
            for scheme in ("light", "dark"):
                for width in WIDTHS:
                    with opened(browser, width=width, scheme=scheme) as watched:
                        watched.page.goto((site / f"{name}.html").as_uri())
                        wide = watched.page.evaluate("document.documentElement.scrollWidth")
                        where = f"{name}, {width} px, {scheme}"
                        faults += [f"{where}: {said}" for said in watched.said()]
                        faults += [f"{where}: {wide} px wide"] if wide > width else []
                        if folder:
                            picture = f"{name.replace('/', '-')}-{width}-{scheme}"
                            watched.picture(Path(folder), picture)

    assert faults == []
