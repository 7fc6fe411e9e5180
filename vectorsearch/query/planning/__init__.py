"""What is asked, and which stages answer it, how deep, in which time?"""
