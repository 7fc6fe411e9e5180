"""Read evaluation files as the field writes them, or refuse them by file and line."""
