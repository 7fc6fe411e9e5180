"""What does one tenant hold, and where is it looked up?"""
