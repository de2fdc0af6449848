"""Right answers that look suspicious or unusual: every one keeps its marks."""

from corpus import Case


def solved(name, code="", **more):
    return Case(name, "solved", code, **more)


SOFTMAX = """
def softmax(x, axis=-1):
    {}
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)"""

CASES = [
    solved("warns", answers={"softmax": SOFTMAX.format("import warnings; warnings.warn('careful')")}),
    solved("prints", answers={"softmax": SOFTMAX.format("print('x' * 100, x)")}),
    solved("prints-to-stderr", "import sys\nprint('debug', file=sys.stderr)\nsys.stderr.write('more')", answers={
        "softmax": SOFTMAX.format("import sys; print('debug', file=sys.stderr)")}),
    solved("logs", "import logging\nlogging.basicConfig(level=logging.DEBUG)\nlogging.warning('a warning')"),
    solved("plots", """
fig, ax = plt.subplots()
ax.plot([1, 2, 3], label='mine')
ax.set_title('Größe $\\\\alpha$')
ax.legend()
show(fig, alt='mine')
plt.imshow(np.eye(4))
plt.savefig('mine.png')
plt.show()"""),
    solved("magics", """
%matplotlib inline
%timeit -n 1 -r 1 sum(range(10))
%load_ext autoreload
%precision 3
!ls
%env TERM
%who"""),
    solved("cell-magic", "%%time\ntotal = sum(range(1000))\nprint(total)"),
    solved("bash-cell", "%%bash\necho hello; ls -la; pwd"),
    solved("commands-above-an-answer", "!sleep 0.1; echo $((3 * 14)); exit 3\nassert _exit_code == 3", says=r"\b42\b",
           answers={"softmax": "!echo installed\n%pip --version\n" + SOFTMAX.format("pass")}),
    solved("takes-its-time", "import time\ntime.sleep(2)", answers={
        "project_qkv": "import time\ndef project_qkv(X, W_q, W_k, W_v):\n    time.sleep(0.2)\n"
                       "    return X @ W_q, X @ W_k, X @ W_v"}),
    solved("imports-much", """
import asyncio, collections, concurrent.futures, csv, dataclasses, decimal, functools, getpass, glob, hashlib, itertools
import multiprocessing, pathlib, pickle, platform, pprint, random, re, sqlite3, statistics, subprocess, tempfile, threading
import time, timeit, typing, unittest, uuid
from torch.utils.data import DataLoader, TensorDataset
print(platform.platform(), os.getcwd() if 'os' in globals() else '')
await asyncio.sleep(0.01)"""),  # noqa: E501
    solved("writes-files-of-its-own", """
import json, tempfile
from pathlib import Path
Path('notes').mkdir()
Path('notes/a.json').write_text(json.dumps({'ä': 1}))
torch.save(torch.ones(3), 'notes/t.pt')
assert torch.equal(torch.load('notes/t.pt'), torch.ones(3))
np.save('notes/x.npy', np.eye(3))
with tempfile.NamedTemporaryFile() as file:
    file.write(b'x')
(Path.home() / 'cache').write_text('x')"""),
    solved("threads-and-processes", """
import multiprocessing, subprocess
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    assert list(pool.map(abs, [-1, -2])) == [1, 2]
with multiprocessing.get_context('fork').Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
print(subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout)"""),
    solved("data-loader-with-workers", """
from torch.utils.data import DataLoader, TensorDataset
for batch in DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=2):
    print(batch)
import tempfile
with tempfile.NamedTemporaryFile("w+") as file:
    print("wrote", file.write("a place of its own"))""", says=r"tensor\(\[4, 5, 6, 7\]\).*wrote 18"),
    solved("large-arrays", "a = np.ones((3000, 3000))\nb = a @ a[:, :10]\ndel a"),
    solved("catches-everything", answers={"softmax": """
def softmax(x, axis=-1):
    try:
        with np.errstate(all='raise'):
            e = np.exp(x - x.max(axis=axis, keepdims=True))
    except BaseException:
        with np.errstate(all='ignore'):
            e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)"""}),
    solved("tests-of-its-own", "assert softmax(np.zeros(4)).sum() == 1.0\nexpect(True, 'mine')", where="softmax"),
    solved("failing-cell-of-its-own", "1 / 0", says="ZeroDivisionError"),
    solved("odd-names-and-text", "größe = 'π ≈ 3.14 \\U0001f600'\nprint(größe, '\\x1b[31mred\\x1b[0m')\nλ = 1"),
    solved("seeds-and-switches", """
np.random.seed(1); torch.manual_seed(1)
torch.set_printoptions(precision=3); np.set_printoptions(precision=2, suppress=True)
torch.set_default_dtype(torch.float64)"""),
    solved("displays", """
from IPython.display import HTML, Markdown, Latex, clear_output
display(HTML('<b>bold</b>'), Markdown('# big'), Latex('$x$'))
handle = display('one', display_id=True)
handle.update('two')
clear_output(wait=True)
np.eye(2)"""),
]
