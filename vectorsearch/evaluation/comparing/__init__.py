"""Is one system better than another, by more than chance?"""
