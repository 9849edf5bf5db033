"""Every link in the README and docs/ leads somewhere, and every page can be found."""

import re
from pathlib import Path

import pytest

from tests.support.project import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")


def _anchor(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def _anchors(page: Path) -> set[str]:
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {_anchor(heading) for heading in re.findall(r"^#+ (.+)$", prose, re.MULTILINE)}


def _is_broken(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    path = (page.parent / target).resolve() if target else page
    if not path.exists() or not path.is_relative_to(ROOT):
        return True
    return bool(anchor) and path.suffix == ".md" and anchor not in _anchors(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page):
    """A page that cannot be reached is not documentation."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in _LINK.findall(prose) if "://" not in link]

    assert [link for link in links if _is_broken(page, link)] == []


def test_every_page_can_be_reached_from_the_index():
    """A reader starts at docs/index.md and must get everywhere from there."""
    seen, ahead = set(), [ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        links = [link.partition("#")[0] for link in _LINK.findall(page.read_text(encoding="utf-8"))]
        ahead += [(page.parent / link).resolve() for link in links if link and "://" not in link]

    missing = {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - seen

    assert sorted(page.relative_to(ROOT).as_posix() for page in missing) == []
