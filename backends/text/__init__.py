"""What words and tokens does a text have?"""
