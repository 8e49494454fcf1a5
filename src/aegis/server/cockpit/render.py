"""Pages as HTML: escaped everywhere, with headers that allow nothing but this gateway's own files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from aegis._version import __version__
from aegis.errors import InvalidCall
from aegis.server.cockpit import assets, text, words
from aegis.server.cockpit.nav import sections
from aegis.server.cockpit.page import Visit

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types aegis"
    ),
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}


@cache
def environment() -> Environment:
    """The templates; a name that a page does not give is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters["visible"] = text.visible
    found.filters["count"] = words.count
    found.filters["ticked"] = text.ticked
    found.filters["hint"] = text.hint
    found.filters["short"] = text.short
    found.filters["micros"] = words.micros
    found.globals["asset"] = assets.url
    found.globals["words"] = words
    found.globals["version"] = __version__
    return found


def html(visit: Visit, template: str, status: int = 200, **context: Any) -> Response:
    """The page of a template."""
    body = (
        environment()
        .get_template(template)
        .render(visit=visit, sections=sections(visit), pending=visit.cockpit.rollup.pending, **context)
    )
    return Response(body, status_code=status, media_type="text/html")


def failure(visit: Visit, refusal: InvalidCall) -> Response:
    """The page that stands for a refusal."""
    body = (
        environment()
        .get_template("failure.html")
        .render(visit=visit, sections=sections(visit), pending=0, refusal=refusal)
    )
    return Response(body, status_code=refusal.status, media_type="text/html")
