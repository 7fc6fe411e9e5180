"""How does a user make a model of their own?"""
