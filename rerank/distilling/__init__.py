"""How is a small first stage made of a large reranker?"""
