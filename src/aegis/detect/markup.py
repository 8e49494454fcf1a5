"""Markup that is only shown: whether a page or letter of HTML starts anything where it is read."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from aegis.core.patterns import Lazy

# Markup that is only shown (HTML Living Standard): elements and attributes that start nothing, styles without what old
# browsers run, and blocks of data, which a `script` with a type that is no script's is. Marks of comments are taken
# away and what they hold is read with the rest, as mail programs read conditional comments.
_LONGEST_MARKUP: Final = 131_072  # characters of a page or letter; a longer one counts as running something
_LEAST_LETTERS: Final = 8  # of its text: markup that shows next to nothing is there for something else
_TAG: Final = Lazy(r"<(/?)([a-zA-Z][\w:-]*)((?:[^<>\"'`]|\"[^\"<]*\"|'[^'<]*')*)/?>")
_PASSIVE: Final = Lazy(
    r"(?i)^(?:a|abbr|address|article|aside|b|big|blockquote|body|br|caption|center|cite|code|col|colgroup|dd|del|details|"
    r"div|dl|dt|em|figcaption|figure|font|footer|h[1-6]|head|header|hr|html|i|img|ins|kbd|li|link|main|mark|meta|nav|ol|"
    r"p|pre|q|s|samp|section|small|span|strike|strong|sub|summary|sup|table|tbody|td|tfoot|th|thead|time|title|tr|tt|u|"
    r"ul|var|wbr|xml|[ovw]:[a-z]+)$"
)
_COMMENTS: Final = Lazy(r"(?i)<!--\[if [\w !()&|.]{1,60}\]>(?:<!-->|-->)?|<!(?:--<!)?\[endif\](?:--)?>|<!--|-->")
_DATA_BLOCK: Final = Lazy(r"(?i)<script\s+type=[\"']?application/(?:ld\+)?json[\"']?\s*>[^<]*</script\s*>")
_STYLES: Final = Lazy(r"(?i)(<style[^<>]*>)([^<]*)</style\s*>")
_EMBEDDED: Final = Lazy(r"(?i)\bsrc\s*=\s*[\"']https://[\w.-]{1,200}/[^\"'\s@]{0,500}[\"']")
_FOR_EMBEDDING: Final = Lazy(r"(?i)\b(?:embed(?:ded)?|player)\b")
_STARTS: Final = Lazy(  # what an attribute, a style or a text would start
    r"(?i)\bon[a-z]{3,24}\s*=|script\s*:|\b(?:srcdoc|formaction|xlink|dynsrc|lowsrc|datasrc|datafld)\b|"
    r"expression\s*\(|-moz-binding|\bbehaviou?r\s*:|-o-link|&(?:colon|tab|newline|lpar)|"
    r"=\s*[\"']?\s*(?:file|view-source|filesystem|blob|mocha)\s*:|"
    r"data\s*:\s*(?:text|application|[^i\s]|image/svg)|\b(?:alert|prompt|confirm|eval|setTimeout|setInterval|fetch)\s*[(`]|"
    r"\b(?:document|window|self|parent|top)\s*[.\[]\s*[\"']?(?:cookie|write|location|domain|body|open|name|eval)|"
    r"fromcharcode|\.constructor\b|@import|http-equiv\s*=\s*[\"']?\s*(?:refresh|set-cookie|link)|"
    r"charset\s*=\s*[\"']?\s*(?:x-|utf-?(?:7|16|32)|iso-2022|hz)|url\([^)]{0,200}\.svg|\]\]>"
)
_SAMPLES: Final = Lazy(r"(<code>)[^<]*(</code>)")
_SHEET: Final = Lazy(r"(?i)\bhref\s*=\s*[\"']?https://")
_LETTER: Final = Lazy(r"\p{L}")

# What testers type to see whether a page escapes it: markup whose whole script opens a box, and nothing beside it.
_SHOWN: Final = r"\d{0,6}|'[\w !.-]{0,40}'|\"[\w !.-]{0,40}\"|`[\w !.-]{0,40}`|document\.(?:domain|cookie|title)|origin"
_BOX: Final = rf"(?:alert|confirm|prompt|print|console\.log)\((?:{_SHOWN})\)(?:;|//)?"
_PROBE: Final = Lazy(
    rf"(?i)^[\w\s\"'>/]{{0,20}}(?:<script>{_BOX}</script>|javascript:{_BOX}|<(?:img|svg|body|input|details|video|audio)"
    rf"(?:[\s/]+(?:src|open|autofocus|type)(?:=[\"']?[\w#.]{{0,12}}[\"']?)?)*[\s/]+on[a-z]{{4,12}}=[\"']?{_BOX}[\"']?\s*/?>?)"
    r"[\"']?\s*$"
)
_OWN_HOST: Final = Lazy(r"(?i)^https?://(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?(?:[/?#]|$)")
_LONGEST_PROBE: Final = 200


def is_own_host(url: str) -> bool:
    """Whether a URL leads to the machine itself, by its name or its first address."""
    return url[:4].lower() == "http" and _OWN_HOST.match(url) is not None


def is_probe(text: str) -> bool:
    """Whether a text is a trial of whether a page escapes it: its script shows a box to who sees it, and no more."""
    return len(text) <= _LONGEST_PROBE and "(" in text and _PROBE.match(text) is not None


def _tries_own_page(text: str) -> bool:
    """Whether a URL gives a page of the machine itself such trials and plain values."""
    if len(text) > 4 * _LONGEST_PROBE or not is_own_host(text):
        return False
    page, _, asked = text.partition("?")
    return "<" not in page and all(is_probe(one) or one.isalnum() for _, one in parse_qsl(asked))


def active(text: str, decoded: bool) -> bool:
    """Whether markup in a text would run something: not where the text is a page or letter that is only shown."""
    if _tries_own_page(text):
        return False
    if "<" not in text or len(text) > _LONGEST_MARKUP:
        return True
    plain = _DATA_BLOCK.sub(
        " ", _COMMENTS.sub(" ", text.replace("<!DOCTYPE html>", " ").replace("<!doctype html>", " "))
    )
    if not plain.strip():  # blocks of data alone
        return False
    plain = without_samples(plain)
    if _STARTS.search(plain) is not None:
        return True
    written = [style for _, style in _STYLES.findall(plain)]
    plain = _STYLES.sub(" ", plain)
    for _, element, attributes in _TAG.findall(plain):
        name = element.lower()
        if name == "iframe":
            if attributes and not _embeds(attributes):
                return True
        elif _PASSIVE.match(name) is None or (name == "link" and _SHEET.search(attributes) is None):
            return True
        written.append(attributes)
    if any("\\" in part or "&#" in part for part in written):  # spelled so that it is not seen what it is
        return True
    shown = _TAG.sub(" ", plain)
    return "<" in shown or len(_LETTER.findall(shown)) < _LEAST_LETTERS


def _embeds(attributes: str) -> bool:
    """Whether a frame shows what its host offers for pages of others: a map, a film, a form."""
    source = _EMBEDDED.search(attributes)
    return source is not None and _FOR_EMBEDDING.search(source.group()) is not None


def without_samples(text: str) -> str:
    """A text of markup without what its samples of code show, which is read by people only."""
    return _SAMPLES.sub(r"\1 \2", text) if "<code" in text else text
