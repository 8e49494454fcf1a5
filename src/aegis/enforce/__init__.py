"""The one enforcement point that adapters and proxies share."""
