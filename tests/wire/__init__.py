"""Tests of the words between machines."""
