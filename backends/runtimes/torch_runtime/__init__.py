"""How does PyTorch compute a model?"""
