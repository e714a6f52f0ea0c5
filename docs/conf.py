"""Settings of the documentation site. Build it with `.venv/bin/python -m sphinx -W --keep-going -n docs .site`."""

from pathlib import Path

project = "Sublet"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Sublet"

# Links such as `guides/workers.md#heartbeats`, which work on GitHub, too.
myst_heading_anchors = 4

# Transcripts contain `…`, which is not valid JSON or Python.
suppress_warnings = ["misc.highlighting_failure"]

SECTIONS = ["tutorial", "guides", "platforms", "reference", "explanation", "measurements"]


def add_contents(app, docname, source):
    """Append the contents to the index page. They are not in the file, because GitHub would show them as code."""
    if docname != "index":
        return
    for section in SECTIONS:
        folder = Path(app.srcdir) / section
        pages = sorted(str(path.relative_to(app.srcdir).with_suffix("")) for path in folder.rglob("*.md"))
        # The overview of a section comes first.
        pages.sort(key=lambda page: not page.endswith("/index"))
        source[0] += "\n".join(
            ["", "```{toctree}", ":hidden:", f":caption: {section.title()}", "", *pages, "```", ""]
        )


def setup(app):
    """Register with Sphinx."""
    app.connect("source-read", add_contents)
