"""Which settings answer judged questions best?"""
