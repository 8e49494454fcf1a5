"""Text that would run, load or break something if a page ever took it for markup. Written for these tests."""

from __future__ import annotations

# Each one calls `pwned` where it succeeds, or loads from a host that no page may name.
HOSTILE: tuple[str, ...] = (
    "<script>pwned(1)</script>",
    "</script><script>pwned(2)</script>",
    "<img src=x onerror=pwned(3)>",
    "<svg onload=pwned(4)>",
    "<svg><use href='data:image/svg+xml,<svg id=x onload=pwned(5)>#x'></use></svg>",
    '"><script>pwned(6)</script>',
    "' onmouseover='pwned(7)' autofocus onfocus='pwned(7)' x='",
    '" autofocus onfocus="pwned(8)" x="',
    "<iframe srcdoc='<script>parent.pwned(9)</script>'></iframe>",
    "<a href=javascript:pwned(10)>link</a>",
    "javascript:pwned(11)",
    "<math><mtext><table><mglyph><style><img src=x onerror=pwned(12)>",
    "<noscript><p title='</noscript><img src=x onerror=pwned(13)>'>",
    "<textarea></textarea><script>pwned(14)</script>",
    "</textarea><script>pwned(15)</script>",
    "</title><script>pwned(16)</script>",
    "<!--><script>pwned(17)</script-->",
    "<template><script>pwned(18)</script></template>",
    "{{ 7 * 7 }}{% raw %}<script>pwned(19)</script>",
    "${pwned(20)} #{pwned(20)} <%= pwned(20) %>",
    "<base href=//outside.invalid/><link rel=stylesheet href=//outside.invalid/x.css>",
    "<meta http-equiv=refresh content='0;url=//outside.invalid/'>",
    "<form action=//outside.invalid/><button>Approve</button></form>",
    "<style>body{display:none}</style><div style=position:fixed;inset:0>",
    "\u202e<tpircs>\u200b<scr\u200bipt>pwned(21)</script>",
    "&lt;script&gt;pwned(22)&lt;/script&gt;&#60;script&#62;pwned(22)&#60;/script&#62;",
    "\x00<script>pwned(23)</script>\x1b[2J",
    "<details open ontoggle=pwned(24)>",
    "data:text/html,<script>pwned(25)</script>",
    'event: row\ndata: {"id": "x"}\n\nid: 9<script>pwned(26)</script>',
)
