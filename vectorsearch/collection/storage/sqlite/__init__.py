"""How does one SQLite file hold documents?"""
