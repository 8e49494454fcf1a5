"""Hooks of coding agents: one process a tool call, asked by the host before and after the tool runs."""
