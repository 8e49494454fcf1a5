"""Values and stored bytes read as the types of their documents."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from aegis.core.json import convert, decode, unpack

FIRST_AT_ONCE = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import msgspec
from aegis.core.json import convert, decode, unpack

KIND = '''
class Leaf{0}(msgspec.Struct):
    name: str = ""
    rows: dict[str, list[int]] | None = None
class Top{0}(msgspec.Struct):
    leaf: "Leaf{0}" = None
    leaves: "list[Leaf{0}]" = ()
    next: "Top{0} | None" = None
'''
for number in range(100):
    exec(KIND.format(number))
together = threading.Barrier(4)

def read_all():
    for number in range(100):
        together.wait()
        value = {"leaf": {"name": "a"}, "next": {"leaves": [{"rows": {"b": [1]}}]}}
        top = convert(value, globals()[f"Top{number}"])
        assert top.next.leaves[0].rows == {"b": [1]}

sys.setswitchinterval(1e-6)
with ThreadPoolExecutor(4) as threads:
    for one in [threads.submit(read_all) for _ in range(4)]:
        one.result()
"""


class Note(msgspec.Struct, frozen=True):
    text: str
    secret: bytes = b""


def test_threads_that_read_a_type_first_at_once_end_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_AT_ONCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_values_json_and_messagepack_are_read_alike() -> None:
    value = {"text": "a"}
    assert convert(value, Note) == Note("a")
    assert decode(msgspec.json.encode(value), Note) == Note("a")
    assert unpack(msgspec.msgpack.encode([value]), tuple[Note, ...]) == (Note("a"),)
    assert convert({**value, "secret": b"s"}, Note, builtin_types=(bytes,)).secret == b"s"


@pytest.mark.parametrize("body", [b'{"text": 1}', b"{}", b"[]"])
def test_what_is_of_another_type_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(body, Note)
    with pytest.raises(msgspec.ValidationError):
        convert(msgspec.json.decode(body), Note)
