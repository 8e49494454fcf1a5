"""Drafts of policies from plain words: what a model proposes, checked, tried and shown; never applied by itself."""
