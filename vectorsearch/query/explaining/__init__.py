"""What was planned, and what happened?"""
