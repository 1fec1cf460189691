"""The programs that run scripts: which there are on this machine, and what tells one from another."""
