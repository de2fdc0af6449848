"""Mathematics by KaTeX from the book's own files: no other host, no weight on pages without a formula."""

from docutils import nodes
from sphinx.util.math import get_node_equation_number


def visit_math(self, node):
    self.body.append(self.starttag(node, "span", "", CLASS="math notranslate nohighlight"))
    self.body.append(f"{self.encode(node.astext())}</span>")
    raise nodes.SkipNode


def visit_displaymath(self, node):
    self.body.append(self.starttag(node, "div", "", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(f'<span class="tex">{self.encode(node.astext())}</span></div>')
    raise nodes.SkipNode


def note_math(app, pagename, templatename, context, doctree):
    """Tell the layout whether this page needs KaTeX: its sidebar may hold a formula from a heading, too."""
    titles = [app.env.tocs[pagename]] if pagename in app.env.tocs else []
    found = (node for tree in [doctree, *titles] if tree for node in tree.findall(is_math))
    context["book_math"] = next(found, None) is not None


def is_math(node):
    return isinstance(node, (nodes.math, nodes.math_block))


def setup(app):
    app.add_html_math_renderer("katex", (visit_math, None), (visit_displaymath, None))
    app.connect("html-page-context", note_math)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
