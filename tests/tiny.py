"""A course of one tiny chapter, built in code, for tests that plant faults in it."""

from pathlib import Path

from autograder.course import Project

SLUG = "03_tiny"
SETUP = '''\
import numpy as np


def expect(condition, message):
    assert condition, message
'''
BIBLIOGRAPHY = '''\
@article{vaswani2017, author = {Vaswani, Ashish and Shazeer, Noam and Parmar, Niki}, title = {Attention},
  year = {2017}, url = {https://arxiv.org/abs/1706.03762}}
@article{hochreiter1997, author = {Hochreiter, Sepp and Schmidhuber, J{\\"u}rgen}, title = {LSTM},
  year = {1997}, doi = {10.1162/neco}}
'''
CHAPTER = '''\
---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {display_name: Python 3, language: python, name: python3}
course: {minutes: 60}
---

(tiny)=
# Averages

An average weighs every number alike.

```{code-cell}
:tags: [setup]
%run setup.py
from autograder.checks import check
```

## A weighted average

```{code-cell}
:tags: [exercise]
:id: weigh
def weigh(values, weights):
    """The weighted average of values (n,), weights (n,)."""
    ### BEGIN SOLUTION
    total = np.sum(weights, axis=-1, keepdims=True)   # (1,)
    shares = weights / np.maximum(total, 1e-12)
    return (shares * values).sum(axis=-1)
    ### END SOLUTION
```

```{code-cell}
:tags: [tests]
:id: weigh-core-tests
:points: 2
expect(weigh(np.ones(2), np.ones(2)) == 1, "ones average to one")
### BEGIN HIDDEN TESTS
check("weigh", weigh, part="core")
### END HIDDEN TESTS
```

```{code-cell}
:tags: [tests]
:id: weigh-edge-tests
:points: 1.5
### BEGIN HIDDEN TESTS
check("weigh", weigh, part="edge")
### END HIDDEN TESTS
```

```{code-cell}
:tags: [exercise]
:id: spread
def spread(values):
    ### BEGIN SOLUTION
    return np.sqrt(np.mean((values - values.mean()) ** 2))
    ### END SOLUTION
```

```{code-cell}
:tags: [tests]
:id: spread-tests
:points: 1
### BEGIN HIDDEN TESTS
check("spread", spread)
### END HIDDEN TESTS
```

Why do the weights have to sum to one?

+++ {"tags": ["written"], "id": "why_one", "points": 4}

Otherwise a constant list would not average to its own constant, whatever the weights are.

### BEGIN MARK SCHEME
Two points for naming the constant list, two for dividing by the total.
### END MARK SCHEME

+++

```{code-cell}
:tags: [given]
:id: halve
def halve(x):
    return x / 2
```

```{code-cell}
:tags: [demo, timed]
print(weigh(np.arange(3.0), np.ones(3)))
```

```{code-cell}
:tags: [try]
spread(np.arange(5.0))
```

```{code-cell}
x = 1
```

```{code-cell}
x = 1
```
'''


def project(root: Path, chapter: str = CHAPTER, setup: str = SETUP) -> Project:
    """A project at `root` with one chapter."""
    for folder in ("solutions", "book", "chapters"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "solutions" / "setup.py").write_text(setup)
    (root / "solutions" / f"{SLUG}.md").write_text(chapter)
    (root / "book" / "references.bib").write_text(BIBLIOGRAPHY)
    return Project(root)


def changed(*changes: tuple[str, str]) -> str:
    """The chapter with each old text replaced, once, by its new one."""
    text = CHAPTER
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def prose(text: str) -> str:
    """The chapter with `text` as one more cell of prose."""
    return changed(("An average weighs every number alike.", text))
