"""What tools say about themselves: scanned for instructions to the model, and pinned against silent change."""

from aegis.guards.descriptions.pins import Change, Pins, compare
from aegis.guards.descriptions.scan import DescriptionScanner, ToolFinding

__all__ = ["Change", "DescriptionScanner", "Pins", "ToolFinding", "compare"]
