"""The proxy of MCP servers: what a client asks for is decided, what a server says is judged, the rest passes."""
