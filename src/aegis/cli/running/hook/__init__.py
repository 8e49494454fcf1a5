"""What Python programs below `aegis run` load at their start: this folder stands first on their path."""
