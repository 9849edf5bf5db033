"""Debian's Chromium for a test, headless: it reaches this machine alone, and says all that it met.

with chromium() as browser, opened(browser, width=360, scheme="dark") as watched:
    watched.page.goto(address)
    watched.picture(folder, "page-360-dark")
    assert (watched.said(), watched.violations()) == ([], [])
"""

import shutil
from contextlib import contextmanager

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import sync_playwright

__all__ = ["Watched", "chromium", "opened"]

# Names lead nowhere, so that no other host is reached, not even by the browser itself; the sandbox
# needs a user other than root.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
HERE = ("http://127.0.0.1:", "file:", "data:", "about:")
WAIT_S = 60
TABS_MAX = 200
REPORT = """document.addEventListener("securitypolicyviolation",
    found => console.error(`policy: ${found.violatedDirective} ${found.blockedURI}`))"""
RULES_OF_LOOKS = ["color-contrast", "target-size", "scrollable-region-focusable"]
"""Those whose outcome may differ by width and by light or dark alone."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@contextmanager
def chromium():
    """A browser; a page costs a tenth of a second then, the browser itself a second."""
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is needed: scripts/test installs it (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=ARGUMENTS, timeout=4000 * WAIT_S
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser, *, width=1440, height=900, scheme="light", **options):
    """A window of its own, without what others have stored."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, **options
    )
    context.set_default_timeout(WAIT_S * 1000)
    try:
        yield Watched(context)
    finally:
        context.close()


class Watched:
    """One page, and what its console, its policy, its scripts and its requests said."""

    def __init__(self, context):
        context.add_init_script(REPORT)
        self.page = context.new_page()
        self.asked = []
        self._said = []
        self.page.on("console", lambda one: self._said.append(f"{one.type}: {one.text}"))
        self.page.on("pageerror", lambda error: self._said.append(f"error: {error}"))
        self.page.on("dialog", self._on_dialog)
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("requestfailed", lambda one: self._said.append(f"failed: {one.url}"))

    def _on_dialog(self, dialog):
        self._said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def said(self):
        """Lines of the console, refusals of the policy among them, and requests to elsewhere."""
        return [*self._said, *(f"elsewhere: {one}" for one in self.asked if not _is_here(one))]

    def violations(self, *, is_brief=False):
        """What axe-core finds on the page as it is: rule, place and reason, one a line. is_brief:
        as the whole was looked at before, in another look."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        rules = RULES_OF_LOOKS if is_brief else RULES
        options = {"runOnly": rules, "resultTypes": ["violations"]}
        ask = "options => axe.run(options).then(found => found.violations)"
        return [
            f"{one['id']}: {node['html']}: {node['failureSummary']}"
            for one in self.page.evaluate(ask, options)
            for node in one["nodes"]
        ]

    def reach(self, selector, number=0):
        """Press Tab until this element has the focus, which must be seen then."""
        wanted = self.page.locator(selector).nth(number).element_handle()
        for _ in range(TABS_MAX):
            self.page.keyboard.press("Tab")
            if wanted.evaluate("one => one === document.activeElement"):
                seen = wanted.evaluate("one => getComputedStyle(one).outlineStyle")
                assert seen != "none", f"the focus on {selector} is not seen"
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    def press(self, selector, number=0):
        """Reach it, press Enter, and wait for the page that it leads to."""
        self.reach(selector, number)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def type(self, selector, text):
        """Reach a line and write into it."""
        self.reach(selector)
        self.page.keyboard.type(text)

    def picture(self, folder, name):
        """The whole page as FOLDER/NAME.png."""
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png", full_page=True)


def _is_here(address):
    return address.startswith(HERE)
