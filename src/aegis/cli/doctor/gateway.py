"""The gateway: whether one answers, whether the key is known to it, and whether it can be told from a counterfeit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aegis.cli.doctor.model import Found, Patient
from aegis.errors import AegisError, InvalidCall

if TYPE_CHECKING:
    from aegis.cli.remote import Gateway


def gateway(patient: Patient) -> Iterable[Found]:
    """Ask the gateway that is named, or the one that listens on the home's socket."""
    from aegis.cli.remote import Gateway, GatewayUnreachable, local_gateway

    found = Gateway(url=patient.url) if patient.url is not None else local_gateway(patient.home)
    if found is None:
        yield Found(check="gateway", state="skip", found="none listens on this home")
        return
    place = found.uds or found.url
    try:
        found.ask("GET", "/readyz", "")
    except GatewayUnreachable as error:
        yield Found(check="gateway", state="fail", found=str(error), hint="`aegis serve` starts one")
        return
    except AegisError as error:
        yield Found(check="gateway", state="fail", found=f"{place}: {error}", hint="is it an Aegis gateway?")
        return
    yield Found(check="gateway", state="ok", found=f"ready at {place}")
    yield _identity(found)
    yield _credential(found, patient)


def _identity(found: Gateway) -> Found:
    if found.uds is not None or found.url.startswith("https://"):
        how = "the owner of its socket" if found.uds is not None else "its TLS certificate"
        return Found(check="gateway identity", state="ok", found=f"known by {how}")
    return Found(
        check="gateway identity",
        state="warn",
        found="plain TCP: whoever holds the port is believed",
        hint="use TLS, or the Unix socket in the home",
    )


def _credential(found: Gateway, patient: Patient) -> Found:
    if not patient.api_key:
        return Found(check="API key", state="skip", found="none given", hint="set AEGIS_API_KEY or --api-key-file")
    try:
        found.ask("GET", "/.well-known/jwks.json", patient.api_key)
    except InvalidCall as error:
        return Found(check="API key", state="fail", found=error.message, hint=error.hint)
    except AegisError as error:
        return Found(check="API key", state="fail", found=str(error))
    return Found(check="API key", state="ok", found="known to the gateway")
