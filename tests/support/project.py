"""Where the project lies, for tests that read it while they are collected."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
