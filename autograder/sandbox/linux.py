"""The system calls that Python has no name for, each raising OSError with the name of what failed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWCGROUP = 0x20000000, 0x40000000, 0x02000000
NAMESPACES = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWCGROUP

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MS_PRIVATE, MNT_DETACH = 1 << 18, 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 22, 24, 28
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
SECUREBITS_LOCKED = 0xEF  # no id gives capabilities, none are kept or raised, and all of that is locked

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, what: str, *args: object) -> int:
    """A system call by number."""
    return _checked(_libc.syscall(ctypes.c_long(number), *args), what)


def unshare(flags: int) -> None:
    """Leave the namespaces that the flags name for new ones."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    given = [text.encode() if text is not None else None for text in (source, target, kind)]
    done = _libc.mount(*given, ctypes.c_ulong(flags), data.encode() if data is not None else None)
    _checked(done, f"mount {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def protect(target: str, flags: int) -> None:
    """Set MS_RDONLY, MS_NOSUID, MS_NODEV on a mount and all below it; none is ever cleared, as a remount would."""
    wanted = _MountAttributes(set=flags & (MS_RDONLY | MS_NOSUID | MS_NODEV))  # MOUNT_ATTR_… have the same numbers
    given = ctypes.c_int(-100), ctypes.c_char_p(target.encode()), ctypes.c_uint32(0x8000)  # AT_FDCWD, AT_RECURSIVE
    syscall(442, f"mount_setattr {target}", *given, ctypes.byref(wanted), ctypes.c_size_t(ctypes.sizeof(wanted)))


def unmount(target: str, flags: int) -> None:
    """umount2(2)."""
    _checked(_libc.umount2(target.encode(), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root directory; the old one lies under `old` then."""
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    syscall(number, "pivot_root", ctypes.c_char_p(new.encode()), ctypes.c_char_p(old.encode()))


def prctl(option: int, *args: int) -> None:
    """prctl(2)."""
    padded = [*args, 0, 0, 0, 0][:4]
    _checked(_libc.prctl(option, *(ctypes.c_ulong(arg) for arg in padded)), f"prctl {option}")


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def drop_capabilities() -> None:
    """Give up every capability for good: effective, permitted, inheritable, ambient and bounding."""
    for capability in range(64):  # beyond the last one the call fails, and that is all
        _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0)
    _libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    header, none = _Header(0x20080522, 0), (ctypes.c_uint32 * 6)()
    _checked(_libc.capset(ctypes.byref(header), none), "capset")


def close_all_but(keep: Sequence[int]) -> None:
    """Close every file descriptor above 2 that is not kept."""
    edges = [2, *sorted(fd for fd in keep if fd > 2), os.sysconf("SC_OPEN_MAX")]
    for low, high in zip(edges, edges[1:]):
        os.closerange(low + 1, high)
