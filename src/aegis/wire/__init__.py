"""Pure translation between foreign JSON and core types; adapters and proxies share it."""
