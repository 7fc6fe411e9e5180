"""Vectors from words alone: how are they fitted, and computed?"""
