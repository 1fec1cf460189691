"""What recipes are made of: a module for each kind of step, and what they all are."""
