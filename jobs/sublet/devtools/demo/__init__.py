"""The demo: real jobs on a real server; one of the workers is killed and one frozen while they run."""

from pathlib import Path

FOLDER = Path(".sublet", "demo")
