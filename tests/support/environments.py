"""Fresh environments that hold the wheel and exactly what it demands, made without asking any registry."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """An environment of its own."""

    place: Path

    @property
    def python(self) -> Path:
        return self.place / "bin" / "python"

    def install(self, source: Path) -> None:
        """Build the project in `source` and install its wheel, and nothing beside it."""
        out = self.place / "wheels" / source.name
        _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", out, cwd=source)
        (wheel,) = out.glob("*.whl")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        _run(*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel, cwd=self.place)

    def run(self, *arguments: str | Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run this environment's Python; its exit code is the caller's to look at."""
        env = {"PATH": f"{self.place / 'bin'}:/usr/bin:/bin", "HOME": str(self.place), **variables}
        if "XDG_CACHE_HOME" in os.environ:
            env.setdefault("XDG_CACHE_HOME", os.environ["XDG_CACHE_HOME"])
        return subprocess.run(
            [self.python, *arguments], cwd=self.place, env=env, input=stdin, capture_output=True, text=True, check=False
        )


def fresh_environment(place: Path, *, extras: frozenset[str] = frozenset()) -> Fresh:
    """An environment with the wheel of this project and what it demands with `extras`, as `pip install` would leave it.

    The dependencies are links to those of this environment: their files are the same ones, and what no requirement
    leads to is not there.
    """
    venv.create(place, symlinks=True)
    fresh = Fresh(place=place)
    fresh.install(ROOT)
    (packages,) = (place / "lib").glob("python*/site-packages")
    (info,) = packages.glob("aegis_guard-*.dist-info")
    demanded = metadata.Distribution.at(info).requires or []
    for name in sorted(_closure(demanded, extras)):
        for file in metadata.distribution(name).files or []:
            top = file.parts[0]
            target = packages / top
            if top not in ("..", "__pycache__") and not target.exists():
                target.symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    return fresh


def _closure(requirements: list[str], extras: frozenset[str]) -> set[str]:
    """The names of everything that the requirements lead to, where no extra is asked for but those they name."""
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(text, extras) for text in requirements]
    while waiting:
        text, extras = waiting.pop()
        wanted = Requirement(text)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            continue
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        found.add(key[0])
        waiting += [(one, key[1]) for one in metadata.distribution(wanted.name).requires or []]
    return found


def _run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
