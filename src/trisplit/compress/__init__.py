"""Making a model smaller, and measuring what it lost by that."""
