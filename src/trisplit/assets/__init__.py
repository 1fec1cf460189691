"""Models, texts and questions by name: fetched once with a registry's own client, checked, kept."""

from trisplit.assets.catalogue import ASSETS, Asset
from trisplit.assets.questions import Question, read_questions
from trisplit.assets.store import fetch
from trisplit.assets.texts import Article, calibration, held_out, read_articles

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
