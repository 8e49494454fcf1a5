"""What a process remembers is bounded, kept by session, and safe to share."""

from __future__ import annotations

import os
import threading

from aegis.core.bounded import Bounded
from aegis.enforce.memory import Decided, Memory
from aegis.wire.model import Refused, Removal


def removal(ref: str, size: int = 1, kept: tuple[str, ...] = ()) -> Removal:
    call = {"id": ref, "function": {"name": "f", "arguments": "x" * size}}
    return Removal(refused=(Refused(call=call, call_id=ref, index=0, message="no"),), kept=kept, ref=ref)


def test_the_least_recently_used_is_forgotten_first() -> None:
    bounded: Bounded[str, int] = Bounded(2, 100)
    bounded.put("a", 1)
    bounded.put("b", 2)
    assert bounded.get("a") == 1
    bounded.put("c", 3)
    assert [bounded.get(key) for key in "abc"] == [1, None, 3]


def test_weight_is_bounded_and_given_back() -> None:
    bounded: Bounded[str, int] = Bounded(100, 10)
    bounded.put("a", 1, 6)
    bounded.put("b", 2, 6)
    assert [bounded.get(key) for key in "ab"] == [None, 2]
    bounded.put("b", 3, 1)
    bounded.put("c", 4, 9)
    assert [bounded.get(key) for key in "bc"] == [3, 4]
    bounded.put("huge", 5, 11)
    assert bounded.get("huge") is None
    assert bounded.get("c") == 4


def test_refused_arguments_do_not_fill_the_memory() -> None:
    memory = Memory(max_bytes=10_000)
    for number in range(50):
        memory.learn_removals("s", (), [removal(f"r{number}", size=1_000)])
    assert memory.recall("s").by_ref("r0") is None
    assert memory.recall("s").by_ref("r49") is not None
    memory.learn_removals("s", (), [removal("big", size=20_000)])
    assert memory.recall("s").by_ref("big") is None


def test_sessions_do_not_see_each_others_calls() -> None:
    memory = Memory()
    memory.learn_removals("one", ("answer",), [removal("ref", kept=("key",))])
    for recall, found in ((memory.recall("one"), True), (memory.recall("two"), False)):
        assert (recall.by_ref("ref") is not None) is found
        assert (recall.by_call("key") is not None) is found
        assert (recall.by_anchor("answer") is not None) is found
    memory.learn_decision("one", "c", Decided(decision_id="d", allowed=True))
    assert memory.decision("two", "c") is None


def test_a_newer_answer_of_a_conversation_forgets_the_older_ones_removals() -> None:
    memory = Memory()
    memory.learn_removals("s", ("resp_1", "conversation:c"), [removal("ref")])
    memory.learn_removals("s", ("resp_2", "conversation:c"), [])
    assert memory.recall("s").by_anchor("resp_1") is not None
    assert memory.recall("s").by_anchor("conversation:c") is None


LONG = "toolu_01A09q90qw90lq917835"


def test_a_call_keeps_an_id_that_is_unique() -> None:
    memory = Memory()
    assert memory.call_id("s", "answer-1", LONG) == LONG
    assert memory.call_id("s", "answer-1", LONG) == LONG
    again = memory.call_id("s", "answer-2", LONG)
    assert again != LONG
    assert memory.call_id("s", "answer-2", LONG) == again
    assert memory.call_id("other", "answer-3", LONG) == LONG


def test_an_id_that_may_be_a_counter_is_made_unique() -> None:
    one, two = (memory.call_id("s", "answer-1", "call_0") for memory in (Memory(), Memory()))
    assert one.startswith("call_0.")
    assert one != two
    memory = Memory()
    assert memory.call_id("s", "a", "call_0") == memory.call_id("s", "a", "call_0")
    assert memory.call_id("s", "a", "call_0") != memory.call_id("s", "b", "call_0")
    assert memory.call_id("s", "a", "") != memory.call_id("s", "a", "")
    assert len(memory.call_id("s", "a", "x" * 10_000)) <= 256


def test_results_of_a_call_are_bounded() -> None:
    memory, decided = Memory(), Decided(decision_id="d", allowed=True)
    for number in range(100):
        memory.learn_result(decided, str(number), changed=False, value=None)
    assert "99" in decided.results
    assert len(decided.results) < 20


def test_many_threads_share_a_memory() -> None:
    memory = Memory(max_items=50)

    def work(name: str) -> None:
        for number in range(300):
            memory.call_id(name, f"a{number}", "call_0")
            memory.learn_removals(name, (f"a{number}",), [removal(f"{name}{number}")])
            memory.recall(name).by_ref(f"{name}{number}")

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert memory.recall("t0").by_ref("t00") is None


def test_a_forked_child_is_not_locked_out() -> None:
    memory = Memory()
    with memory._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if memory.call_id("s", "a", LONG) == LONG else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
