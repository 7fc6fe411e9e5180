"""What do callers hold? It knows every part, and decides nothing."""
