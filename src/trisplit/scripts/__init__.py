"""Scripts that run once: what is proven pure is answered from the store, everything else runs as ever."""
