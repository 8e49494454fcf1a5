"""What a developer imports: `auto`, `session`, `protect`, `Gate`."""
