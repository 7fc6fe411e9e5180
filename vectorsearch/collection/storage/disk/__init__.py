"""Which files are there, whose are they, and do they last?"""
