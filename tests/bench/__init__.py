"""Tests of the rulers: that they measure what they say, never how fast this machine is."""
