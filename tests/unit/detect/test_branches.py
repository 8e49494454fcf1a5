"""Choices that a program makes by what it says itself: only what is reached counts, and doubt takes nothing away."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

import pytest

from aegis.detect.code import CodeLanguage, analyse_code

FOLDER = Path(__file__).parent / "choices"
PROGRAMS = [
    (cast("CodeLanguage", file.stem), program)
    for file in sorted(FOLDER.glob("*.txt"))
    for program in file.read_text(encoding="utf-8").split("\n---\n")
]
CHOICE = re.compile(r"\{([\w-]+)\|([\w-]+)\}")


def done_to_system(program: str, language: CodeLanguage) -> list[str]:
    return [
        effect.name
        for effect in analyse_code(program, language).effects
        if effect.verb in ("delete", "write") and effect.resource not in ("file", "workspace")
    ]


@pytest.mark.claim("DET-96")
@pytest.mark.parametrize(("language", "program"), PROGRAMS)
def test_what_a_program_chooses_counts_and_what_it_does_not_does_not(language: CodeLanguage, program: str) -> None:
    assert CHOICE.search(program)
    assert done_to_system(CHOICE.sub(r"\1", program), language)
    assert not done_to_system(CHOICE.sub(r"\2", program), language)


_DELETES = "    shutil.rmtree('/etc/ssl')\n"


@pytest.mark.claim("DET-96")
@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("python", f"import shutil\nDRY = True\nDRY = bool(input())\nif not DRY:\n{_DELETES}"),
        ("python", f"import shutil\nDRY = True\nglobals()['DRY'] = False\nif not DRY:\n{_DELETES}"),
        ("python", f"import shutil, sys\nDRY = True\nsetattr(sys.modules['x'], 'DRY', 0)\nif not DRY:\n{_DELETES}"),
        ("python", f"import shutil, os\nif os.getenv('X'):\n{_DELETES}"),
        ("python", f"import shutil\nn = 1\nn -= 1\nif not n:\n{_DELETES}"),
        ("python", f"import shutil\nfor DRY in (True, False):\n  if not DRY:\n{_DELETES}"),
        (
            "python",
            f"import shutil, threading\ndef go(dry):\n  if not dry:\n{_DELETES}go(True)\n"
            "threading.Thread(target=go, args=(False,)).start()",
        ),
        (
            "python",
            "import shutil\nclass J:\n  def __init__(self):\n    self.dry = True\n  def run(self):\n"
            f"    if not self.dry:\n  {_DELETES}"
            "j = J()\nj.dry = False\nj.run()",
        ),
        ("javascript", "let done; for (;;) { if (!done) fs.rmSync('/etc/ssl', {recursive: true}); done = true; }"),
        ("javascript", "let dry = true; dry &&= false; if (!dry) fs.rmSync('/etc/ssl', {recursive: true});"),
        ("javascript", "run(); if (true) { process.exit(); } function run() { fs.rmSync('/etc/ssl', {force: 1}); }"),
        ("go", 'package main\nfunc main() { dry := true; Var(&dry); if !dry { os.RemoveAll("/etc/ssl") } }'),
        ("csharp", 'bool dry = true; Read(out dry); if (!dry) { Directory.Delete("/etc/ssl", true); }'),
        ("python", f"import shutil, sys\nn = ['a']\nfor y in sys.argv:\n  n.append(y)\nif len(n) > 2:\n{_DELETES}"),
        ("javascript", "const n = ['a']; load(n); if (n.length > 2) fs.rmSync('/etc/ssl', {recursive: true});"),
        ("ruby", "flag = 0\nif flag\n  FileUtils.rm_rf('/etc/ssl')\nend"),
        ("python", "import shutil\nmatch 'a':\n  case x if x:\n" + _DELETES + "  case 'a':\n    pass"),
        ("javascript", "switch ('a') { case 'a': log(); case 'b': fs.rmSync('/etc/ssl', {recursive: true}); }"),
    ],
)  # fmt: skip
def test_what_is_not_sure_takes_no_branch_away(language: CodeLanguage, program: str) -> None:
    assert done_to_system(program, language)


def test_many_branches_cost_no_more_than_their_number() -> None:
    many = "import shutil\nX = True\n" + "".join(f"if X and {at}:\n    f({at})\n" for at in range(600))
    assert done_to_system(f"{many}shutil.rmtree('/etc/ssl')", "python")
    nested = "import shutil\n" + "".join(f"{' ' * at}if True:\n" for at in range(80)) + " " * 80 + _DELETES.strip()
    assert done_to_system(nested, "python")
