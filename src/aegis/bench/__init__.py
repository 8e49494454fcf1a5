"""A bench that assumes the breach: tasks and attackers' calls, put to a real gate without any model."""
