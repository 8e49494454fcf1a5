"""`aegis run`: a gateway around one command and whatever it starts."""
