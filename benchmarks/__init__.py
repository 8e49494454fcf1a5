"""Measures Aegis on the machine it runs on; every figure stands beside a baseline of the same run."""
