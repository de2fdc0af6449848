"""More than its share of time, memory, processes or disk. What the greedy cell does not touch keeps its marks."""

from corpus import Case
from nbformat.v4 import new_code_cell


def solved(name, code="", **more):
    return Case(name, "solved", code, where=more.pop("where", "end"), **more)


def many_cells(notebook):
    notebook.cells += [new_code_cell("1", id=f"more-{number}") for number in range(2500)]


def deep_cells(notebook):
    """Without ids the grader looks for answers by what cells define, and so has to parse them."""
    for cell in notebook.cells:
        cell.metadata.pop("nbgrader", None)
        cell.id += "-x"
    notebook.cells += [new_code_cell("-" * 200_000 + "1", id="deep"), new_code_cell("(" * 200_000, id="open"),
                       new_code_cell("def softmax" + ".x" * 200_000, id="long")]


CASES = [
    solved("swallows-the-interrupt", """
import time
while True:
    try:
        time.sleep(60)
    except BaseException:
        pass""", says="did not heed the interrupt"),
    solved("loops", "while True:\n    pass", says="stopped after"),
    solved("answer-loops", answers={
        "softmax": "import time\ndef softmax(x, axis=-1):\n    while True:\n        time.sleep(0.1)"},
        lost=("softmax", "attention"), says="stopped after", where="top"),
    solved("sleeps", "import time\ntime.sleep(10_000)", says="stopped after"),
    solved("fork-bomb", """
import os, time
for _ in range(1000):
    if os.fork() == 0:
        time.sleep(1000)
        os._exit(0)""", says="BlockingIOError"),
    solved("forks-the-kernel", "import os\nprint(os.fork() >= 0)"),
    solved("thread-bomb", """
import threading, time
for _ in range(1000):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()""", says="can't start new thread"),
    solved("memory-bomb", "hoard = bytearray(20 << 30)", says="MemoryError"),
    solved("memory-bomb-piece-by-piece", """
import mmap
hoard = []
while True:
    hoard.append(mmap.mmap(-1, 256 << 20))""", says="OSError|MemoryError"),
    solved("disk-bomb", """
import os
for number in range(100):
    with open(f'big{number}', 'wb') as file:
        os.posix_fallocate(file.fileno(), 0, 60 << 20)""", says="No space left"),
    solved("one-large-file", "with open('big', 'wb') as file:\n    file.truncate(10 << 30)", says="File too large"),
    solved("inode-bomb", "for number in range(25_000):\n    open(f'n{number}', 'w').close()", says="No space left"),
    solved("shared-memory-bomb", """
import os
for number in range(100):
    with open(f'/dev/shm/big{number}', 'wb') as file:
        os.posix_fallocate(file.fileno(), 0, 60 << 20)""", says="No space left"),
    solved("output-bomb", "for _ in range(60):\n    print('line\\n' * 5000)", says="Output truncated"),
    solved("output-in-one-line", "print('x' * 10_000_000)", says="Output truncated"),
    solved("display-bomb", """
from IPython.display import display
for _ in range(400):
    display({'text/plain': 'x' * 100_000}, raw=True)"""),
    solved("giant-display", """
from IPython.display import display
display({'text/plain': 'x' * (30 << 20)}, raw=True)"""),
    solved("giant-error", "raise ValueError('x' * (3 << 20))", says="ValueError"),
    solved("giant-findings", answers={
        "softmax": "def softmax(x, axis=-1):\n    return np.zeros(10_000_000)",
        "attention": "def attention(Q, K, V):\n    return ['x' * 100_000] * 5000, {str(i): 'y' for i in range(5000)}"},
        lost=("softmax", "attention"), where="top"),
    solved("giant-reply", """
session = get_ipython().kernel.session
old = session.send
def send(stream, kind, content=None, *args, **kwargs):
    if kind == 'execute_reply' and content.get('user_expressions'):
        content = {**content, 'padding': 'x' * (40 << 20)}
    return old(stream, kind, content, *args, **kwargs)
session.send = send""", where="previous_token_head", lost=("previous_token_head",), says="stopped after"),
    solved("deep-findings", answers={"softmax": """
def softmax(x, axis=-1):
    nested = []
    for _ in range(100_000):
        nested = [nested]
    return nested"""}, lost=("softmax", "attention"), where="top"),
    # A busy machine needs longer than the cell may take to word the traceback of a thousand frames.
    solved("recursion", "def down():\n    return down()\ndown()", says="RecursionError|TimeLimit"),
    solved("recursion-into-the-stack", """
import sys
sys.setrecursionlimit(10 ** 9)
class Down:
    def __repr__(self):
        return repr(self)
def down(x):
    return repr(x)
down(Down())""", says="died while this ran|RecursionError"),
    solved("asks-for-input", "input('password: ')", says="StdinNotImplementedError"),
    solved("dies-again-and-again", answers={
        "project_qkv": "import os\ndef project_qkv(*args):\n    os._exit(1)",
        "attention_scores": "import os\ndef attention_scores(*args):\n    os._exit(1)"},
        lost=("project_qkv", "attention_scores", "attention"), says="died", where="top"),
    Case("thousands-of-cells", "solved", edit=many_cells, refused=True, says="which nobody can have written"),
    # Without ids, and with cells of its own behind it, prose is not known for an answer: it waits for the instructor.
    Case("cells-too-deep-to-parse", "solved", edit=deep_cells, lost=("shared_query_key",)),
    solved("a-large-file-beside-it", "print(len(open('large.txt').read()))", files={"large.txt": "x" * 5_000_000}),
]
