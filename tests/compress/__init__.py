"""Tests of more than one machine."""
