"""Puts up the walls of a sandbox around the calling process. Called in a child after a fork, never in the grader."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import stat

from autograder.sandbox import landlock, linux, seccomp
from autograder.sandbox.policy import Policy, hidden, readable

_INSIDE = 1000  # the learner's user and group, as seen from inside
_READ_ONLY = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
_DEVICES = ("null", "zero", "full", "random", "urandom")
SETTINGS = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "fonts", "mime.types", "alternatives")
WORK, HOME = "/tmp/work", "/tmp/home"


def spaces() -> None:
    """Leave all namespaces for new ones; then the parent must map the users.

    The process itself stays in its old pid namespace; its next child is the first of the new one.
    """
    linux.unshare(linux.NAMESPACES)


def map_users(pid: int, user: int) -> None:
    """The parent's part: which users the child's namespace knows. As root, also one that owns nothing here."""
    root = os.getuid() == 0
    for kind, own in (("uid", os.getuid()), ("gid", os.getgid())):
        if not root and kind == "gid":
            _write(f"/proc/{pid}/setgroups", "deny")
        _write(f"/proc/{pid}/{kind}_map", f"0 0 1\n{_INSIDE} {user} 1" if root else f"{_INSIDE} {own} 1")


def enter(policy: Policy) -> None:
    """The rest, in the first process of the new pid namespace: files, limits, rights. Nothing is left to undo."""
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    _root_directory(policy)
    limit(policy)
    linux.prctl(linux.PR_SET_SECUREBITS, linux.SECUREBITS_LOCKED)
    _user()
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 1)  # the change of user cleared it, and `watch` wants to count our memory
    restrict()
    seccomp.apply()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


# ---- files


def _root_directory(policy: Policy) -> None:
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    new = "/tmp"
    places = readable()  # asked for now: what lies in /tmp is out of sight from the next mount on
    files = os.open(policy.files, os.O_RDONLY | os.O_DIRECTORY) if policy.files else -1
    sources = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in places if not os.path.islink(path)}
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
    settings = {name: os.open(f"/etc/{name}", os.O_PATH) for name in SETTINGS if os.path.exists(f"/etc/{name}")}
    linux.mount("root", new, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=16m,mode=755")
    _scratch(new, policy)  # before the places: this Python may itself lie below /tmp
    for path in places:
        if path in sources:
            _bind(sources[path], new + path, read_only=True)
        else:
            _link(os.readlink(path), new + path)
    for name, device in devices.items():
        _bind(device, f"{new}/dev/{name}", directory=False)
    for name, setting in settings.items():
        _bind(setting, f"{new}/etc/{name}", directory=os.path.isdir(f"/proc/self/fd/{setting}"), read_only=True)
    _own_files(new, files)
    for fd in (*sources.values(), *devices.values(), *settings.values()):
        os.close(fd)
    _switch(new)
    for path in (*hidden(), *policy.hide):
        _hide(path, places)
    linux.mount("none", "/", None, linux.MS_REMOUNT | linux.MS_BIND | _READ_ONLY)


def _hide(path: str, places: list[str]) -> None:
    """An empty directory over one that must not be seen; what lies in no place that can be read is not here anyway."""
    real = os.path.realpath(path)
    if not os.path.isdir(real) or not any(real.startswith(place + "/") for place in places):
        return
    if any(place.startswith(real + "/") for place in places):
        raise OSError(f"{path} lies among the system's files and holds this Python; move one of the two")
    linux.mount("hidden", real, "tmpfs", _READ_ONLY, "size=4k,mode=755")


def _copy(files: int, target: str) -> None:
    """Copy the plain files of an open directory, piece by piece: they may be larger than our memory."""
    for folder, _, names, here in os.fwalk(".", dir_fd=files):
        os.makedirs(os.path.join(target, folder), exist_ok=True)
        for name in names:
            if not stat.S_ISREG(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                continue
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=here)
            with open(source, "rb") as file, open(os.path.join(target, folder, name), "wb") as copy:
                shutil.copyfileobj(file, copy)


def _scratch(new: str, policy: Policy) -> None:
    """The only places that can be written: small file systems in memory."""
    size = f"size={policy.disk},nr_inodes=20000,mode=1777"
    for name, path in (("scratch", "/tmp"), ("shm", "/dev/shm")):
        os.makedirs(new + path)
        linux.mount(name, new + path, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, size)


def _own_files(new: str, files: int) -> None:
    """The learner's own folders, with what was handed in."""
    os.makedirs(new + "/proc")
    with contextlib.suppress(OSError):  # a container may keep /proc to itself: then there is none inside
        linux.mount("proc", new + "/proc", "proc", _READ_ONLY | linux.MS_NOEXEC)
    for folder in (WORK, HOME):
        os.makedirs(new + folder)
    if files >= 0:
        _copy(files, new + WORK)
        os.close(files)
    for folder in (WORK, HOME):
        _give(new + folder)


def _give(top: str) -> None:
    if os.getuid() != 0:
        return
    for folder, _, names in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.chown(path, _INSIDE, _INSIDE)


def _bind(source: int, target: str, *, directory: bool = True, read_only: bool = False) -> None:
    os.makedirs(target if directory else os.path.dirname(target), exist_ok=True)
    if not directory:
        os.close(os.open(target, os.O_CREAT, 0o644))
    linux.mount(f"/proc/self/fd/{source}", target, None, linux.MS_BIND | linux.MS_REC)
    linux.protect(target, _READ_ONLY if read_only else linux.MS_NOSUID)


def _link(where: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.symlink(where, target)


def _switch(new: str) -> None:
    os.makedirs(new + "/old")
    linux.pivot_root(new, new + "/old")
    os.chdir("/")
    linux.unmount("/old", linux.MNT_DETACH)
    os.rmdir("/old")


# ---- limits and rights


def limit(policy: Policy) -> None:
    """Bind this process, and what it starts, to the policy's limits."""
    os.umask(0o077)
    for kind, most in (
        (resource.RLIMIT_AS, policy.memory),
        (resource.RLIMIT_FSIZE, policy.file),
        (resource.RLIMIT_NPROC, policy.processes),
        (resource.RLIMIT_NOFILE, policy.descriptors),
        (resource.RLIMIT_CPU, policy.cpu),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _user() -> None:
    if os.getuid() == 0:
        os.setgroups([])
    os.setresgid(_INSIDE, _INSIDE, _INSIDE)
    os.setresuid(_INSIDE, _INSIDE, _INSIDE)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user clears it


def restrict() -> None:
    """Landlock: read what a Python needs, write what is scratch, nothing else."""
    read = [(path, landlock.READ) for path in (*readable(), "/etc", "/proc", "/dev") if os.path.isdir(path)]
    devices = [(f"/dev/{name}", landlock.READ_FILE | landlock.WRITE_FILE) for name in _DEVICES]
    write = [("/tmp", landlock.WRITE), ("/dev/shm", landlock.WRITE)]
    landlock.restrict([*read, *devices, *write])
