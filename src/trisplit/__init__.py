"""trisplit runs a decoder language model split over several machines, exactly."""

__version__ = "0.1.0"
