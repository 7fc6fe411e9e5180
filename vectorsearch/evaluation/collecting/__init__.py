"""Which documents, questions and judgments are there?"""
