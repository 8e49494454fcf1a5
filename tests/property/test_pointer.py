from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.core.finding import Patch
from aegis.core.json import apply_patches, escape, resolve, tokens

keys = st.text("ab~/01", max_size=3)
values = st.recursive(
    st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


def places(value: Any, pointer: str = "") -> list[str]:
    found = [pointer]
    if isinstance(value, dict):
        for key, item in value.items():
            found += places(item, f"{pointer}/{escape(key)}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += places(item, f"{pointer}/{index}")
    return found


@given(st.lists(st.text()))
def test_escaped_tokens_come_back(parts: list[str]) -> None:
    assert tokens("".join("/" + escape(part) for part in parts)) == tuple(parts)


@given(values, st.data(), st.integers())
def test_a_patch_changes_its_place_and_leaves_the_original_alone(value: Any, data: st.DataObject, new: int) -> None:
    pointer = data.draw(st.sampled_from(places(value)))
    before = copy.deepcopy(value)
    patched = apply_patches(value, [Patch(path=pointer, value=new)])
    assert value == before
    assert resolve(patched, pointer) == new
    for other in places(before):
        if not other.startswith(pointer) and not pointer.startswith(other):
            assert resolve(patched, other) == resolve(before, other)


def reference(root: Any, patches: list[Patch]) -> Any:
    """Apply patches to a deep copy, one after the other."""
    root = copy.deepcopy(root)
    for patch in patches:
        path = tokens(patch.path)
        if not path:
            root = copy.deepcopy(patch.value)
            continue
        value = root
        for token in path[:-1]:
            value = value[token] if isinstance(value, dict) else value[int(token)]
        value[path[-1] if isinstance(value, dict) else int(path[-1])] = copy.deepcopy(patch.value)
    return root


@given(values, values, st.data())
def test_patches_apply_one_after_the_other(value: Any, inserted: Any, data: st.DataObject) -> None:
    patches: list[Patch] = []
    current = value
    for _ in range(data.draw(st.integers(0, 4))):
        patches.append(Patch(path=data.draw(st.sampled_from(places(current))), value=inserted))
        current = reference(value, patches)
    before, inserted_before = copy.deepcopy(value), copy.deepcopy(inserted)
    assert apply_patches(value, patches) == current
    assert (value, inserted) == (before, inserted_before)


@given(values, st.text("/~ab01-", max_size=8))
def test_a_pointer_to_nowhere_is_a_lookup_error_and_never_anything_else(value: Any, pointer: str) -> None:
    pointer = "/" + pointer
    try:
        resolve(value, pointer)
    except LookupError:
        with pytest.raises(LookupError):
            apply_patches(value, [Patch(path=pointer, value=0)])
