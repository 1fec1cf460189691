"""Words between machines: frames, messages, and which may follow which; pure."""
