"""Builds a gate from a configuration: the only place that knows all parts."""
