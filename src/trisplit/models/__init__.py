"""A decoder model: its facts, tensors, stages, and the one-process decoder."""
