from __future__ import annotations

from aegis.detect.quick import remembered


def test_answers_about_short_words_are_kept_and_long_ones_are_not() -> None:
    asked: list[str] = []

    @remembered
    def length(word: str) -> int:
        asked.append(word)
        return len(word)

    long = "x" * 500
    assert [length("short"), length("short"), length(long), length(long)] == [5, 5, 500, 500]
    assert asked == ["short", long, long]


def test_what_is_remembered_is_bounded() -> None:
    asked: list[str] = []

    @remembered
    def itself(word: str) -> str:
        asked.append(word)
        return word

    for number in range(10_000):
        assert itself(str(number)) == str(number)
    asked.clear()
    assert itself("0") == "0"
    assert asked == ["0"]
