"""A seccomp filter that refuses the system calls a notebook has no use for, written out in classic BPF.

seccomp(2) and the kernel's Documentation/userspace-api/seccomp_filter.rst give the format. Refused calls fail with
EPERM, so that a library that tries one goes on; libseccomp, the usual helper, is not on every machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from autograder.sandbox import linux

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# name: (x86_64, aarch64); None where the machine has no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "unshare": (272, 97), "setns": (308, 268),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58),
    "personality": (135, 92), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "mbind": (237, 235), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "fanotify_init": (300, 262), "iopl": (172, None), "ioperm": (173, None),
    "modify_ldt": (154, None), "memfd_secret": (447, 447),
    # Linux shares processors out by session: with sixty of them a kernel would have sixty shares.
    "setsid": (112, 157),
    # Memory that no limit of a process counts: it would outlast its maker.
    "memfd_create": (319, 279), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
}  # fmt: skip
_SOCKET, _SOCKETPAIR, _CLONE, _CLONE3 = (41, 198), (53, 199), (56, 220), (435, 435)
_AF_UNIX = 1

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # places in struct seccomp_data


def _errno(number: int) -> int:
    return 0x00050000 | number


def program(machine: str) -> bytes:
    """The filter for a machine, as an array of struct sock_filter."""
    column = list(_ARCH).index(machine)
    lines = [_op(_LOAD, _ARCHITECTURE), _op(_EQUAL, _ARCH[machine], 1, 0), _op(_RETURN, _KILL), _op(_LOAD, _NUMBER)]
    if machine == "x86_64":  # the x32 calls are the same ones under other numbers
        lines += [_op(_ABOVE, 0x40000000, 0, 1), _op(_RETURN, _errno(errno.ENOSYS))]
    for numbers in _REFUSED.values():
        if numbers[column] is not None:
            lines += [_op(_EQUAL, numbers[column], 0, 1), _op(_RETURN, _errno(errno.EPERM))]
    # glibc falls back from clone3, whose flags lie in memory, to clone, whose flags a filter can read.
    lines += [_op(_EQUAL, _CLONE3[column], 0, 1), _op(_RETURN, _errno(errno.ENOSYS))]
    lines += _by_argument(_CLONE[column], _op(_ANY_BIT, linux.NAMESPACES, 0, 1), errno.EPERM)
    for call in (_SOCKET, _SOCKETPAIR):
        lines += _by_argument(call[column], _op(_EQUAL, _AF_UNIX, 1, 0), errno.EACCES)
    return b"".join([*lines, _op(_RETURN, _ALLOW)])


def _by_argument(call: int, test: bytes, refusal: int) -> list[bytes]:
    """Refuse a call by its first argument: `test` jumps over the refusal or goes on to it."""
    head = [_op(_EQUAL, call, 0, 4), _op(_LOAD, _FIRST_ARGUMENT)]
    return [*head, test, _op(_RETURN, _errno(refusal)), _op(_RETURN, _ALLOW)]


def _op(code: int, value: int | None, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value or 0)


def apply() -> None:
    """Put the filter on this process and all its children; needs no_new_privs."""
    code = program(os.uname().machine)
    buffer = ctypes.create_string_buffer(code, len(code))
    filled = struct.pack("@HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    head = ctypes.create_string_buffer(filled, len(filled))
    linux.prctl(linux.PR_SET_SECCOMP, 2, ctypes.addressof(head))
