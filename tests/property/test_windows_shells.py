"""No text ends the readers of PowerShell and cmd; what they read depends on the text alone, with bounded work."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aegis.detect.facts import MOST_EFFORT, Effort
from aegis.detect.files import Files
from aegis.detect.shell.batch import parse_batch
from aegis.detect.shell.powershell import parse_powershell
from aegis.detect.shell.powershell_atoms import MOST_COMMANDS
from aegis.detect.shell.windows import analyse_command

PIECES = st.sampled_from([
    "(", ")", "{", "}", "[", "]", "$", "@", "'", '"', "`", "|", "&", ";", ",", "\n", " ", "=", "+", "-f ", "-join ",
    ".",
    "::",
    "#", "<#", "#>", "@'\n", "\n'@", "@{", "$(", "$a", "iex ", "%{", "foreach", "if ", "function ", "[char]",
    "1..9",
    ">", "<", "^", "%", "%a%", "!a!", "set a=", "for %%i in (", ") do ", "cmd /c ", "powershell -c ", "-enc ", "C:\\",
    "Remove-Item ", "é", "\x1f", "\x00", "\u2019", "\udce9", "using ", "param(", "a" * 40,
])  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=6), max_size=120).map("".join)


@pytest.mark.claim("DET-13")
@settings(max_examples=300, deadline=None)
@given(TEXTS)
@example("[char]::")
def test_every_text_is_read_to_its_end(text: str) -> None:
    first, again = parse_powershell(text, Effort()), parse_powershell(text, Effort())
    assert first.commands == again.commands and first.cut == again.cut
    assert len(first.commands) <= MOST_COMMANDS
    assert all(isinstance(word, str) for command in first.commands for word in command.args)
    assert parse_batch(text, Effort()).commands == parse_batch(text, Effort()).commands


@pytest.mark.claim("DET-13")
@settings(max_examples=120, deadline=None)
@given(TEXTS, st.sampled_from(["powershell", "cmd", "run_command"]))
def test_every_text_is_judged_within_its_effort(text: str, tool: str) -> None:
    effort = Effort()
    facts = analyse_command(text, tool, effort, Files())
    assert effort.left >= -MOST_EFFORT
    assert facts.effects == analyse_command(text, tool, Effort(), Files()).effects
