"""An app whose module reads the environment at its import."""

import os

from sublet import App

AT_IMPORT = frozenset(os.environ)
"""The names of all variables."""

app = App()
