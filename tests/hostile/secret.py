"""What learner code must not get to see. The base is all right and keeps its marks; the code says when it got in."""

from corpus import Case

LOOK = """
import os
got = 'GOT' + '-IN'
def look(*paths):
    for path in paths:
        try:
            with open(path, 'rb') as file:
                print(got, path, file.read(100))
        except OSError as error:
            print(type(error).__name__)
"""


def solved(name, code="", **more):
    return Case(name, "solved", code, **more)


CASES = [
    solved("reads-the-source", LOOK + """
look('<<COURSE>>/source/02_query_key_value/02_query_key_value.ipynb', '<<COURSE>>/nbgrader_config.py',
     '<<PROJECT>>/solutions/02_query_key_value.md', '<<PACKAGE>>/checks/ch02_query_key_value.py',
     '<<PACKAGE>>/judge.py')"""),
    solved("reads-the-gradebook", LOOK + """
look('<<COURSE>>/gradebook.db')
import sqlite3
try:
    print(got, sqlite3.connect('file:<<COURSE>>/gradebook.db?mode=ro', uri=True).execute('select * from student').fetchall())
except Exception as error:
    print(type(error).__name__)"""),  # noqa: E501
    solved("reads-the-secret", LOOK + "look('<<COURSE>>/.autograder/secret', '<<COURSE>>/.autograder/log.jsonl')"),
    solved("reads-other-submissions", LOOK + """
look('<<COURSE>>/submitted/aa-solved/02_query_key_value/02_query_key_value.ipynb')
for folder in ('<<COURSE>>/submitted', '<<COURSE>>/submitted/aa-solved', '<<COURSE>>/autograded', '<<COURSE>>'):
    try:
        print(got, os.listdir(folder))
    except OSError as error:
        print(type(error).__name__)"""),
    solved("looks-for-its-own-notebook", LOOK + """
import glob
look(*glob.glob('**/*.ipynb', recursive=True), *glob.glob('/tmp/**/*.ipynb', recursive=True))"""),
    solved("searches-the-disk", LOOK + """
for top in ('/', '/root', '/home', '/mnt', '/srv', '/var', '/opt', '/work', '/tmp', '/run', os.path.expanduser('~')):
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name not in ('usr', 'proc', 'lib', 'site-packages', '.venv')]
        if any(name in ('gradebook.db', 'secret', 'nbgrader_config.py', 'shadow') for name in names):
            print(got, folder, names)"""),
    solved("reads-its-history", """
for text in [*In, *map(str, Out.values())]:
    for word in ('HID' + 'DEN', 'che' + 'ck("', 'auto' + 'grader.checks'):
        if word in text:
            print('GOT' + '-IN', text)
print(len(list(get_ipython().history_manager.get_range())))"""),
    solved("reads-other-processes", LOOK + """
for name in os.listdir('/proc'):
    if name.isdigit():
        try:
            line = open(f'/proc/{name}/cmdline').read()
        except OSError:
            continue
        if 'py' + 'test' in line or 'grade' in line.split('zygote')[0].replace('autograder', ''):
            print(got, name, line)
look('/proc/<<PID>>/environ', '/proc/<<PID>>/cmdline', '/proc/kcore', os.path.join('/proc/1/root', 'etc/shadow'))"""),
    solved("reads-the-environment", LOOK + """
for text in (*os.environ.values(), open('/proc/self/environ').read(), open('/proc/1/environ').read()):
    if 'CAN' + 'ARY' in text:
        print(got, text)"""),
    solved("reads-open-descriptors", LOOK + """
import os, stat
for name in os.listdir('/proc/self/fd'):
    try:
        target = os.readlink(f'/proc/self/fd/{name}')
        kind = os.fstat(int(name)).st_mode
        if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            print(os.pread(int(name), 10, 0) and got, target)
    except OSError as error:
        print(type(error).__name__)
look(*(f'/proc/self/fd/{number}' for number in (1, 2)))"""),
    solved("leads-out-through-descriptors", LOOK + """
for number in range(200):
    try:
        print(got, os.listdir(f'/proc/self/fd/{number}/'))
    except OSError:
        pass
look(*(f'/proc/self/fd/{number}/../../../etc/shadow' for number in range(30)))"""),
    solved("reads-the-memory-it-was-forked-from", """
import os, re
# The brackets keep the pattern, and this text, from being found themselves.
word = re.compile(b'CANARY-[5]eed|BEGIN HIDDE[N] TESTS|_looks[_]back|class Previous[T]okenHead|autograder.check[s]')
seen = 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb') as memory:
    for line in maps:
        place, rights, _, _, _, *name = line.split()
        low, high = (int(part, 16) for part in place.split('-'))
        if rights[0] == 'r' and (not name or name == ['[heap]']) and high - low < 80 << 20:
            try:
                memory.seek(low)
                text = memory.read(high - low)
                seen += len(text)
                if (hit := word.search(text)) is not None:
                    print('GOT' + '-IN', hit[0], text[hit.start() - 60 : hit.end() + 60])
            except (OSError, ValueError):
                pass
print('looked through', seen > 30 << 20)""", says="looked through True"),
    solved("makes-links", LOOK + """
for number, target in enumerate(('<<COURSE>>/gradebook.db', '/etc/shadow', '/proc/1/root' + '<<COURSE>>/.autograder')):
    os.symlink(target, f'link{number}')
    look(f'link{number}')
try:
    os.link('/usr/bin/env', 'hard')
    print(got)
except OSError as error:
    print(type(error).__name__)"""),
    solved("hands-in-links", LOOK + "look('data.txt', 'folder/secret', 'more.ipynb')", links={
        "data.txt": "<<COURSE>>/.autograder/secret", "folder": "<<COURSE>>/.autograder",
        "more.ipynb": "<<COURSE>>/source/02_query_key_value/02_query_key_value.ipynb"}),
    solved("imports-the-checks", """
import importlib, importlib.util, sys
for name in ('autograder.checks', 'autograder.judge', 'autograder.source', 'autograder.grade', 'autograder.checks.answers'):
    try:
        importlib.import_module(name)
        print('GOT' + '-IN', name)
    except ImportError as error:
        print(type(error).__name__)
    if name in sys.modules:
        print('GOT' + '-IN', name)"""),  # noqa: E501
    solved("asks-for-the-expected-values", answers={"softmax": """
def softmax(x, axis=-1):
    raise ValueError(f'expected {x!r:.60}')"""}, lost=("softmax", "attention"),
        says="raised ValueError"),
    solved("reads-kernel-state", LOOK + """
look('/proc/kallsyms' if False else '/dev/mem', '/dev/kmem', '/dev/vda', '/dev/sda', '/sys/kernel/notes', '/etc/passwd',
     '<<HOME>>/.bash_history', '/var/run/secrets/kubernetes.io/serviceaccount/token')"""),
]
