"""Detector rules as data, compiled once into one multi-pattern scanner."""

from aegis.detect.rules.load import builtin_folder, load
from aegis.detect.rules.model import Rule, RuleSet
from aegis.detect.rules.scanner import Hit, Scanner

__all__ = ["Hit", "Rule", "RuleSet", "Scanner", "builtin_folder", "load"]
