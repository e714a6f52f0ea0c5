"""Run the demo and draw its final screen as docs/pictures/demo.svg. Needs the extra `demo`."""

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "jobs"), str(ROOT / "functions")]

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI

from sublet.devtools.demo.run import run
from sublet.devtools.demo.screen import Progress, Screen, WorkerStatus

PICTURE = ROOT / "docs" / "pictures" / "demo.svg"
COMMAND = "python3 -m jobs demo --once"
COLUMNS = 124
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class RecordedScreen(Screen):
    """Records the final screen of a terminal."""

    def __init__(self) -> None:
        super().__init__(
            sys.stdout,
            Console(
                file=io.StringIO(),
                record=True,
                force_terminal=True,
                color_system="truecolor",
                width=COLUMNS,
                highlight=False,
                emoji=False,
            ),
        )
        self.plain = False

    def draw(self, progress: Progress, workers: Sequence[WorkerStatus], *, last: bool = False) -> None:
        if last:
            self.console.print(self._render(progress, workers))


def picture(screen: RecordedScreen) -> str:
    """Return the recording as an SVG that loads no font from the network."""
    svg = screen.console.export_svg(title=COMMAND, theme=DIMMED_MONOKAI, unique_id="demo")
    # some renderers drop the leading spaces of a line without it
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: (?:Fira Code|arial)[^;]*;", f"font-family: {FONTS};", svg)


def main() -> int:
    """Run the demo and write the picture. Return the demo's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=PICTURE, help="the file to write")
    target = parser.parse_args().to.resolve()
    screen = RecordedScreen()
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="sublet-demo-") as folder, contextlib.ExitStack() as stack:
        os.chdir(folder)
        stack.callback(os.chdir, before)
        code = run(once=True, json=False, call="python3 -m jobs", screen=screen)
    if code == 0:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(picture(screen), "utf-8")
        print(f"wrote {target}")
    return code


if __name__ == "__main__":
    sys.exit(main())
