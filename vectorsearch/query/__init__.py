"""Which stages answer this query, and what did they find?"""
