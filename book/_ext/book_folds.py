"""Directives that unfold, as native <details>: they open by mouse and keyboard, and without JavaScript.

    :::{hint} The shapes
    Text.
    :::

    :::{quiz} why_scale
    question: …
    options: [{text: …, correct: true, why: …}, …]
    :::
"""

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from autograder import lower
from autograder.errors import CourseError


class details(nodes.General, nodes.Element):
    """Folded content, closed at first."""


class summary(nodes.General, nodes.TextElement):
    """The line that is always visible."""


class question(nodes.General, nodes.Element):
    """A question and the options that answer it."""


class Folding(SphinxDirective):
    """What hint and quiz share: text inside them is MyST like any other."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def inline(self, text: str) -> list[nodes.Node]:
        found, problems = self.state.inline_text(text, self.lineno)
        return [*found, *problems]

    def folded(self, shown: list[nodes.Node], body: list[str], *classes: str) -> nodes.Element:
        node = details(classes=list(classes))
        self.set_source_info(node)
        node += summary("", "", *shown)
        text = StringList(body, self.env.doc2path(self.env.docname))
        self.state.nested_parse(text, self.content_offset, node)
        return node


class Hint(Folding):
    """A hint that the reader unfolds when stuck."""

    def run(self) -> list[nodes.Node]:
        title = [nodes.strong("", "Hint"), *([nodes.Text(": ")] if self.arguments else [])]
        shown = title + self.inline(self.arguments[0] if self.arguments else "")
        return [self.folded(shown, list(self.content), "book-hint")]


class Quiz(Folding):
    """A self-check question: each option unfolds to right or not, and why."""

    required_arguments = 1
    optional_arguments = 0

    def run(self) -> list[nodes.Node]:
        try:
            quiz = lower.quiz(lower.Directive("quiz", self.arguments[0], "\n".join(self.content), self.lineno))
        except CourseError as problem:
            raise self.error(str(problem)) from problem
        box = question()
        box += nodes.paragraph("", "", nodes.strong("", "Check yourself. "), *self.inline(quiz.question))
        for option in quiz.options:
            verdict, name = ("✓ **Right.**", "right") if option.correct else ("✗ **Not so.**", "wrong")
            body = f"{verdict} {option.why}".split("\n")
            box += self.folded(self.inline(option.text), body, "book-option", f"book-{name}")
        return [box]


def visit_question(self, node):
    self.body.append('<div class="book-quiz">\n')


def depart_question(self, node):
    self.body.append("</div>\n")


def visit_details(self, node):
    self.body.append(self.starttag(node, "details"))


def depart_details(self, node):
    self.body.append("</details>\n")


def visit_summary(self, node):
    self.body.append("<summary>")


def depart_summary(self, node):
    self.body.append("</summary>\n")


def setup(app):
    app.add_node(question, html=(visit_question, depart_question))
    app.add_node(details, html=(visit_details, depart_details))
    app.add_node(summary, html=(visit_summary, depart_summary))
    app.add_directive("hint", Hint, override=True)
    app.add_directive("quiz", Quiz)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
