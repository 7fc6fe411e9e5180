"""Which model does a name mean, and may this tenant use it?"""
