"""Tests of trisplit.assets: every download goes through the true clients, to packages made here."""
