"""Keys on disk, one purpose each: log, receipts, permits; and the API keys' hashes."""
