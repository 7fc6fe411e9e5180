"""What does a model's folder say, and is all of it understood?"""
