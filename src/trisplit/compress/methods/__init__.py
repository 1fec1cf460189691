"""Ways to make a layer smaller, each a set of pure functions on what the layer was given."""
