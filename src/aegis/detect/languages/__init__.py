"""Programs in other languages than shells: their syntax, the values of their expressions, what their calls do."""
