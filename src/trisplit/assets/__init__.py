"""Models, texts and questions by name: fetched once with a registry's own client, checked, kept."""

from .catalogue import ASSETS, Asset
from .questions import Question, read_questions
from .store import fetch
from .texts import Article, calibration, held_out, read_articles

__all__ = [
    "ASSETS",
    "Article",
    "Asset",
    "Question",
    "calibration",
    "fetch",
    "held_out",
    "read_articles",
    "read_questions",
]
