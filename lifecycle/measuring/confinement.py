"""Bound what this process may do: no network, no large files, so much processor time, and it ends with its parent.

Linux forbids the network to a process without privileges by a filter of system calls (seccomp): it makes no socket but
a local one. Elsewhere, and on processors whose numbers of calls aren't listed here, the network stays, and `confine`
says so.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import sys
from contextlib import suppress

_SET_PARENT_DEATH, _SET_NO_NEW_PRIVILEGES = 1, 38  # prctl.h
_SET_FILTER, _ALL_THREADS = 1, 1  # seccomp.h: SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC
_SIGKILL = 9
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # seccomp.h; refused with EPERM
_LOAD, _IF_EQUAL, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # bpf_common.h: words, constants
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_OTHER_INTERFACE = 0x40000000  # calls of the x32 interface have this bit
_IO_URING_SETUP = 425  # the same everywhere; its requests can make sockets
# By machine: the architecture as audit.h has it, and the numbers of socket(2) and seccomp(2).
_CALLS = {"x86_64": (0xC000003E, 41, 317), "aarch64": (0xC00000B7, 198, 277)}
_FILE_NBYTES = 1 << 20  # runtimes try out their temporary folder; little more is written


def confine(cpu_s: float) -> bool:
    """Take this process's means away, all its threads', and return whether it can still reach a network."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError, TypeError):
            _cut_off(ctypes.CDLL(None, use_errno=True))
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415  (POSIX has it)

        seconds = max(1, int(cpu_s))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_NBYTES, _FILE_NBYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        socket.socket(socket.AF_INET).close()
    except OSError:
        return False
    return True


def _cut_off(libc: ctypes.CDLL) -> None:
    parent = os.getppid()
    libc.prctl(_SET_PARENT_DEATH, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the wish was heard
        os.kill(os.getpid(), _SIGKILL)
    libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    known = _CALLS.get(platform.machine())
    if known is None:
        return
    architecture, make_socket, filter_calls = known
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_IF_AT_LEAST, 5, 0, _OTHER_INTERFACE),
        (_IF_EQUAL, 4, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 0, 2, make_socket),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 0, 1, socket.AF_UNIX),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    )
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(steps), ctypes.addressof(buffer))
    libc.syscall(filter_calls, _SET_FILTER, _ALL_THREADS, ctypes.create_string_buffer(program, len(program)))
