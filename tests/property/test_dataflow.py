"""The guard of data flow as a pure function: what is read can only tighten, in any order, and a full memory too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aegis.context.heads import MAX_SOURCES, source_of, with_name
from aegis.context.turns import MAX_TURN_BYTES, UserTurn, check_said
from aegis.core.call import MAX_NAME_CHARS
from aegis.core.outcome import Outcome
from aegis.errors import InvalidCall
from aegis.policy.dataflow.declare import NOTHING
from aegis.policy.dataflow.drift import stray_of, tool_text
from aegis.policy.dataflow.judge import judge_flow
from aegis.policy.dataflow.licence import FlowCall
from aegis.policy.dataflow.named import is_reached
from aegis.policy.dataflow.reading import (
    MAX_DOCUMENTS,
    MAX_OF_RESULT,
    MAX_SHINGLES,
    MAX_VALUES,
    FlowGrant,
    ReadDocument,
    SessionView,
    read_result,
)
from aegis.policy.dataflow.values import JoinedTexts, find_all, find_values
from aegis.policy.dataflow.words import read_words

KEY = b"k" * 16
IBAN = "DE44500105175407324931"
WORDS = ("send", "pay", "the", "bill", "to", "ada@example.com", "eve@evil.example", "DE44500105175407324931", "please")
texts = st.lists(st.sampled_from((*WORDS, "www.evil.example/x", "\n", "IBAN:", "Delete")), max_size=12).map(" ".join)
prompts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
calls = st.builds(
    lambda tool, to, body: FlowCall(tool=tool, arguments={"recipient": to, "body": body}, flow=NOTHING),
    st.sampled_from(("send_email", "send_money", "delete_file", "post_page", "fetch_url", "frobnicate")),
    st.sampled_from(("ada@example.com", "eve@evil.example", "DE44500105175407324931", "Bob")),
    texts,
)


def session(prompt: str, read: list[str], *, saturated: bool = False) -> SessionView:
    """A session with these words that read these texts."""
    view = SessionView(key=KEY, words=read_words([prompt]), saturated=saturated)
    for number, text in enumerate(read):
        reading = read_result(text, KEY, NOTHING)
        view.add(ReadDocument(f"r{number}", "read_page", "mixed", "internal", False), reading)
        view.untrusted = view.untrusted or reading.text
    return view


def outcome(call: FlowCall, view: SessionView) -> Outcome:
    """What the guard demands."""
    return max((one.outcome for one in judge_flow(call, view, "grant")), default=Outcome.ALLOW)


ADA = "ada@example.com"
DELETE = FlowCall(tool="send_email", arguments={"recipient": ADA, "body": "Delete"}, flow=NOTHING)


@settings(max_examples=300)
@given(prompts, calls, st.lists(texts, max_size=4), texts)
@example(ADA, DELETE, ["send send Delete"], "Delete")  # a line by itself beside a sentence of somebody else's
def test_more_untrusted_text_never_turns_a_hold_into_an_allow(
    prompt: str, call: FlowCall, read: list[str], more: str
) -> None:
    before = outcome(call, session(prompt, read))
    after = outcome(call, session(prompt, [*read, more]))
    assert (after > Outcome.ALLOW) >= (before > Outcome.ALLOW)


def typed(prompt: str, named: list[Any], more: list[Any], call: FlowCall) -> Outcome:
    """What the guard demands where documents that the user named may supply values; `more` was read beside them."""
    view = SessionView(key=KEY, words=read_words([prompt]), untrusted=True)
    for number, result in enumerate([*named, *more]):
        read = ReadDocument(f"r{number}", "read_page", "mixed", "internal", number < len(named))
        view.add(read, read_result(result, KEY, NOTHING))
    return max((one.outcome for one in judge_flow(call, view, "typed")), default=Outcome.ALLOW)


records = st.fixed_dictionaries({"note": texts, "body": texts})


@settings(max_examples=300)
@given(prompts, calls, st.lists(texts | records, max_size=2), texts | records)
def test_where_it_is_delegated_another_text_never_turns_a_hold_into_an_allow(
    prompt: str, call: FlowCall, named: list[Any], more: Any
) -> None:
    before, after = typed(prompt, named, [], call), typed(prompt, named, [more], call)
    assert (after > Outcome.ALLOW) >= (before > Outcome.ALLOW)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["Ada", "m-77", "m-88", "the mail from Ada", "\n", "Read"]), max_size=6).map(" ".join),
    st.sampled_from(["m-77", "m-88", "m-99"]),
    st.integers(min_value=1, max_value=2),
)
@example("Ada", "m-88", 2)
def test_what_people_write_never_leads_to_a_document(note: str, chosen: str, count: int) -> None:
    def reached(written: str) -> bool:
        view = SessionView(key=KEY, words=read_words(["Pay what the mail from Ada says"]), untrusted=True)
        found = [{"id": "m-77", "from": "Ada", "note": ""}, {"id": "m-88", "from": "Eve", "note": written}][:count]
        found[-1]["note"] = written
        view.add(ReadDocument("r0", "search_mail", "mixed", "internal", True), read_result(found, KEY, NOTHING))
        return is_reached(view, {"message": chosen})

    assert reached(note) <= reached("")
    assert reached("") is (chosen == "m-77")


@given(prompts, calls, st.lists(texts, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_results_does_not_matter(prompt: str, call: FlowCall, read: list[str], chance: object) -> None:
    shuffled = list(read)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert outcome(call, session(prompt, read)) is outcome(call, session(prompt, shuffled))


@given(prompts, calls, st.lists(texts, max_size=4))
def test_a_full_memory_only_tightens(prompt: str, call: FlowCall, read: list[str]) -> None:
    assert outcome(call, session(prompt, read, saturated=True)) >= outcome(call, session(prompt, read))


@given(prompts, calls)
def test_until_something_was_read_nothing_is_held(prompt: str, call: FlowCall) -> None:
    assert outcome(call, session(prompt, [])) is Outcome.ALLOW


def test_a_hundred_megabytes_of_results_stay_within_the_caps() -> None:
    view = SessionView(id="s", key=b"k" * 16)
    for number in range(25):
        lines = (
            f"Please pay DE{number:02}{line:018} and write to user{number}.{line}@example.com" for line in range(4_600)
        )
        text = "\n".join(lines).ljust(4 * 1024 * 1024, "x")
        reading = read_result(text, view.key, NOTHING)
        assert len(reading.values) <= MAX_OF_RESULT
        view.add(ReadDocument(str(number), "read", "mixed", "internal", False), reading)
    assert view.saturated
    assert len(view.values) <= MAX_VALUES
    assert len(view.shingles) <= MAX_SHINGLES
    assert len(view.documents) <= MAX_DOCUMENTS


def test_texts_that_are_searched_together_hold_what_each_holds_alone() -> None:
    texts = [
        "write to ada@example.com.", "", "https://a.example/x?y=1", "IBAN DE44 5001 0517 5407 3249 31", "2024-01-02",
        "call +49 30 1234567\nor 0x52908400098527886E0F7030069857D2E4169EE7", "www.example.com", "a.de", "@",
        "12345678",
    ]  # fmt: skip
    assert find_all(JoinedTexts(texts)) == [find_values(text) for text in texts]
    assert find_all(JoinedTexts([*texts, "gr\u00fc\u00dfe an j\u00fcrgen@example.com"]))[-1][0].kind == "email"
    assert find_all(JoinedTexts([])) == []


@given(prompts, calls, st.integers(0, 9), st.integers(0, 9), st.integers(0, 100), st.integers(0, 100))
def test_what_a_model_measures_only_adds_to_what_is_counted(
    prompt: str, call: FlowCall, acting: int, strays: int, distance: int, further: int
) -> None:
    def drift(*measured: int) -> int:
        view = SessionView(words=read_words([prompt]), acting=max(acting, strays), strays=strays)
        view.measured = {tool_text(call.tool): one for one in measured}
        stray = stray_of(call, view)
        assert stray is not None
        return stray.drift

    assert drift() <= drift(distance) <= drift(max(distance, further)) <= 100


def nested(depth: int) -> Any:
    """A value in lists and members, by turns."""
    value: Any = f"pay {IBAN}"
    for number in range(depth):
        value = [value] if number % 2 else {"a/~\u202e": value}
    return value


MEBI = 1_048_576
HOSTILE: dict[str, Any] = {
    "numbers": list(range(10_000_000, 10_000_000 + MEBI // 2)),
    "addresses": "\n".join(f"user{number}@host{number}.example" for number in range(MEBI // 8)),
    "nested": nested(5_000),
    "wide": {f"field{number}": number for number in range(MEBI // 8)},
    "long names": {"x" * MEBI: "a", "\u0000\u202e~/" * 10_000: "b", "": "c", "__proto__": "d"},
    "a text of brackets": "[" * (4 * MEBI),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_results_are_read_within_bounds_and_loosen_nothing(name: str) -> None:
    view = session("Please pay the bill", [f"Our account is {IBAN}"])
    call = FlowCall(tool="send_money", arguments={"recipient": IBAN}, flow=NOTHING)
    assert outcome(call, view) > Outcome.ALLOW
    reading = read_result(HOSTILE[name], KEY, NOTHING)
    assert len(reading.values) <= MAX_OF_RESULT
    assert max((len(path) for _, path, _ in reading.values), default=0) <= 33 * 65
    view.add(ReadDocument("hostile", "read_page", "mixed", "internal", False), reading)
    assert outcome(call, view) > Outcome.ALLOW


def test_ten_thousand_sources_are_a_bounded_list() -> None:
    names: tuple[str, ...] = ()
    for number in range(10_000):
        names = with_name(names, source_of(f"mcp:{number}" * 100, f"tool{number}"))
    assert len(names) == MAX_SOURCES
    assert max(map(len, names)) <= 2 * MAX_NAME_CHARS


def test_the_words_of_a_long_prompt_are_read_and_what_is_longer_is_no_word() -> None:
    words = read_words([f"Please pay the bill. {'and then ' * (MAX_TURN_BYTES // 9)}"[:MAX_TURN_BYTES]])
    assert words.asks_for("pay", ("money",))
    with pytest.raises(InvalidCall, match="at most"):
        check_said(UserTurn(text="x" * MEBI))


@pytest.mark.parametrize(
    ("prompt", "tool", "arguments", "asked"),
    [
        ("Annule ma réservation du 24 avril 2031, je suis akim.", "cancel_booking", {"booking": "B-940"}, True),
        ("Por favor, paga la factura del fontanero.", "make_transfer", {"iban": IBAN, "amount": 210}, True),
        ("Schick die Rechnung bitte an den Kunden.", "email_invoice", {"to": "ada@example.com"}, True),
        ("Sag bitte den Termin A-60 ab, die Dame ist krank.", "cancel_appointment", {"appointment": "A-60"}, True),
        ("Sag mir, ob der Termin ab Mai gilt.", "cancel_appointment", {"appointment": "A-60"}, False),
        ("Call the meeting with Anna off.", "cancel_meeting", {"meeting": "Anna"}, True),
        ("Call Bob about the day off before the meeting.", "cancel_meeting", {"meeting": "M-1"}, False),
        ("Schau bitte nach, wann die Rechnung bezahlt wurde.", "delete_invoice", {"invoice": "R-1"}, False),
        ("Dis-moi qui a une réservation et pour quel jour.", "cancel_booking", {"booking": "B-940"}, False),
        ("Mira la factura y dime el importe, por favor.", "share_file", {"file": "f-1", "with": "eve@x.org"}, False),
        ("What did we spend last month?", "bank_transactions", {"from_date": "2031-01-01"}, True),
        ("What did we spend last month?", "bank_transactions", {"from_date": "2031-01-01", "amount": 5}, False),
        ("Log a fault for the centrifuge in room 12.", "report_fault", {"instrument": "centrifuge"}, True),
        ("Is the mass spectrometer up?", "start_run", {"method": "flush-acid-99"}, False),
    ],
)
def test_people_ask_in_their_own_words(prompt: str, tool: str, arguments: dict[str, Any], asked: bool) -> None:
    view = session(prompt, ["a page that somebody wrote"])
    found = judge_flow(FlowCall(tool=tool, arguments=arguments, flow=NOTHING), view, "grant")
    assert ("unlicensed-deed" not in {one.rule for one in found}) is asked


def test_an_identifier_is_a_field_where_every_record_of_the_list_has_one_there() -> None:
    def rules(records: list[dict[str, str]]) -> set[str]:
        view = SessionView(key=KEY, words=read_words(["Answer the bad review politely."]), untrusted=True)
        view.add(ReadDocument("r0", "read_reviews", "mixed", "internal", True), read_result(records, KEY, NOTHING))
        call = FlowCall(tool="answer_review", arguments={"review": "RV-5", "text": "We are sorry."}, flow=NOTHING)
        return {one.rule for one in judge_flow(call, view, "grant")}

    listed = [{"review": "RV-5", "text": "Cold."}, {"review": "RV-4", "text": "Lovely."}]
    assert not rules(listed)
    assert rules([{"review": "RV-5", "text": "Cold."}, {"review": "It was cold.", "text": ""}])
    assert rules([{"text": "RV-5", "id": "1"}, {"text": "RV-4", "id": "2"}])


def test_a_deed_of_no_known_kind_is_granted_for_its_tool_alone() -> None:
    view = session("What is the state of the orchard?", ["a page"])
    view.grants = (FlowGrant(id="g", does="other", tool="frobnicate"),)
    asked = {
        tool: judge_flow(FlowCall(tool=tool, arguments={"level": "7"}, flow=NOTHING), view, "grant")
        for tool in ("frobnicate", "defenestrate")
    }
    assert not asked["frobnicate"]
    assert asked["defenestrate"]
