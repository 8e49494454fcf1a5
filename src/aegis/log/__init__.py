"""The log: receipts, hash chain, Merkle tree (RFC 6962), signed checkpoints, append, verify, export."""
