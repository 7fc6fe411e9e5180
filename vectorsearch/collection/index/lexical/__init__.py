"""Which documents have these words?"""
