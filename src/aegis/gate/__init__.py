"""The policy decision point: one call in, one recorded decision out."""

from aegis.gate.gate import Gate as Gate
from aegis.gate.parts import Parts as Parts
