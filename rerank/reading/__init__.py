"""How are many texts, and long ones, scored?"""
