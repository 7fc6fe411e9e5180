"""How does NumPy run a program?"""
