"""Detector rules as data, compiled once into one multi-pattern scanner."""

from aegis.rules.folder import builtin_folder
from aegis.rules.load import load
from aegis.rules.model import Rule, RuleSet
from aegis.rules.scanner import Hit, Scanner

__all__ = ["Hit", "Rule", "RuleSet", "Scanner", "builtin_folder", "load"]
