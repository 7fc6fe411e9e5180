"""Which vectors are nearest?"""
