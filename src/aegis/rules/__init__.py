"""Detector rules as data, compiled once into one multi-pattern scanner."""
