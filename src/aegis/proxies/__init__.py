"""Enforcement between agents that nobody changes and what they talk to: models, MCP servers, command-line hosts."""
