"""The gateway: HTTP API, as two lists (routes, middleware)."""
