"""Indexes over the document store: immutable to their readers, caught up from the store's sequence number."""
