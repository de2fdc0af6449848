"""What learner code must not be able to do. The base is all right and keeps its marks; the code says when it did it."""

from corpus import Case

ATTEMPT = """
import os, signal, socket, subprocess, sys
got = 'GOT' + '-IN'
def attempt(what, *args, **kwargs):
    try:
        print(got, what, args, what(*args, **kwargs))
    except Exception as error:
        print(type(error).__name__)
"""
LIBC = ATTEMPT + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*args):
    if libc.syscall(*args) >= 0:
        print(got, args)
    else:
        print(os.strerror(ctypes.get_errno()))
"""


def solved(name, code="", **more):
    return Case(name, "solved", code, **more)


CASES = [
    solved("connects-to-loopback", ATTEMPT + """
attempt(socket.create_connection, ('127.0.0.1', <<PORT>>), 2)
attempt(socket.create_connection, ('::1', <<PORT>>), 2)
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        return out.sendto(b'x', ('127.0.0.1', <<PORT>>))
attempt(udp)"""),
    solved("connects-to-the-world", ATTEMPT + """
import urllib.request
attempt(urllib.request.urlopen, 'http://127.0.0.1:<<PORT>>/', timeout=2)
attempt(socket.getaddrinfo, 'example.org', 80)
attempt(socket.create_connection, ('1.1.1.1', 53), 2)"""),
    solved("opens-odd-sockets", ATTEMPT + """
for family, kind in ((socket.AF_NETLINK, socket.SOCK_RAW), (socket.AF_PACKET, socket.SOCK_RAW), (40, 1), (38, 5),
                     (socket.AF_INET, socket.SOCK_RAW), (socket.AF_INET6, socket.SOCK_STREAM), (16, 3)):
    attempt(socket.socket, family, kind)"""),
    solved("connects-to-sockets-of-others", ATTEMPT + """
import glob
def connect(name):
    with socket.socket(socket.AF_UNIX) as out:
        out.settimeout(2)
        out.connect(name)
        return 'connected'
attempt(connect, '<<BAIT>>/socket')
attempt(connect, '\\0<<ABSTRACT>>')
OTHERS = glob.glob('/tmp/grading-*/kernel-*/s/*')
for path in [*OTHERS, *glob.glob('/run/**/*', recursive=True), '/var/run/docker.sock']:
    attempt(connect, path)"""),
    solved("reads-connections-of-others", ATTEMPT + """
import glob
OTHERS = [*glob.glob('/tmp/grading-*/kernel-*/kernel.json'), *glob.glob('/tmp/grading-*/zygote-*/*')]
for path in (*OTHERS, *glob.glob('/run/kernel/*')):
    print(got, path)"""),
    solved("writes-where-it-must-not", ATTEMPT + """
for path in ('<<BAIT>>/written', '<<COURSE>>/written', '/usr/local/written', '/etc/written', '/written', '/dev/written',
             os.path.join(sys.prefix, 'written'), os.__file__, np.__file__, '/tmp/..<<HOME>>/written',
             '/proc/self/oom_score_adj', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger'):
    attempt(open, path, 'w')"""),
    solved("deletes-and-changes-rights", ATTEMPT + """
import shutil
for path in ('<<BAIT>>', '<<COURSE>>', sys.prefix, '/usr/share/doc'):
    attempt(shutil.rmtree, path)
    attempt(os.rename, path, path + '-moved')
    attempt(os.chmod, path, 0o777)
    attempt(os.utime, path, (0, 0))
    attempt(os.setxattr, path, 'user.x', b'1')
attempt(os.chmod, sys.executable, 0o777)
attempt(os.chown, sys.executable, os.getuid(), -1)
attempt(os.remove, np.__file__)"""),
    solved("leaves-a-daemon", """
import os, time
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        for number in range(3, 200):
            try:
                os.close(number)
            except OSError:
                pass
        time.sleep(500)
    os._exit(0)
os.wait()
import subprocess
subprocess.Popen(['sleep', '500'], process_group=0)"""),
    solved("runs-at-exit", """
import atexit, signal, weakref
def last(*args):
    open('<<BAIT>>/at-exit', 'w')
atexit.register(last)
get_ipython().events.register('post_execute', lambda: None)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, last)"""),
    solved("leaves-startup-files", """
import os, sys
home = os.path.expanduser('~')
startup = os.path.join(home, 'profile_default', 'startup')
places = [os.path.join(startup, '00.py'), os.path.join(home, '.ipython/profile_default/startup/00.py'),
          os.path.join(home, '.bashrc'), 'sitecustomize.py', 'usercustomize.py', 'ipython_config.py', 'conftest.py',
          os.path.join(home, '.local/lib/python3.11/site-packages/evil.pth')]
for place in places:
    os.makedirs(os.path.dirname(place) or '.', exist_ok=True)
    with open(place, 'w') as file:
        file.write("raise SystemExit('started')")
os._exit(1)""", where="end", says="died while this ran"),
    solved("shadows-modules", """
for name in ('numpy', 'torch', 'autograder', 'json', 'base64', 'math', 'IPython'):
    with open(f'{name}.py', 'w') as file:
        file.write("raise SystemExit('shadowed')")
import math, json, base64"""),
    Case("hands-in-shadowing-modules", "wrong", "import importlib", files={
        "numpy.py": "raise SystemExit", "torch.py": "raise SystemExit", "autograder/__init__.py": "x = 1",
        "autograder/probe.py": "serve = lambda *args: b'passed'", "base64.py": "b64encode = lambda x: b'passed'",
        "sitecustomize.py": "import os; os._exit(0)", "nbgrader_config.py": "raise SystemExit",
        ".autograder/sample": "", "feedback/x.html": "", "ipython_config.py": "raise SystemExit"}),
    Case("returns-what-runs-when-unpickled", "wrong", """
class Boom:
    def __reduce__(self):
        return (open, ('<<BAIT>>/unpickled', 'w'))
    def __repr__(self):
        return "open('<<BAIT>>/repr', 'w')"
""", answers={"softmax": "def softmax(x, axis=-1):\n    return Boom()"}, says="yours is a Boom"),
    solved("signals-to-others", ATTEMPT + """
for pid in (<<PID>>, os.getppid() or <<PID>>, *range(3000, 3400, 50)):
    attempt(os.kill, pid, signal.SIGTERM)
for number in (signal.SIGSTOP, signal.SIGKILL):
    try:
        os.kill(1, number)
        os.kill(-1, number)
        os.killpg(0, number)
    except OSError as error:
        print(type(error).__name__)"""),
    solved("calls-that-are-refused", LIBC + """
for number in (101, 165, 272, 308, 310, 321, 298, 323, 425, 161, 155, 246, 319, 29, 68, 64, 435, 250, 447, 112):
    call(number, 0, 0, 0, 0, 0)
call(56, 0x10000000 | 17, 0, 0, 0, 0)
call(272, 0x10000000)"""),
    solved("becomes-someone-else", ATTEMPT + """
attempt(os.setuid, 0)
attempt(os.setgid, 0)
attempt(os.setresuid, 0, 0, 0)
attempt(os.setgroups, [0])
attempt(os.chroot, '/')
attempt(os.mknod, 'disk', 0o60666, os.makedev(254, 0))
attempt(subprocess.run, ['unshare', '-r', 'true'], check=True)
attempt(subprocess.run, ['su', '-c', 'true'], check=True, timeout=5, stdin=subprocess.DEVNULL)"""),
    solved("writes-to-the-log", """
import os
for number in (1, 2):
    try:
        for _ in range(200):
            os.write(number, b'x' * (1 << 20))
    except OSError as error:
        print(type(error).__name__)"""),
    solved("takes-its-sockets-away", ATTEMPT + """
connection = get_ipython().kernel.parent.connection_file
import json
ip = json.load(open(connection))['ip']
attempt(os.remove, ip + '-1')
attempt(os.listdir, os.path.dirname(ip))
def bind():
    with socket.socket(socket.AF_UNIX) as mine:
        mine.bind(os.path.join(os.path.dirname(ip), 'more'))
attempt(bind)"""),
]
