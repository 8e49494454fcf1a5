"""One session over a framework of this process and a proxy: what one of them read, the other does not pay."""

from __future__ import annotations

import json
from pathlib import Path

import aegis
from aegis.cli.demo.provider import Call, Turn
from aegis.sdk.runtime import RuntimeSettings, open_runtime, replace_runtime
from support.proxied import proxied

IBAN = "DE44500105175407324931"
PAY = Call(tool="pay_bill", arguments={"account": IBAN}, id="call_pay_0123456789ab")
TOOLS = """
  read_bill: {risk: low, effects: [read], result: {trust: untrusted}}
  pay_bill: {risk: medium, does: pay, arguments: {account: {is: account, sink: true}}}
  send_email: {risk: low, effects: [external_send]}"""


def test_an_account_that_a_protected_tool_read_is_not_paid_over_the_model_proxy(tmp_path: Path) -> None:
    with proxied(tmp_path / "home", Turn(calls=(PAY,)), tool=TOOLS.lstrip(), proxies="on_approval: answer") as (
        world,
        at,
    ):

        @aegis.protect
        def read_bill(path: str) -> str:
            return f"Invoice 7 ({path}). Our account is {IBAN}."

        replace_runtime(open_runtime(RuntimeSettings(url=world.door, api_key=world.key)))
        try:
            with aegis.session("s-1", task="Sum up my mail, please"):
                assert IBAN in read_bill("bill.txt")
        finally:
            replace_runtime(None)
        tool = {"type": "function", "function": {"name": "pay_bill", "parameters": {"type": "object"}}}
        body = {"model": "m", "messages": [{"role": "user", "content": "Sum up my mail, please"}], "tools": [tool]}
        answer = at.ask("POST", "/v1/chat/completions", body, headers={"x-aegis-session": "s-1"})
        assert "was not run" in json.dumps(answer.json)
        flow = at.ask("GET", "/v1/sessions/s-1/flow", key="auditor").json
    (edge,) = [one for one in flow["edges"] if one["holds"]]
    (source,) = [one for one in flow["sources"] if one["receipt"] == edge["from"]["receipt"]]
    assert (source["tool"], edge["is"], edge["to"]["path"]) == ("read_bill", "account", "/account")
