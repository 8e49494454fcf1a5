"""The published conformance suite of the protocol says the same with and without the proxy between."""

from __future__ import annotations

from pathlib import Path

from support.mcp_suite import against_server, everything, needs_suite
from support.served import served

CONFIG = """
version: 1
limits: {{rate: unlimited}}
proxies:
  mcp:
    everything: {{url: "{url}", private: true}}
"""


@needs_suite
def test_the_suite_for_servers_says_the_same_through_the_gateway(tmp_path: Path) -> None:
    with everything() as url:
        direct = against_server(url, tmp_path / "direct")
        with served(tmp_path / "home", CONFIG.format(url=url)) as gateway:
            through = f"http://127.0.0.1:{gateway.port}/mcp/everything"
            proxied = against_server(through, tmp_path / "proxied", key=gateway.credentials.text("bot"))
    # This scenario is for servers that ask for no credential. The gateway lets nobody in without one: both are refused.
    refused = dict(proxied.pop("dns-rebinding-protection"))
    assert refused == {"localhost-host-rebinding-rejected": "SUCCESS", "localhost-host-valid-accepted": "FAILURE"}
    assert len(direct.pop("dns-rebinding-protection")) == 2
    assert {status for checks in direct.values() for _, status in checks} <= {"SUCCESS", "WARNING"}
    assert len(direct) >= 31
    assert proxied == direct
