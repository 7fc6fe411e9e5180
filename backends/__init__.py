"""Inference backends: here are token ids; what does this model compute, here, on this hardware?"""
