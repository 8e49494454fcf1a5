"""What shell commands do, read from their syntax trees."""
