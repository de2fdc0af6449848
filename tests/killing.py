"""Kills gradings of one small class, each somewhere else, runs the grader again, and prints what differed then.

A program: `python killing.py COURSE WORK`, a course that is ready to be graded and an empty folder. It prints a JSON
list: for every place the name, and "" or what was not as in a run that nobody disturbed. Each grading is a fork of this
process; learners' code runs in it, without a kernel: what is looked at here is the gradebook and the folders.
"""

import hashlib
import json
import linecache
import os
import re
import shutil
import signal
import sys
import threading
from pathlib import Path

import inprocess
from classroom import rows
from sqlalchemy import event
from sqlalchemy.engine import Engine

from autograder import grade as pipeline
from autograder import handin, journal, ledger, marking, rebuild, saving
from autograder.course import Course

WORKERS = ((handin, "find_notebooks"), (handin, "copy_files"), (rebuild, "rebuild"), (marking, "mark"),
           (saving, "write_graded"), (journal, "_move"))
# What takes part in a save. To be killed ahead of each line that changes something is to be killed at all of them.
TRACED = {module.__file__: Path(module.__file__).stem for module in (saving, journal, ledger)}
CHANGES = re.compile(r"(replace|write\w*|unlink|mkdir|rmtree|log|save|transaction|begin|swap|end|_move|_remove)\(")
STEPS = {"_tried", "finish_interrupted", "begin", "swap", "_move", "_remove", "end", "log"}


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def forked(run):
    """Do something in a fork; the signal that ended it, 0 if it came to its end."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a grading failed by itself"
    return os.WTERMSIG(status)


@event.listens_for(Engine, "connect")
def never_sync(connection, _):
    """What a killed process has handed to the system is not lost; to wait for the disk takes most of the time."""
    connection.execute("pragma synchronous = off")


def grade(folder, **words):
    pipeline.grade(Course(folder), sandbox="off", **words)


def patched(home, name, *, before, call):
    """A function of the pipeline that kills the process before or after its n-th call, wherever it is called."""
    original, count = getattr(home, name), [0]

    def instead(*args, **words):
        count[0] += 1
        if before and count[0] == call:
            die()
        result = original(*args, **words)
        if count[0] == call:
            die()
        return result

    for module in [module for key, module in sys.modules.items() if key.startswith("autograder.")]:
        if getattr(module, name, None) is original:
            setattr(module, name, instead)


def tracing(place):
    """Die at the n-th time that a line is reached; called with a set, note the lines that are reached instead."""
    counts = {}

    def lines(frame, event, _):
        if event == "line":
            key = (frame.f_code.co_filename, frame.f_lineno)
            counts[key] = counts.get(key, 0) + 1
            if isinstance(place, dict):
                place[key] = counts[key]
            elif place == (*key, counts[key]):
                die()
        return lines

    def calls(frame, event, _):
        code = frame.f_code
        return lines if code.co_filename in TRACED and code.co_name in STEPS else None

    sys.settrace(calls)


def reached(folder):
    """Every line of the rooms that save, by file and number, with how often an undisturbed grading comes there."""
    up, down = os.pipe()

    def run():
        found = {}
        tracing(found)
        grade(folder)
        sys.settrace(None)
        os.write(down, json.dumps([[*key, count] for key, count in found.items()]).encode())

    assert forked(run) == 0
    os.close(down)
    with os.fdopen(up) as pipe:
        lines = json.loads(pipe.read())
    return [line for line in lines if CHANGES.search(linecache.getline(line[0], line[1]))]


def state_of(folder):
    """All that a grading leaves: the gradebook but for its random ids, the graded files, the log but for the times."""
    course = Course(folder)
    files = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
             for path in sorted(course.autograded.rglob("*")) if path.is_file()}
    folders = sorted(str(path.relative_to(folder)) for path in course.autograded.rglob("*") if path.is_dir())
    own = sorted(path.name for path in ledger.state(course).iterdir())
    log = {who: (entry["refused"], entry["repairs"]) for who, entry in ledger.last_entries(course).items()}
    return {"gradebook": rows(course), "files": files, "folders": folders, "own": own, "log": log}


def torn(folder):
    """The students whose graded notebook and gradebook do not say the same."""
    from nbgrader.api import Gradebook

    course, found = Course(folder), []
    with Gradebook(course.db_url) as book:
        for submission in book.assignment_submissions("ps1"):
            path = course.path(course.autograded, submission.student.id, "ps1") / "numbers.ipynb"
            kept = json.loads(path.read_text())["metadata"]["autograder"]["results"] if path.is_file() else []
            said = {result["cell"]: result["points"] for result in kept}
            marks = {grade.name: grade.auto_score for grade in submission.notebooks[0].grades}
            found += [submission.student.id] if marks != said else []
    graded = {path.name for path in course.autograded.iterdir() if (path / "ps1").is_dir()}
    with Gradebook(course.db_url) as book:
        return found + sorted(graded - {one.student.id for one in book.assignment_submissions("ps1")})


def tried(template, folder, plants, wanted):
    """What is wrong after a grading that was killed, or several in turn: once the next has begun, and at its end."""
    shutil.copytree(template, folder)
    for plant in plants:
        def killed(plant=plant):
            plant()
            grade(folder)

        if forked(killed) != signal.SIGKILL and plant is plants[0]:
            return "was not killed"
    forked(lambda: grade(folder, student="refused"))
    if found := torn(folder):
        return f"torn: {found}"
    forked(lambda: grade(folder))
    found = state_of(folder)
    shutil.rmtree(folder)
    return ", ".join(name for name in wanted if found[name] != wanted[name])


def main(template, work):
    inprocess.install()
    shutil.copytree(template, work / "warm")
    grade(work / "warm")  # forks find SQLAlchemy's statements made
    assert threading.active_count() == 1
    undisturbed = work / "undisturbed"
    shutil.copytree(template, undisturbed)
    lines = reached(undisturbed)
    wanted = state_of(undisturbed)
    shutil.rmtree(undisturbed)
    places = {f"{'before' if before else 'after'} {at[1]}": (lambda at=at, b=before: patched(*at, before=b, call=2))
              for at in WORKERS for before in (True, False)}
    for file, line, count in lines:
        # The last time: by then something has been saved.
        places[f"{TRACED[file]}:{line}"] = lambda at=(file, line, count): tracing(at)
    places = {name: [plant] for name, plant in places.items()}
    moving = lambda: patched(journal, "_move", before=True, call=1)  # noqa: E731
    for file, line, _ in lines:
        if TRACED[file] == "journal":  # the run that would finish the save is killed, too
            places[f"twice, {line}"] = [moving, lambda at=(file, line, 1): tracing(at)]
    print(json.dumps({name: tried(template, work / "killed", plant, wanted) for name, plant in places.items()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
