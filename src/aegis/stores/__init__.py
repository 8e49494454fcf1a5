"""Stores hold bytes and rows and know no meaning."""
