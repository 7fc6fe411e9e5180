"""The document store: SQLite is the only truth; what is derived from it carries a sequence number and checksums."""
