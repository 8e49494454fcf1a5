"""Requests to a cloud and functions that are looked up: what a program asks for by a name, in every language."""

from __future__ import annotations

import pytest

from aegis.detect.code import analyse_code
from aegis.detect.languages.requests import cloud_operations, squashed
from aegis.detect.languages.syntax import CodeLanguage
from aegis.detect.shell.services import cmdlet_effects
from aegis.detect.shell.shell import analyse_shell

_REQUESTS: list[tuple[CodeLanguage, str]] = [
    ("python", "import boto3\nboto3.client('cloudtrail').delete_trail(Name='main')"),
    (
        "javascript",
        "const {DeleteTrailCommand: D} = require('@aws-sdk/client-cloudtrail'); new DeleteTrailCommand({Name: 'm'})",
    ),
    ("javascript", "const AWS = require('aws-sdk'); new AWS.CloudTrail().deleteTrail({Name: 'm'}).promise()"),
    (
        "go",
        'package main\nimport "github.com/aws/aws-sdk-go-v2/service"\nfunc main() { c.DeleteTrail(ctx, in) }',
    ),
    ("ruby", "require 'aws-sdk'\nAws::CloudTrail::Client.new.delete_trail(name: 'm')"),
    (
        "javascript",
        "const trail = require('@aws-sdk/client-cloudtrail'); const ways = {end: 'Delete', look: 'Describe'};"
        " const Command = trail[`${ways['end']}TrailCommand`]; new Command({Name: 'm'})",
    ),
]


@pytest.mark.claim("DET-98")
@pytest.mark.parametrize(("language", "code"), _REQUESTS)
def test_a_request_of_a_library_is_the_command_line_that_asks_the_same(language: CodeLanguage, code: str) -> None:
    asked = {signal for signal, _ in analyse_shell("aws cloudtrail delete-trail --name main").signals}
    assert asked
    assert asked <= {signal for signal, _ in analyse_code(code, language).signals}


@pytest.mark.claim("DET-98")
@pytest.mark.parametrize(
    "code",
    [
        "import boto3\nboto3.client('cloudtrail').describe_trails()",
        "shop.delete_trail(name='x')",  # no text of a cloud
        "import boto3\nboto3.client('s3').list_buckets()",
    ],
)
def test_other_calls_ask_nothing_of_a_cloud(code: str) -> None:
    assert analyse_code(code, "python").signals == []


@pytest.mark.claim("DET-98")
@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("getattr(__import__('sub' + 'process'), 'run')(['sh', '-c', 'rm -rf /'])", "shell.destroy"),
        ("__import__('os').__dict__['system']('rm -rf /')", ""),
        ("getattr(os, 'cpu_count')()", ""),
    ],
)
def test_a_function_that_is_looked_up_is_the_function(code: str, found: str) -> None:
    facts = analyse_code(code, "python")
    assert "execute program one" in {effect.name for effect in facts.effects}
    assert not found or found in {signal for signal, _ in facts.signals}


def test_a_function_of_an_object_is_no_module_of_programs() -> None:
    assert analyse_code("getattr(self.store, 'load')('x')\ngetattr(json, 'dumps')([1])", "python").effects == []


@pytest.mark.parametrize(
    ("name", "effects"),
    [
        ("Remove-MgIdentityConditionalAccessPolicy", {("permit", "cloud-identity")}),
        ("Remove-AzureRmSqlDatabase", {("delete", "database")}),
        ("New-AzureADServicePrincipalPasswordCredential", {("permit", "cloud-identity")}),
        ("Get-AzSqlDatabase", set()),
        ("Remove-Variable", set()),
        ("Remove-RuleFromProject", set()),
        ("New-AzKitCredential", {("permit", "cloud-identity")}),
        ("New-AzKitCredentialScanObject", set()),
        ("new-thing", set()),
    ],
)
def test_a_cmdlet_that_nobody_listed_is_told_by_its_words(name: str, effects: set[tuple[str, str]]) -> None:
    assert {(did.verb, did.resource) for did in cmdlet_effects(name)} == effects


def test_operations_come_from_the_command_line_of_the_cloud() -> None:
    assert cloud_operations()[squashed("deletetrailcommand")] == "aws cloudtrail delete-trail"
    assert all(line.startswith("aws ") for line in cloud_operations().values())
