"""Where do a model's files come from?"""
