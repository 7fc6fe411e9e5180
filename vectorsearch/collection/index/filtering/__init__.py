"""Which documents have this metadata?"""
