"""How does JAX compile and run a program?"""
