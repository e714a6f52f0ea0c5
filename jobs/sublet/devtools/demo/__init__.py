"""The demo: real work on a real server, done by workers that are killed and frozen before your eyes."""

from pathlib import Path

FOLDER = Path(".sublet", "demo")
"""Where the demo keeps its data, under the current folder."""
