"""Rulers: what is measured, beside what, and how it is reported."""
