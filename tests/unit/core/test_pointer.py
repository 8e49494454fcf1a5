from __future__ import annotations

import pytest

from aegis.core.finding import Patch
from aegis.core.json import apply_patches, escape, resolve, tokens

# RFC 6901, section 5.
DOCUMENT = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", DOCUMENT), ("/foo", ["bar", "baz"]), ("/foo/0", "bar"), ("/", 0), ("/a~1b", 1), ("/c%d", 2), ("/e^f", 3),
        ("/g|h", 4), ("/i\\j", 5), ('/k"l', 6), ("/ ", 7), ("/m~0n", 8),
    ],
)  # fmt: skip
def test_pointers_of_the_standard(pointer: str, value: object) -> None:
    assert resolve(DOCUMENT, pointer) == value


def test_a_tilde_is_unescaped_last() -> None:
    assert tokens("/~01") == ("~1",)
    assert escape("~1") == "~01"


@pytest.mark.parametrize("pointer", ["a", "foo/0", " /a"])
def test_what_is_no_pointer_is_a_value_error(pointer: str) -> None:
    with pytest.raises(ValueError, match="starts with"):
        tokens(pointer)


@pytest.mark.parametrize(
    "pointer", ["/bar", "/foo/2", "/foo/-", "/foo/-1", "/foo/01", "/foo/00", "/foo/1e0", "/foo/٣", "/foo/", "/foo/0/x",
                "/foo/" + "9" * 10_000],
)  # fmt: skip
def test_a_pointer_to_nowhere_is_a_lookup_error(pointer: str) -> None:
    with pytest.raises(LookupError):
        resolve(DOCUMENT, pointer)
    with pytest.raises(LookupError):
        apply_patches(DOCUMENT, [Patch(path=pointer, value=0)])


def test_patches_leave_the_original_and_share_what_they_do_not_touch() -> None:
    root = {"a": {"b": [1, 2]}, "c": {"d": 1}}
    patched = apply_patches(root, [Patch(path="/a/b/1", value=3), Patch(path="/a/b/0", value=0)])
    assert patched == {"a": {"b": [0, 3]}, "c": {"d": 1}}
    assert root == {"a": {"b": [1, 2]}, "c": {"d": 1}}
    assert patched["c"] is root["c"]


def test_a_patch_of_the_root_replaces_it() -> None:
    assert apply_patches({"a": 1}, [Patch(path="", value={"b": 2}), Patch(path="/b", value=3)]) == {"b": 3}


def test_a_patch_inside_an_inserted_value_leaves_that_value_alone() -> None:
    inserted = {"x": [1]}
    patched = apply_patches({"a": 0}, [Patch(path="/a", value=inserted), Patch(path="/a/x/0", value=2)])
    assert patched == {"a": {"x": [2]}}
    assert inserted == {"x": [1]}


def test_no_patch_gives_the_value_itself() -> None:
    root = {"a": 1}
    assert apply_patches(root, []) is root


def test_each_container_is_copied_once() -> None:
    class Counted(list[int]):
        copies = 0

        def copy(self) -> Counted:
            Counted.copies += 1
            return Counted(self)

    root = {"a": Counted(range(100))}
    patched = apply_patches(root, [Patch(path=f"/a/{index}", value=-1) for index in range(100)])
    assert patched == {"a": [-1] * 100}
    assert Counted.copies == 1
