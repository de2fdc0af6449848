"""A Landlock rule set: which paths may be read and which written, no TCP, no signals and sockets out of the sandbox.

The kernel's Documentation/userspace-api/landlock.rst gives the structures; the ABI's version says which rights exist.
A second wall behind the mount namespace: it holds where a mount was forgotten.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

from autograder.sandbox import linux

_CREATE, _ADD, _RESTRICT = 444, 445, 446
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << i for i in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << i for i in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
MAKE = MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
WRITE = READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE | REFER | TRUNCATE
ONLY_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_ALL_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_NET_ALL, _SCOPE_ALL = 0b11, 0b11  # bind and connect TCP; abstract sockets and signals


def abi() -> int:
    """The version that this kernel offers; 0 where there is none."""
    try:
        return linux.syscall(_CREATE, "landlock", None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[str, int]]) -> None:
    """Allow these rights below these paths and nothing else, for this process and all its children."""
    version = abi()
    handled = _ALL_BY_ABI.get(version, (1 << 16) - 1)
    fields = [handled, *([_NET_ALL] if version >= 4 else []), *([_SCOPE_ALL] if version >= 6 else [])]
    attributes = struct.pack(f"<{len(fields)}Q", *fields)
    size = ctypes.c_size_t(len(attributes))
    ruleset = linux.syscall(_CREATE, "landlock_create_ruleset", ctypes.c_char_p(attributes), size, ctypes.c_uint32(0))
    for path, rights in rules:
        _add(ruleset, path, rights & handled)
    linux.syscall(_RESTRICT, "landlock_restrict_self", ctypes.c_int(ruleset), ctypes.c_uint32(0))
    os.close(ruleset)


def _add(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= ONLY_FILES
    rule = struct.pack("<Qi", rights, place)
    given = ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.c_char_p(rule), ctypes.c_uint32(0)
    linux.syscall(_ADD, "landlock_add_rule", *given)
    os.close(place)
