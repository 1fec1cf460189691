"""Results by name: what was computed once is kept under the digest of all that it depends on."""

from trisplit.cache.key import Impure, Key, key_of
from trisplit.cache.memo import memo
from trisplit.cache.store import Store, open_store

__all__ = ["Impure", "Key", "Store", "key_of", "memo", "open_store"]
