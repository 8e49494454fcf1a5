"""The custom guardrail that puts the proxy of LiteLLM behind decisions, named in its configuration, for every request.

Calls of models and of MCP tools are decided at the hooks that `auto` sets in the proxy's process, where nothing goes
round them and where what fails refuses. The guardrail sets them as the proxy starts, which fails where they cannot be
set, and says before each call whose conversation it belongs to.
"""

from __future__ import annotations

from typing import Any, Final

from litellm.integrations.custom_guardrail import CustomGuardrail, get_session_id_from_request_data
from litellm.types.guardrails import GuardrailEventHooks

from aegis.core.canonical import canonical, sha256
from aegis.enforce.scope import Session, enter_session
from aegis.sdk.hooking import auto

_HOOKS: Final = [GuardrailEventHooks.pre_call, GuardrailEventHooks.pre_mcp_call]


class AegisGuardrail(CustomGuardrail):  # type: ignore[misc]  # the package has no types
    """The guardrail `aegis.adapters.litellm_guardrail.AegisGuardrail`.

    Its mode is `[pre_call, pre_mcp_call]`, with `default_on: true`. What `auto` takes from the environment
    (`AEGIS_URL`, `AEGIS_API_KEY`, `AEGIS_CONFIG`, `AEGIS_HOME`) counts here. Raises what `auto` raises.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(supported_event_hooks=_HOOKS, **options)
        auto()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> Any:
        """Open the session of the request: that of its key, and of the conversation that it names itself."""
        enter_session(Session(name=_session_of(user_api_key_dict, data)))
        return data


def _session_of(key: Any, data: dict[str, Any]) -> str:
    """A name that two keys never share, whatever conversation they name."""
    owner = str(getattr(key, "token", None) or getattr(key, "api_key", None) or "")
    named = get_session_id_from_request_data(data) or ""
    return f"litellm-{sha256(canonical([owner, named])).removeprefix('sha-256:')[:32]}"
