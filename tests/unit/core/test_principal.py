from __future__ import annotations

from aegis.core.names import Selector
from aegis.core.principal import Principal


def test_a_credential_without_selectors_may_call_every_tool() -> None:
    assert Principal(id="p", roles=frozenset({"agent"})).may_call("mail", "send")


def test_a_credential_with_selectors_may_call_what_one_of_them_covers() -> None:
    principal = Principal(id="p", roles=frozenset({"agent"}), tools=(Selector("mail/*"), Selector("read_file")))
    assert principal.may_call("mail", "send")
    assert principal.may_call(None, "read_file")
    assert not principal.may_call("files", "write")
    assert not principal.may_call(None, "send")
