from __future__ import annotations

import fnmatch
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from aegis.core.names import Selector, SelectorMap, glob_match, normalise_name

names = st.text(min_size=1, max_size=12)
few = st.text("ab_", max_size=8)
globs = st.text("ab_*", max_size=8)
INVISIBLE = ["\u200b", "\u200d", "\u00ad", "\ufe0f", "\u034f", "\u2060", "\U000e0041", "\u3164", "\u115f"]


@given(globs, few)
def test_globs_match_whole_names_like_the_reference(pattern: str, name: str) -> None:
    assert glob_match(pattern, name) == fnmatch.fnmatchcase(name, pattern)


@given(names)
def test_normalising_twice_changes_nothing(name: str) -> None:
    assert normalise_name(normalise_name(name)) == normalise_name(name)


@given(st.text("abcXYZ09_-.", min_size=1), st.sampled_from(INVISIBLE), st.integers(0, 20))
def test_invisible_characters_and_width_make_no_other_name(name: str, invisible: str, at: int) -> None:
    wide = "".join(chr(ord(char) + 0xFEE0) for char in name)
    spoiled = name[:at] + invisible + name[at:]
    assert normalise_name(spoiled) == normalise_name(wide) == normalise_name(name) == name.lower()


@given(names)
def test_a_normalised_name_has_no_format_character(name: str) -> None:
    assert all(unicodedata.category(char) != "Cf" for char in normalise_name(name))


@given(st.text("abc_*", min_size=1, max_size=6), st.text("abc_", min_size=1, max_size=6))
def test_a_selector_without_server_covers_every_server(selector: str, tool: str) -> None:
    compiled = Selector(selector)
    assert compiled.matches(None, tool) == compiled.matches("mcp:mail", tool) == glob_match(selector, tool)


@given(
    st.dictionaries(st.from_regex(r"\A(s[12*]/)?[ab*]{1,3}\Z"), st.integers(), max_size=6),
    st.sampled_from([None, "s1", "s2"]),
    st.text("ab", min_size=1, max_size=3),
)
def test_a_table_finds_what_some_selector_covers_and_prefers_exact_names(
    entries: dict[str, int], server: str | None, tool: str
) -> None:
    found = SelectorMap(entries).find(server, tool)
    covering = {text: value for text, value in entries.items() if Selector(text).matches(server, tool)}
    assert (found is None) == (not covering)
    if covering:
        exact = [name for name in (f"{server}/{tool}", tool) if name in covering]
        assert found == covering[exact[0]] if exact else found in covering.values()
