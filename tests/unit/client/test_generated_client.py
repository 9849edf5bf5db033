"""The blocking client has what asyncio's has: the methods that both have alike are made."""

import importlib.machinery
import importlib.util
import subprocess
import sys

import pytest


def test_the_blocking_methods_are_made_of_those_of_asyncio(project_root):
    """A method that was changed in one of the two only would be a fault in half of the clients."""
    words = [sys.executable, str(project_root / "scripts" / "generate-client"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def generator(project_root):
    path = str(project_root / "scripts" / "generate-client")
    loader = importlib.machinery.SourceFileLoader("generate_client", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    yield module
    del sys.modules[loader.name]


def test_a_method_that_is_missing_or_altered_is_made_again(generator):
    """Else the check would pass over just that."""
    sisters = next(one for one in generator.SISTERS if one.target == "browser.py")
    text = (generator.CLIENT / sisters.target).read_text(encoding="utf-8")
    begin, end = text.index(generator.BEGIN), text.index(generator.END)
    emptied = text[:begin] + generator.BEGIN + "\n\n" + text[end:]

    assert generator.made(sisters, emptied) == text


def test_what_is_said_of_asyncio_alone_is_left_out(generator):
    """A thread cannot be cancelled, and has nothing to await."""
    said = 'async def f(self):\n    """Wait. Cancelled, it has taken none."""\n    await self.g()\n'

    assert generator.translated(said) == 'def f(self):\n    """Wait."""\n    self.g()\n'
