"""What does a portable graph compute?"""
