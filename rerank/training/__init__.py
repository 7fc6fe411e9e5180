"""How is a cross-encoder trained?"""
