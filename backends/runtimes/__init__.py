"""What does a backend need of its runtime, beside its own file?"""
