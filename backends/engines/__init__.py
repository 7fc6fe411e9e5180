"""One file a backend, found by its name: `NAME_backend.py`, whose function `backend()` returns it."""
