"""What pyproject.toml cannot say: HMS_REQUIRE_NATIVE=1 fails a build without the C extension.

Without it a machine that has no compiler gets a package that works, slower. A wheel must not lack
the extension without a word, so what builds wheels sets it.
"""

import os

from setuptools import setup
from setuptools.command.build_ext import build_ext


class BuildNative(build_ext):
    """Builds the extension, which is optional unless the environment says otherwise."""

    def finalize_options(self) -> None:
        """Take over what the environment says."""
        super().finalize_options()
        if os.environ.get("HMS_REQUIRE_NATIVE") == "1":
            for extension in self.extensions:
                extension.optional = False


setup(cmdclass={"build_ext": BuildNative})
