"""Missions: who may issue, delegate and stop them, and how a session proves that it holds one."""

from __future__ import annotations

from typing import Final

from aegis.server import missions
from aegis.server.endpoint import Body, Endpoint, Param
from aegis.server.permissions import CHALLENGE, DELEGATE, ISSUE, SEE_MISSIONS
from aegis.server.schemas.common import ref
from aegis.server.table.parts import CURSOR, LIMIT, failing, named, ok

_ID: Final = named("the mission's id")
_STATE: Final = Param(
    name="state",
    schema={"type": "string", "enum": ["active", "suspended", "revoked"]},
    text="with this state",
)
_MOVED: Final = {
    **ok("moved; every call below sees it from now on", "MissionMoved"),
    **failing(s404="there is no such mission", s409="it is not in a state from which it can be moved there"),
}

ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/missions",
        operation="listMissions",
        tag="missions",
        summary="Missions by id",
        permission=SEE_MISSIONS,
        handler=missions.list_missions,
        query=(_STATE, LIMIT, CURSOR),
        replies=ok("one page", "Missions"),
    ),
    Endpoint(
        method="POST",
        path="/v1/missions",
        operation="issueMission",
        tag="missions",
        summary="Issue a mission: sign it here, or enrol one that a trusted issuer signed",
        permission=ISSUE,
        handler=missions.issue_mission,
        body=Body(schema=ref("MissionIssue")),
        replies={**ok("issued", "MissionIssued", 201), **failing(s409="a mission of this id is known already")},
    ),
    Endpoint(
        method="POST",
        path="/v1/missions:status",
        operation="publishMissionStatus",
        tag="missions",
        summary="Put an issuer's signed status list in force",
        permission=ISSUE,
        handler=missions.publish_status,
        body=Body(schema=ref("MissionStatus")),
        replies={**ok("in force", "MissionStatusTaken"), **failing(s409="one that is as new is in force")},
    ),
    Endpoint(
        method="GET",
        path="/v1/missions/{id}",
        operation="getMission",
        tag="missions",
        summary="One mission, its standing and its lineage",
        permission=SEE_MISSIONS,
        handler=missions.get_mission,
        path_params=_ID,
        replies={**ok("the mission", "MissionView"), **failing(s404="there is no such mission")},
    ),
    Endpoint(
        method="POST",
        path="/v1/missions/{id}/delegate",
        operation="delegateMission",
        tag="missions",
        summary="Delegate a mission to another agent, at most as far as it goes itself",
        permission=DELEGATE,
        handler=missions.delegate_mission,
        path_params=_ID,
        body=Body(schema=ref("MissionDelegation")),
        replies={
            **ok("delegated", "MissionIssued", 201),
            **ok("this request was carried out before", "MissionIssued"),
            **failing(
                s404="there is no such mission", s409="the request id was used otherwise, or the mission is not active"
            ),
        },
    ),
    Endpoint(
        method="POST",
        path="/v1/missions/{id}/revoke",
        operation="revokeMission",
        tag="missions",
        summary="Stop a mission and everything below it, for good",
        permission=ISSUE,
        handler=missions.revoke_mission,
        path_params=_ID,
        body=Body(schema=ref("MissionMove"), required=False),
        replies=_MOVED,
    ),
    Endpoint(
        method="POST",
        path="/v1/missions/{id}/suspend",
        operation="suspendMission",
        tag="missions",
        summary="Stop a mission and everything below it until it is resumed",
        permission=ISSUE,
        handler=missions.suspend_mission,
        path_params=_ID,
        body=Body(schema=ref("MissionMove"), required=False),
        replies=_MOVED,
    ),
    Endpoint(
        method="POST",
        path="/v1/missions/{id}/resume",
        operation="resumeMission",
        tag="missions",
        summary="Let a suspended mission go on",
        permission=ISSUE,
        handler=missions.resume_mission,
        path_params=_ID,
        body=Body(schema=ref("MissionMove"), required=False),
        replies=_MOVED,
    ),
    Endpoint(
        method="POST",
        path="/v1/sessions:challenge",
        operation="challengeSession",
        tag="missions",
        summary="A nonce that one session can be opened with, within a minute",
        permission=CHALLENGE,
        handler=missions.challenge_session,
        replies={**ok("the challenge", "Challenge", 201), **failing(s429="too many wait for an answer")},
    ),
)
