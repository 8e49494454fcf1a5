"""Ways of writing one path: whichever a program takes, what it does to the system is seen, and only that."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from aegis.detect.code import CodeLanguage, analyse_code

FOLDER = Path(__file__).parent / "constructions"
PROGRAMS = [
    (cast("CodeLanguage", file.stem), program)
    for file in sorted(FOLDER.glob("*.txt"))
    for program in file.read_text(encoding="utf-8").split("\n---\n")
]
# The same program about a folder that everybody may write, where its name is not written in a disguise.
OTHER = {"etc": "tmp", "ETC": "TMP", "cte": "pmt"}


def done_to_system(program: str, language: CodeLanguage) -> list[str]:
    return [
        effect.name
        for effect in analyse_code(program, language).effects
        if effect.verb in ("delete", "write") and effect.resource not in ("file", "workspace")
    ]


@pytest.mark.parametrize(("language", "program"), PROGRAMS)
def test_a_path_is_followed_however_it_is_written(language: CodeLanguage, program: str) -> None:
    assert done_to_system(program, language)


@pytest.mark.parametrize(("language", "program"), [one for one in PROGRAMS if "etc" in one[1]])
def test_the_same_program_about_another_folder_passes(language: CodeLanguage, program: str) -> None:
    for name, other in OTHER.items():
        program = program.replace(name, other)
    assert not done_to_system(program, language)
