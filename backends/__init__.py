"""Inference backends: here are token ids; what does this model compute, here, on this hardware?"""

from backends.former_names import install as _install

_install()
