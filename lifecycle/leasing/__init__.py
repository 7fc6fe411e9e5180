"""How does a caller wait for a model, hold it, and give it back?"""
