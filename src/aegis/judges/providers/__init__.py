"""The wire formats of models that judge: each turns a conversation into a request, and an answer into a turn."""
