"""Who owns the state, and carries out what follows?"""
