"""What the demonstration is made of."""
