"""Which of a graph's steps are one: a layer norm, a GELU, attention?"""
