"""A light page: what no page of this book uses is neither loaded nor shipped."""

from pathlib import Path

# Live code, comments, toggles and tabs: jupyter-book loads them on every page.
UNUSED = ("thebe", "togglebutton", "design-tabs", "sphinx-design", "sphinx_design")
# 3 MB of icons, in place of which book.css draws the dozen that the theme shows.
UNSHIPPED = ("**/*.map", "scripts/fontawesome.js*", "vendor/fontawesome", "*thebe*", "togglebutton*")


def without_header(app, config):
    """No bar above the page: it would repeat the search field, and its hidden button would take the menu's clicks."""
    config.html_theme_options["navbar_persistent"] = []


def drop_unused(app, pagename, templatename, context, doctree):
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if not unused(file)]


def unused(file) -> bool:
    said = f"{getattr(file, 'filename', file)} {getattr(file, 'attributes', '')}".lower()
    return any(word in said for word in UNUSED)


def prune(app, exception):
    """Remove from the built book the files that its pages do not load."""
    static = Path(app.outdir) / "_static"
    for pattern in UNSHIPPED:
        for path in sorted(static.glob(pattern), reverse=True):
            for file in [path] if path.is_file() else path.rglob("*.*"):
                if file.is_file():
                    file.unlink()


def setup(app):
    app.connect("config-inited", without_header)
    app.connect("html-page-context", drop_unused, priority=900)
    app.connect("build-finished", prune)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
