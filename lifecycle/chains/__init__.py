"""Which backend answers when one fails?"""
