"""What agents usually do, and what of their last day is not like that."""
