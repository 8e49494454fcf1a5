"""What a developer imports: `auto`, `session`, `protect`, `Gate`."""

from aegis.facade.gate import Gate as Gate
