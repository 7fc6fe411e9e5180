"""What did the stages of a plan find?"""
