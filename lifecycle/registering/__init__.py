"""Which name means which model, and how is one exchanged?"""
