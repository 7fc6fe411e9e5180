"""Which backend serves a model here, in which precision, and is it well?"""
