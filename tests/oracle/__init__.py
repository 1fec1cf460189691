"""Logits and tokens of transformers, stored, and what our decoder says beside them."""
