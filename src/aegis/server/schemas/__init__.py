"""JSON Schemas (2020-12) of what crosses the HTTP API; those of one feature stand in its `routes.py`."""
