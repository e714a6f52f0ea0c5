"""Files to analyse: those of the standard library; if these are few, also those of installed packages."""

import itertools
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENOUGH = 1200
AT_MOST = 2000

_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Corpus:
    """`files`: first `standard` ones of the standard library, then packages'. `roots`: their folders."""

    files: tuple[Path, ...]
    standard: int
    roots: tuple[Path, ...]

    @classmethod
    def find(cls, enough: int = ENOUGH, at_most: int = AT_MOST) -> "Corpus":
        """Find all files of the standard library; if fewer than `enough`, add packages', up to
        `at_most` in all.
        """
        library = Path(sysconfig.get_paths()["stdlib"])
        files = list(_python_files(library))
        standard = len(files)
        roots = [library]
        for root in _packages() if standard < enough else ():
            more = list(itertools.islice(_python_files(root), max(0, at_most - len(files))))
            files += more
            roots += [root] * bool(more)
        return cls(tuple(files), standard, tuple(roots))

    def name(self, path: str) -> str:
        """The path relative to a root; unchanged outside."""
        inner = [Path(path).relative_to(root) for root in self.roots if Path(path).is_relative_to(root)]
        return min(map(str, inner), key=len, default=path)

    @property
    def words(self) -> str:
        """How many files, as text."""
        version = ".".join(map(str, sys.version_info[:3]))
        words = f"{self.standard:,} files of the standard library of Python {version}"
        added = len(self.files) - self.standard
        return f"{words}, and {added:,} of installed packages" if added else words


def _python_files(root: Path) -> Iterator[Path]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in _PACKAGES)
        for name in sorted(names):
            path = Path(folder, name)
            if name.endswith(".py") and path.is_file() and os.access(path, os.R_OK):
                yield path


def _packages() -> list[Path]:
    paths = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix, "installed_base": sys.base_prefix}
    paths += [sysconfig.get_path("purelib", scheme, vars=base) for scheme in sysconfig.get_scheme_names()]
    return [Path(path) for path in dict.fromkeys(paths) if path.endswith(_PACKAGES) and Path(path).is_dir()]
