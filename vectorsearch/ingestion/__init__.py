"""How does a row become a stored document?"""
